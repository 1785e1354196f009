"""Logits of GPT-2, Llama 3.1 and Mistral equal those of mlx-lm's independent implementations on the same weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from jaxprof.config.schema import ModelConfig
from jaxprof.models.transformer import Transformer

pytestmark = pytest.mark.peer
mx = pytest.importorskip("mlx.core")
peers = pytest.importorskip("mlx_lm.models")

MakeModel = Callable[..., Transformer]
SCALING = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position": 32.0}


def load(peer: Any, weights: dict[str, np.ndarray]) -> None:
    """Strict: every weight of the peer is set, and none is left over."""
    peer.load_weights([(name, mx.array(np.asarray(value))) for name, value in weights.items()], strict=True)


def same_logits(model: Transformer, peer: Any, tokens: jax.Array) -> None:
    found = jax.jit(lambda tokens: model.logits(model.hidden(tokens)))(tokens)
    expected = np.array(peer(mx.array(np.asarray(tokens))))
    assert np.std(expected) > 0.1, "the comparison would be of nothing"
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


def matrix(weight: np.ndarray, inputs: int) -> np.ndarray:
    """[outputs, inputs] of a weight whose leading dimensions are its inputs, as the peers' linear layers hold it."""
    return weight.reshape(inputs, -1).T


def llama_weights(model: Transformer) -> dict[str, np.ndarray]:
    config, params = model.config, jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(model)))
    D, F, HC = config.d_model, config.d_ff, config.heads * config.head_dim
    weights = {
        "model.embed_tokens.weight": params["tokens"],
        "model.norm.weight": params["final_norm"]["scale"],
        "lm_head.weight": params["unembed"],
    }
    for i in range(config.layers):
        layer = jax.tree.map(lambda stack, i=i: stack[i], params["layers"])
        attention, mlp = layer["attention"], layer["mlp"]
        weights |= {
            f"model.layers.{i}.input_layernorm.weight": layer["attention_norm"]["scale"],
            f"model.layers.{i}.self_attn.q_proj.weight": matrix(attention["q"], D),
            f"model.layers.{i}.self_attn.k_proj.weight": matrix(attention["k"], D),
            f"model.layers.{i}.self_attn.v_proj.weight": matrix(attention["v"], D),
            f"model.layers.{i}.self_attn.o_proj.weight": matrix(attention["out"], HC),
            f"model.layers.{i}.post_attention_layernorm.weight": layer["mlp_norm"]["scale"],
            f"model.layers.{i}.mlp.gate_proj.weight": matrix(mlp["gate"], D),
            f"model.layers.{i}.mlp.up_proj.weight": matrix(mlp["up"], D),
            f"model.layers.{i}.mlp.down_proj.weight": matrix(mlp["down"], F),
        }
    return weights


def llama_peer(config: ModelConfig, scaling: dict[str, Any] | None = None) -> Any:
    from mlx_lm.models import llama

    return llama.Model(
        llama.ModelArgs(
            model_type="llama",
            hidden_size=config.d_model,
            num_hidden_layers=config.layers,
            intermediate_size=config.d_ff,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            head_dim=config.head_dim,
            rms_norm_eps=config.norm_eps,
            vocab_size=config.vocab,
            rope_theta=config.rope_theta,
            rope_scaling=scaling,
            tie_word_embeddings=False,
            sliding_window=config.sliding_window,
        )
    )


def test_llama_with_scaled_rope_and_grouped_queries(
    make_model: MakeModel, llama: ModelConfig, tokens: jax.Array
) -> None:
    """head_dim 16 and an original length of 32 put frequencies on both sides of the scaling and between."""
    model = make_model(dataclasses.replace(llama, head_dim=16, rope_theta=500.0, rope_scaling=SCALING))
    scaling = {"rope_type": "llama3", **SCALING}
    scaling["original_max_position_embeddings"] = scaling.pop("original_max_position")
    peer = llama_peer(model.config, scaling)
    load(peer, llama_weights(model))
    same_logits(model, peer, tokens)


def test_mistral_with_a_sliding_window(make_model: MakeModel, mistral: ModelConfig, tokens: jax.Array) -> None:
    model = make_model(mistral)
    peer = llama_peer(mistral)
    load(peer, llama_weights(model))
    peer.model.swa_idx = 0  # the peer builds mixed stacks only; Mistral slides in every layer
    for layer in peer.model.layers:
        layer.use_sliding = True
    same_logits(model, peer, tokens)


def test_gpt2(make_model: MakeModel, gpt2: ModelConfig, tokens: jax.Array) -> None:
    from mlx_lm.models import gpt2 as peers_gpt2

    model = make_model(gpt2)
    params = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(model)))
    D, F = gpt2.d_model, gpt2.d_ff
    weights = {
        "model.wte.weight": params["tokens"],
        "model.wpe.weight": params["positions"],
        "model.ln_f.weight": params["final_norm"]["scale"],
        "model.ln_f.bias": params["final_norm"]["bias"],
    }
    for i in range(gpt2.layers):
        layer = jax.tree.map(lambda stack, i=i: stack[i], params["layers"])
        attention, mlp = layer["attention"], layer["mlp"]
        weights |= {
            f"model.h.{i}.ln_1.weight": layer["attention_norm"]["scale"],
            f"model.h.{i}.ln_1.bias": layer["attention_norm"]["bias"],
            f"model.h.{i}.attn.c_attn.weight": np.concatenate([matrix(attention[name], D) for name in "qkv"]),
            f"model.h.{i}.attn.c_attn.bias": np.concatenate([attention[f"{name}_bias"].ravel() for name in "qkv"]),
            f"model.h.{i}.attn.c_proj.weight": matrix(attention["out"], D),
            f"model.h.{i}.attn.c_proj.bias": attention["out_bias"],
            f"model.h.{i}.ln_2.weight": layer["mlp_norm"]["scale"],
            f"model.h.{i}.ln_2.bias": layer["mlp_norm"]["bias"],
            f"model.h.{i}.mlp.c_fc.weight": matrix(mlp["up"], D),
            f"model.h.{i}.mlp.c_fc.bias": mlp["up_bias"],
            f"model.h.{i}.mlp.c_proj.weight": matrix(mlp["down"], F),
            f"model.h.{i}.mlp.c_proj.bias": mlp["down_bias"],
        }
    peer = peers_gpt2.Model(
        peers_gpt2.ModelArgs(
            model_type="gpt2",
            n_ctx=gpt2.learned_positions,
            n_embd=D,
            n_head=gpt2.heads,
            n_layer=gpt2.layers,
            n_positions=gpt2.learned_positions,
            layer_norm_epsilon=gpt2.norm_eps,
            vocab_size=gpt2.vocab,
        )
    )
    load(peer, weights)
    same_logits(model, peer, tokens)
