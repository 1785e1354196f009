"""Published cases compiled for real: from a function to the summary."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxprof.attribution.analysis import Analysis, analyze
from jaxprof.attribution.facts import ModelFacts
from jaxprof.compile.live import compile_function
from jaxprof.hlo.buffers import memory_by_owner
from jaxprof.hlo.costs import module_costs
from jaxprof.hlo.module import parse_module


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:8]), ("x",))


@pytest.fixture
def inspect(build: ModuleType) -> Callable[..., Analysis]:
    def run(
        function: Callable[..., Any], *args: Any, mesh: Mesh | None = None, model: ModelFacts | None = None
    ) -> Analysis:
        program = compile_function(function, *args, mesh=mesh).program
        costs = module_costs(parse_module(program.hlo_module), program.mesh)
        memory = memory_by_owner(program)
        return analyze(program, costs, device=build.SPEC, facts=build.facts(model), memory=memory)

    return run


def f32(*shape: int, sharding: NamedSharding | None = None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


def test_a16_rows_sharded_over_eight_devices(inspect: Callable[..., Analysis], mesh: Mesh) -> None:
    rows, whole = NamedSharding(mesh, P("x", None)), NamedSharding(mesh, P())
    found = inspect(jnp.matmul, f32(1024, 512, sharding=rows), f32(512, 256, sharding=whole), mesh=mesh)
    assert found.summary["flops"]["compiled"] == 268_435_456
    assert found.ops["flops"].sum() == 33_554_432
    assert not any("replicated compute" in warning for warning in found.warnings)


def test_a16_nothing_sharded_repeats_the_work(inspect: Callable[..., Analysis], mesh: Mesh) -> None:
    whole = NamedSharding(mesh, P())
    found = inspect(jnp.matmul, f32(1024, 512, sharding=whole), f32(512, 256, sharding=whole), mesh=mesh)
    assert found.summary["flops"]["compiled"] == 2_147_483_648
    assert any("replicated compute" in warning for warning in found.warnings)


def test_replicated_arguments_that_the_program_itself_shards_do_no_work_twice(
    inspect: Callable[..., Analysis], mesh: Mesh
) -> None:
    rows, whole = NamedSharding(mesh, P("x", None)), NamedSharding(mesh, P())

    def function(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.with_sharding_constraint(jax.lax.with_sharding_constraint(x, rows) @ w, rows)

    found = inspect(function, f32(1024, 512, sharding=whole), f32(512, 256, sharding=whole), mesh=mesh)
    assert found.summary["flops"]["compiled"] == 268_435_456
    assert not any("replicated compute" in warning for warning in found.warnings)


def layers(checkpoint: bool) -> Callable[..., Any]:
    def body(x: jax.Array, w: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]), None

    def loss(weights: tuple[jax.Array, jax.Array], x: jax.Array) -> jax.Array:
        return jnp.sum(jax.lax.scan(jax.checkpoint(body) if checkpoint else body, x, weights)[0])

    return jax.grad(loss)


@pytest.mark.parametrize(
    ("checkpoint", "compiled", "differences"),
    [(False, 25_165_824, {}), (True, 33_554_432, {"recompute": 8_388_608})],
)
def test_b15_remat_is_recompute_and_not_the_models(
    inspect: Callable[..., Analysis], build: ModuleType, checkpoint: bool, compiled: int, differences: dict[str, int]
) -> None:
    weights = (f32(4, 64, 256), f32(4, 256, 64))
    found = inspect(layers(checkpoint), weights, f32(32, 64), model=build.model(25_165_824))
    assert found.summary["flops"]["compiled"] == compiled
    assert found.summary["flops"]["differences_flops"] == differences


def test_b11_a_step_is_all_its_micro_batches(inspect: Callable[..., Analysis]) -> None:
    def step(w: jax.Array, xs: jax.Array) -> jax.Array:
        def one(total: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
            return total + jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w), None

        return jax.lax.scan(one, jnp.zeros_like(w), xs)[0]

    found = inspect(step, f32(64, 64), f32(4, 32, 64))
    assert found.summary["flops"]["compiled"] == 2_097_152


def test_a13_dense_attention_runs_the_masked_positions_too(inspect: Callable[..., Analysis], build: ModuleType) -> None:
    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -jnp.inf)), v)

    model = build.model(16_908_288, 33_554_432)
    found = inspect(attention, *(f32(2, 128, 4, 64) for _ in range(3)), model=model)
    flops = found.summary["flops"]
    assert (flops["model_causal"], flops["model_full"], flops["compiled"]) == (16_908_288, 33_554_432, 33_554_432)
    assert flops["differences_flops"] == {"masked attention": 16_646_144}


def test_a1_xlas_count_stands_beside_ours_with_the_reason(inspect: Callable[..., Analysis]) -> None:
    def scan(x: jax.Array, weights: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, w: (c @ w, None), x, weights)[0]

    found = inspect(scan, f32(64, 64), f32(8, 64, 64))
    assert found.summary["flops"]["compiled"] == 4_194_304
    row = found.summary["xla"][0]
    assert row["xla"] == 524_290
    assert row["reason"].startswith("XLA counts a loop's body once")


def test_c3_the_peak_field_that_leaves_temporaries_out(inspect: Callable[..., Analysis]) -> None:
    found = inspect(jax.jit(lambda x: (x + 1).T, donate_argnums=0), f32(1024, 1024)).summary
    assert found["memory"]["peak_bytes"] == pytest.approx(8_388_608, abs=1024)
    rows = {row["figure"]: row for row in found["xla"]}
    assert rows["arguments + outputs - aliases + temporaries"]["xla"] == 8_388_608
    assert rows["XLA's peak field"]["xla"] == 4_194_304
    assert rows["XLA's peak field"]["reason"] == "XLA's peak field leaves temporaries out here"
