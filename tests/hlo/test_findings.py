"""Findings: one line each, with bytes and the line of the program."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxprof.compile.live import compile_function
from jaxprof.hlo.costs import module_costs
from jaxprof.hlo.findings import findings
from jaxprof.hlo.module import parse_module

S = jax.ShapeDtypeStruct
f32 = jnp.float32
SQUARE = S((1024, 1024), f32)


def found(function, *args, **options) -> tuple[str, ...]:
    program = compile_function(function, *args, **options).program
    module = parse_module(program.hlo_module)
    return findings(program, module, module_costs(module, program.mesh))


def sharded(shape: tuple[int, ...], *spec, dtype=f32, **axes: int) -> jax.ShapeDtypeStruct:
    mesh = Mesh(np.array(jax.devices()).reshape(tuple(axes.values())), tuple(axes))
    return S(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def test_nothing_is_found_in_a_sound_program() -> None:
    assert found(lambda x: x + 1, SQUARE, donate_argnums=0) == ()


def test_c4_donation_refused() -> None:
    assert found(lambda x: (x + 1).sum(0), SQUARE, donate_argnums=0) == (
        "donated argument x (4,194,304 B) not reused: no output of the same shape",
    )


def test_c4_second_of_two_donated_arguments() -> None:
    (line,) = found(lambda x, y: x + y, SQUARE, SQUARE, donate_argnums=(0, 1))
    assert line.startswith("donated argument y (4,194,304 B) not reused: every output of its shape")


def test_c5_donation_refused_for_its_sharding() -> None:
    x = sharded((1024, 1024), x=8)
    function = jax.jit(lambda x: x + 1, donate_argnums=0, out_shardings=NamedSharding(x.sharding.mesh, P("x")))
    assert found(function, x) == (
        "donated argument x (4,194,304 B) not reused: no output of the same shape on a device (f32[1024,1024] there)",
    )


def test_c7_argument_dropped() -> None:
    (line,) = found(lambda x, y: x + 1, SQUARE, SQUARE)
    assert line.startswith("1 argument dropped (4,194,304 B): y")


def test_c8_captured_constant_is_named_with_its_line() -> None:
    big = np.random.default_rng(0).random((1024, 1024), np.float32)
    (line,) = found(lambda x: x @ big, SQUARE)
    assert line.startswith("constant ")
    assert "f32[1024,1024] (4,194,304 B)" in line
    assert "test_findings.py:" in line


def test_c12_state_that_nobody_donated() -> None:
    cache, x = S((4, 2, 2, 256, 4, 32), jnp.bfloat16), S((1, 2, 2, 1, 4, 32), jnp.bfloat16)

    def decode(cache, x):
        return jax.lax.dynamic_update_slice(cache, x, (0, 0, 0, 5, 0, 0))

    assert found(decode, cache, x) == (
        "argument cache (1,048,576 B) not donated, though outputs have the same shapes: "
        "donating would save 1,048,576 B on each device",
    )
    assert found(decode, cache, x, donate_argnums=0) == ()


def test_cache_through_scan_is_held_twice_though_donated() -> None:
    def decode(cache, x):
        def layer(x, cache):
            return x, jax.lax.dynamic_update_slice(cache, x, (0, 5, 0))

        return jax.lax.scan(layer, x, cache)

    (line,) = found(decode, S((4, 2, 256, 128), f32), S((2, 1, 128), f32), donate_argnums=0)
    assert line.startswith("KV cache in cache (1,048,576 B) is held twice")
    assert "test_findings.py:" in line


def test_d1_full_rematerialisation_has_size_and_line() -> None:
    x = sharded((8, 32, 24), "b", None, "a", a=2, b=4)
    target = NamedSharding(x.sharding.mesh, P(None, ("a", "b"), None))
    (line,) = found(lambda x: jax.lax.with_sharding_constraint(x * 2, target) + 1, x)
    assert line.startswith("full rematerialisation of x: ")
    assert "f32[8,32,24] (24,576 B) on each device" in line
    assert "test_findings.py:" in line


def test_d1_gathers_of_the_full_rematerialisation() -> None:
    """Two all-gathers: the second makes the whole array."""
    x = sharded((8, 32, 24), "b", None, "a", a=2, b=4)
    target = NamedSharding(x.sharding.mesh, P(None, ("a", "b"), None))
    program = compile_function(lambda x: jax.lax.with_sharding_constraint(x * 2, target) + 1, x).program
    costs = module_costs(parse_module(program.hlo_module), program.mesh)
    gathers = [op for op in costs.ops if op.collective == "all-gather"]
    assert [op.payload_bytes for op in gathers] == [2 * 32 * 24 * 4, 24576]


def test_d3_uneven_constraint_is_padded() -> None:
    mesh = Mesh(np.array(jax.devices()), ("x",))
    (line,) = found(
        lambda x: jax.lax.with_sharding_constraint(x + 1, NamedSharding(mesh, P("x"))) * 2, S((50257,), f32)
    )
    assert "f32[50257] is padded to f32[50264] to be cut in 8 (f32[6283] each)" in line
    assert "7 elements (0.014 %)" in line
    assert "test_findings.py:" in line


def test_padding_by_the_user_is_not_the_partitioners() -> None:
    def shift(x, start):
        return jax.lax.dynamic_slice(jnp.pad(x, (0, 7)), (start,), (100,))

    assert found(shift, S((193,), f32), S((), jnp.int32)) == ()


def test_d13_parameters_left_replicated() -> None:
    params = {"A": sharded((1024, 1024), "x", None, x=8), "B": sharded((1024, 1024), x=8)}
    lines = found(lambda params, x: x @ params["A"] + x @ params["B"], params, sharded((8, 1024), x=8))
    assert "50 % of parameter bytes replicated (params.B, 4,194,304 B on each of 8)" in lines


def test_d13_small_scales_may_be_replicated() -> None:
    params = {"w": sharded((1024, 1024), "x", None, x=8), "scale": sharded((1024,), x=8)}
    assert found(lambda params, x: x @ params["w"] * params["scale"], params, sharded((8, 1024), x=8)) == ()


def test_findings_of_a_program_without_diagnostics_or_arguments() -> None:
    program = compile_function(lambda: jnp.ones(3)).program
    module = parse_module(program.hlo_module)
    bare = dataclasses.replace(program, arguments=(), diagnostics=("something else",))
    assert findings(bare, module, module_costs(module)) == ()
