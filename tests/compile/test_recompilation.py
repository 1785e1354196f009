"""Silent recompilation is counted, and the argument that causes it is named."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxprof.compile.recompilation import RecompilationWatch, explain_recompilation


def test_f4_scalar_of_changing_type() -> None:
    """Cache entries 1, 1, 2, 3, 4; the numpy scalar makes an entry and compiles nothing."""

    def scaled(x, s):
        return x * s

    x = jnp.ones(3)
    step = RecompilationWatch(jitted := jax.jit(scaled))
    sizes = []
    for s in (2.0, 3.0, jnp.float32(2), np.float64(2), 2):
        step(x, s)
        sizes.append(jitted._cache_size())
    assert sizes == [1, 1, 2, 3, 4]
    assert [(found.call, found.programs) for found in step.found] == [(1, 1), (3, 1), (4, 0), (5, 1)]
    first, array, scalar, integer = (found.reason for found in step.found)
    assert first == "first call"
    assert array == "s differs in kind, weak type: Python float weak f32[] before, array f32[] now"
    assert scalar.startswith("s differs in kind, dtype")
    assert integer.startswith("s differs in ")
    assert integer.endswith("Python int weak s32[] now")


def test_f4_a_new_function_on_each_call() -> None:
    step = RecompilationWatch(lambda y: jax.jit(lambda y: y + 1)(y))
    y = jnp.ones(3)
    for _ in range(5):
        step(y)
    assert sum(found.programs for found in step.found) == 5
    assert "new function is jitted on each call" in step.found[-1].reason


def test_f4_growing_shape() -> None:
    step = RecompilationWatch(jax.jit(lambda tokens: tokens * 2))
    for length in range(1, 9):
        step(np.ones((2, length), np.float32))
    assert sum(found.programs for found in step.found) == 8
    reason = step.found[-1].reason
    assert reason == "tokens differs in shape: numpy array f32[2,7] before, numpy array f32[2,8] now"


def test_f5_sharding_of_an_input_changes(mesh8: Mesh) -> None:
    step = RecompilationWatch(jitted := jax.jit(lambda y: y + 1))
    y = jnp.ones((8, 8))
    sizes = []
    for spec in (None, P(), P("x")):
        step(y if spec is None else jax.device_put(y, NamedSharding(mesh8, spec)))
        sizes.append(jitted._cache_size())
    assert sizes == [1, 2, 3]
    assert step.found[1].reason.startswith("y differs in sharding")
    assert "P('x',) over x=8 now" in step.found[2].reason.replace("PartitionSpec", "P")


def test_calls_are_explained_without_running_them() -> None:
    def step(state, n):
        return state

    calls = [({"w": np.ones(3)}, 1), ({"w": np.ones(3)}, 2), ({"w": np.ones(3), "b": np.ones(1)}, 1)]
    assert explain_recompilation(calls, step) == ["call 3: the structure of the arguments differs: state.b"]
