"""``jaxprof.inspect``: any function, compiled and not run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxprof
from jaxprof.errors import UserError
from jaxprof.hlo.op_cost import DeclaredCost
from jaxprof.hlo.program import Owner

S = jax.ShapeDtypeStruct
f32 = jnp.float32


@pytest.fixture(autouse=True)
def no_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXPROF_CACHE_DIR", str(tmp_path))


def sharded(shape: tuple[int, ...], *spec, dtype=f32, **axes: int) -> jax.ShapeDtypeStruct:
    mesh = Mesh(np.array(jax.devices()).reshape(tuple(axes.values())), tuple(axes))
    return S(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def matmul(x, w):
    return x @ w


def test_importing_the_package_starts_nothing() -> None:
    code = "import sys, jaxprof; assert not {'jax', 'polars', 'flax'} & set(sys.modules), 'heavy'"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": ""})


def test_unknown_attribute_of_the_package() -> None:
    with pytest.raises(AttributeError, match="no attribute 'inspekt'"):
        jaxprof.inspekt  # noqa: B018


def test_a16_per_device_and_whole_job() -> None:
    report = jaxprof.inspect(matmul, sharded((1024, 512), "x", x=8), sharded((512, 256), x=8))
    assert report.ops["flops"].sum() == 33554432
    assert report.summary["flops"]["compiled"] == 268435456
    assert report.program.xla_cost is not None
    assert report.program.xla_cost["flops"] == 33554432
    assert not any("replicated" in warning for warning in report.warnings)


def test_a16_replicated_compute_is_warned_of() -> None:
    report = jaxprof.inspect(matmul, sharded((1024, 512), x=8), sharded((512, 256), x=8))
    assert report.ops["flops"].sum() == 268435456
    assert report.summary["flops"]["compiled"] == 2147483648
    assert any("replicated compute" in warning for warning in report.warnings)


def test_d6_reduce_scatter_is_an_all_reduce_on_the_cpu() -> None:
    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: ((x @ w) ** 2).sum())(w)

    w, x = sharded((512, 512), "x", None, x=8), sharded((64, 512), "x", None, x=8)
    report = jaxprof.inspect(jax.jit(step, out_shardings=w.sharding), w, x)
    rows = {row["op"]: row for row in report.summary["collectives"]}
    assert set(rows) == {"all-gather", "all-reduce"}
    assert [(row["executions"], row["payload_bytes"], row["mesh_axes"]) for row in rows.values()] == [
        (1, 1048576, ["x"]),
        (1, 1048576, ["x"]),
    ]
    assert any("reduce-scatter" in warning and "half the bytes" in warning for warning in report.warnings)


def test_d7_collective_promoted_by_the_cpu() -> None:
    x = sharded((64, 64), "dp", "tp", dtype=jnp.bfloat16, dp=2, tp=4)
    w = sharded((64, 64), "tp", None, dtype=jnp.bfloat16, dp=2, tp=4)
    report = jaxprof.inspect(matmul, x, w)
    (row,) = report.summary["collectives"]
    assert (row["op"], row["mesh_axes"], row["payload_bytes"]) == ("all-reduce", ["tp"], 8192)
    assert any("promoted from bf16" in warning for warning in report.warnings)


def test_findings_and_memory_are_in_the_report() -> None:
    report = jaxprof.inspect(lambda x: (x + 1).sum(0), S((1024, 1024), f32), donate_argnums=0)
    assert report.warnings[0].startswith("donated argument x (4,194,304 B) not reused")
    assert report.summary["memory"]["by_owner"] == {"other arguments": 4194304, "outputs": 4096}
    assert report.summary["memory"]["peak_bytes"] == 4198400
    assert report.timeline is None
    assert report.summary["evidence"] == "compiled"


def test_owners_can_be_given() -> None:
    def owner(path: str) -> Owner:
        return "batch" if path == "x" else "parameters"

    report = jaxprof.inspect(matmul, S((64, 64), f32), S((64, 64), f32), owners=owner)
    assert report.summary["memory"]["by_owner"]["batch"] == 16384
    assert report.summary["memory"]["by_owner"]["parameters"] == 16384


def test_a2_trip_count_can_be_given() -> None:
    def loop(n, x):
        return jax.lax.fori_loop(0, n, lambda _, c: c @ x, x)

    report = jaxprof.inspect(loop, S((), jnp.int32), S((64, 64), f32))
    (warning,) = (warning for warning in report.warnings if "trip count unknown" in warning)
    name = warning.split(":")[0]
    counted = jaxprof.inspect(loop, S((), jnp.int32), S((64, 64), f32), trip_counts={name: 10})
    assert counted.summary["flops"]["compiled"] == 5242880


def test_a5_cost_of_a_kernel_can_be_declared() -> None:
    def call(x):
        return jax.pure_callback(lambda a: a @ a, S((64, 64), f32), x)

    assert jaxprof.inspect(call, S((64, 64), f32)).ops.filter(pl.col("unknown").is_not_null()).height == 1
    declared = {"pure_callback": DeclaredCost(flops=524288)}
    assert jaxprof.inspect(call, S((64, 64), f32), declared=declared).summary["flops"]["compiled"] == 524288


def test_nnx_jitted_function_with_real_arguments() -> None:
    model = nnx.Linear(16, 32, rngs=nnx.Rngs(0))
    report = jaxprof.inspect(nnx.jit(lambda model, x: model(x)), model, jnp.ones((4, 16)))
    assert report.summary["flops"]["compiled"] == 2 * 4 * 16 * 32
    assert [argument.path for argument in report.program.arguments] == ["model.bias", "model.kernel", "x"]


def test_keyword_arguments_reach_the_function() -> None:
    report = jaxprof.inspect(lambda x, *, scale: x * scale, S((8,), f32), scale=2.0, name="scaled")
    assert report.summary["name"] == "scaled"
    assert [argument.path for argument in report.program.arguments] == ["x", "scale"]


def test_d2_error_is_the_users() -> None:
    with pytest.raises(UserError, match="pad to 50264 or 50304"):
        jaxprof.inspect(lambda table: table * 2, sharded((50257, 64), "x", None, x=8))


def test_report_saves_and_shows(tmp_path: Path) -> None:
    report = jaxprof.inspect(matmul, S((64, 64), f32), S((64, 64), f32))
    report.show()
    assert (report.save(tmp_path / "run") / "run.json").exists()
