"""What the compiler says on standard error, and whether it or a cache made the program."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxprof.compile.diagnostics import watch_compilation
from jaxprof.compile.live import compile_function

S = jax.ShapeDtypeStruct
f32 = jnp.float32


def test_d1_message_of_the_partitioner_is_captured(capfd: pytest.CaptureFixture[str]) -> None:
    mesh = Mesh(jax.make_mesh((2, 4), ("a", "b")).devices, ("a", "b"))
    target = NamedSharding(mesh, P(None, ("a", "b"), None))
    x = S((8, 32, 24), f32, sharding=NamedSharding(mesh, P("b", None, "a")))
    program = compile_function(lambda x: jax.lax.with_sharding_constraint(x * 2, target) + 1, x).program
    assert len(program.diagnostics) == 1
    assert "Involuntary full rematerialization" in program.diagnostics[0]
    assert capfd.readouterr().err == ""


def test_lines_that_are_not_the_compilers_are_written_again(capfd: pytest.CaptureFixture[str]) -> None:
    with watch_compilation() as compilation:
        os.write(2, b"W1201 15:48:34.769932   21970 spmd_partitioner.cc:656] from C++\nsomebody else\n")
    assert compilation.diagnostics == ["W1201 15:48:34.769932   21970 spmd_partitioner.cc:656] from C++"]
    assert capfd.readouterr().err == "somebody else\n"


def test_standard_error_is_back_after_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError), watch_compilation():
        os.write(2, b"said before it failed\n")
        raise RuntimeError
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "said before it failed\nafter\n"


def test_c4_jaxs_warning_on_donation_is_left_to_the_finding() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile_function(lambda x: (x + 1).sum(0), S((64, 64), f32), donate_argnums=0)


def test_f3_second_compile_is_a_cache_hit_with_equal_figures(tmp_path: Path) -> None:
    old = {name: getattr(jax.config, name) for name in CACHE}
    jax.clear_caches()
    try:
        for name, value in {**CACHE, "jax_compilation_cache_dir": str(tmp_path)}.items():
            jax.config.update(name, value)
        _reset_cache()
        first = compile_function(_square, S((64, 64), f32)).program
        jax.clear_caches()
        second = compile_function(_square, S((64, 64), f32)).program
    finally:
        for name, value in old.items():
            jax.config.update(name, value)
        _reset_cache()
    assert (first.compile_cached, second.compile_cached) == (False, True)
    assert first.xla_cost is not None
    assert second.xla_cost is not None
    assert first.xla_cost["flops"] == second.xla_cost["flops"] == 524288
    assert first.memory == second.memory
    assert first.buffer_assignment == second.buffer_assignment


def test_program_from_jaxs_memory_is_marked_cached() -> None:
    jitted = jax.jit(_square)
    shape = S((48, 48), f32)
    assert [compile_function(jitted, shape).program.compile_cached for _ in range(2)] == [False, True]


CACHE = {
    "jax_compilation_cache_dir": None,
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def _square(x: jax.Array) -> jax.Array:
    return x @ x


def _reset_cache() -> None:
    """JAX opens its cache once in a process; after this it looks at the configuration again."""
    from jax.experimental.compilation_cache import compilation_cache

    compilation_cache.reset_cache()
