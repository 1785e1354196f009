"""Shardings that JAX refuses, and what to write instead."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxprof.compile.advice import indivisible
from jaxprof.compile.live import compile_function
from jaxprof.errors import UserError

S = jax.ShapeDtypeStruct
f32 = jnp.float32
VOCABULARY = "50257 % 8 = 1; pad to 50264 or 50304 (6,283 or 6,288 rows/device)"


def test_d2_vocabulary_that_does_not_divide_is_refused_before_compiling(mesh8: Mesh) -> None:
    table = S((50257, 64), f32, sharding=NamedSharding(mesh8, P("x", None)))
    with pytest.raises(UserError) as error:
        compile_function(lambda table: table + 1, table)
    assert VOCABULARY in str(error.value)


def test_d2_result_that_does_not_divide(mesh8: Mesh) -> None:
    sharded = jax.jit(lambda x: x + 1, out_shardings=NamedSharding(mesh8, P("x", None)))
    with pytest.raises(UserError) as error:
        compile_function(sharded, S((50257, 64), f32))
    assert VOCABULARY in str(error.value)


def test_advice_for_small_sizes_leaves_out_the_multiple_of_128() -> None:
    assert indivisible(10, 8) == "10 % 8 = 2; pad to 16 (2 rows/device)"


def test_d4_head_split_that_tensor_parallelism_does_not_divide() -> None:
    mesh = jax.make_mesh((2, 4), ("dp", "tp"))
    x = S((4, 8, 384), f32, sharding=NamedSharding(mesh, P("dp", None, "tp")))
    with pytest.raises(UserError) as error:
        compile_function(lambda x: x.reshape(4, 8, 3, 128), x)
    assert "3 heads not divisible by tp=4" in str(error.value)
    assert "out_sharding" in str(error.value)
    assert type(error.value.__cause__).__name__ == "ShardingTypeError"


def test_d4_head_split_that_divides_keeps_heads_on_tp() -> None:
    mesh = jax.make_mesh((2, 4), ("dp", "tp"))
    x = S((4, 8, 512), f32, sharding=NamedSharding(mesh, P("dp", None, "tp")))
    compiled = compile_function(lambda x: x.reshape(4, 8, 4, 128), x).compiled
    assert compiled.output_shardings.spec == P("dp", None, "tp", None)


def test_d5_explicit_and_auto_axes_both_compile() -> None:
    """``jax.make_mesh`` makes Explicit axes unless told otherwise; programs on either kind are read alike."""
    explicit = jax.make_mesh((8,), ("x",))
    assert explicit.axis_types == (jax.sharding.AxisType.Explicit,)
    auto = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    for mesh in (explicit, auto):
        program = compile_function(lambda x: x * 2, S((16,), f32, sharding=NamedSharding(mesh, P("x")))).program
        assert program.arguments[0].device_bytes == 8


def test_d5_contraction_that_explicit_axes_leave_open() -> None:
    mesh = jax.make_mesh((2, 4), ("dp", "tp"))
    x = S((4, 64), f32, sharding=NamedSharding(mesh, P(None, "tp")))
    w = S((64, 4), f32, sharding=NamedSharding(mesh, P("tp", None)))
    with pytest.raises(UserError, match="out_sharding"):
        compile_function(lambda x, w: x @ w, x, w)


def test_arguments_on_different_devices(mesh8: Mesh) -> None:
    half = Mesh(mesh8.devices[:4], ("x",))
    x, y = (S((8,), f32, sharding=NamedSharding(mesh, P("x"))) for mesh in (mesh8, half))
    with pytest.raises(UserError, match="one mesh"):
        compile_function(lambda x, y: x + y, x, y)


def test_abstract_mesh_names_the_devices_that_are_here() -> None:
    x = S((16,), f32, sharding=NamedSharding(AbstractMesh((16,), ("x",)), P("x")))
    with pytest.raises(UserError, match=r"of which 8 are here; .*xla_force_host_platform_device_count"):
        compile_function(lambda x: x + 1, x)


def test_bare_partition_spec_without_a_mesh() -> None:
    with pytest.raises(UserError, match="pass mesh="):
        compile_function(lambda x: jax.lax.with_sharding_constraint(x, P("x")), S((8,), f32))


def test_other_errors_pass_through() -> None:
    with pytest.raises(ZeroDivisionError):
        compile_function(lambda x: x / (1 // 0), S((8,), f32))
