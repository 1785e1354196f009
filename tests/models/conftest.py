"""Small models with random weights, made once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxprof.config.schema import ModelConfig
from jaxprof.models.layout import SINGLE_DEVICE, Layout
from jaxprof.models.transformer import Transformer

LLAMA = ModelConfig(
    name="llama", d_model=32, layers=2, heads=4, kv_heads=2, head_dim=8, d_ff=48, vocab=128, dtype="float32"
)
GPT2 = dataclasses.replace(
    LLAMA,
    name="gpt2",
    kv_heads=4,
    d_ff=128,
    mlp="gelu",
    norm="layernorm",
    position="learned",
    learned_positions=64,
    attention_bias=True,
    mlp_bias=True,
    tied_output=True,
)
MISTRAL = dataclasses.replace(LLAMA, name="mistral", sliding_window=5)


def random_model(config: ModelConfig, layout: Layout = SINGLE_DEVICE) -> Transformer:
    """Weights drawn widely enough that biases, norms and attention all matter; the same ones at every call."""
    structure, state = nnx.split(nnx.eval_shape(lambda: Transformer(config, layout, rngs=nnx.Rngs(0))))
    random = np.random.default_rng(0)

    def draw(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> jax.Array:
        centre = 1.0 if path[-1].key == "scale" else 0.0
        return jnp.asarray(random.normal(centre, 0.1, leaf.shape), leaf.dtype)

    return nnx.merge(structure, jax.tree_util.tree_map_with_path(draw, nnx.to_pure_dict(state)))


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Transformer]:
    """``make_model(config, layout)``: a model with random weights."""
    return random_model


@pytest.fixture(scope="session")
def llama() -> ModelConfig:
    return LLAMA


@pytest.fixture(scope="session")
def gpt2() -> ModelConfig:
    return GPT2


@pytest.fixture(scope="session")
def mistral() -> ModelConfig:
    return MISTRAL


@pytest.fixture(scope="session", params=[LLAMA, GPT2, MISTRAL], ids=lambda config: config.name)
def model(request: pytest.FixtureRequest) -> Transformer:
    return random_model(request.param)


@pytest.fixture(scope="session")
def tokens() -> jax.Array:
    return jax.random.randint(jax.random.key(7), (2, 16), 0, 128)
