"""Small runs on eight simulated devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from jaxprof.config.schema import MeshConfig, ModelConfig, OptimizerConfig, RunConfig, StepConfig
from jaxprof.workloads.workload import Workload

MODEL = ModelConfig(
    name="small", d_model=32, layers=2, heads=8, kv_heads=2, head_dim=8, d_ff=48, vocab=130, dtype="float32"
)
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 6},
    "gpt2": {
        "kv_heads": 8,
        "mlp": "gelu",
        "norm": "layernorm",
        "position": "learned",
        "learned_positions": 64,
        "attention_bias": True,
        "mlp_bias": True,
        "tied_output": True,
    },
}
MESH = MeshConfig(data=2, fsdp=2, tensor=2)


def run_config(
    kind: str,
    family: str = "llama",
    *,
    mesh: MeshConfig = MESH,
    model: dict[str, Any] | None = None,
    optimizer: dict[str, Any] | None = None,
    **step: Any,
) -> RunConfig:
    sizes: dict[str, Any] = {
        "train": {"batch": 8, "seq_len": 16},
        "prefill": {"batch": 8, "seq_len": 12, "cache_dtype": "float32"},
        "decode": {"batch": 8, "context": 24, "prompt": 12, "new_tokens": 4, "cache_dtype": "float32"},
    }[kind]
    return RunConfig(
        name=f"small-{kind}",
        model=dataclasses.replace(MODEL, **FAMILIES[family], **(model or {})),
        step=StepConfig(kind=kind, **sizes | step),  # type: ignore[arg-type]
        mesh=mesh,
        optimizer=OptimizerConfig(**(optimizer or {})),
    )


@pytest.fixture(scope="session")
def make_config() -> Callable[..., RunConfig]:
    """``make_config(kind, family, mesh=, model=, optimizer=, **step)``."""
    return run_config


@pytest.fixture(scope="session")
def compiled() -> Callable[[Workload], Any]:
    """The workload's function as a profiler compiles it: once, for its abstract arguments."""

    def compile_(workload: Workload) -> Any:
        jitted = jax.jit(
            workload.function, donate_argnums=workload.donate_argnums, out_shardings=workload.out_shardings
        )
        return jitted.lower(*workload.arguments).compile()

    return compile_


@pytest.fixture(scope="session")
def random_values() -> Callable[[Any], Any]:
    """Values for abstract arrays, laid out as they say. Drawn on the host, because compiling initial values is slow."""

    def draw(abstract: Any) -> Any:
        random = np.random.default_rng(0)

        def one(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> jax.Array:
            centre = 1.0 if path[-1].key == "scale" else 0.0
            return jax.device_put(random.normal(centre, 0.2, leaf.shape).astype(leaf.dtype), leaf.sharding)

        return jax.tree_util.tree_map_with_path(one, abstract)

    return draw
