"""How a workload is run and timed. The clock is injected, so times are exact."""

from __future__ import annotations

import itertools
import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxprof.attribution.facts import StepFacts
from jaxprof.config.schema import MeasureConfig
from jaxprof.errors import UserError
from jaxprof.measure import run
from jaxprof.measure.capture import Capture, TraceTimeout, trace
from jaxprof.measure.run import measure
from jaxprof.trace.read import read_timeline
from jaxprof.workloads.workload import Workload


class Clock:
    """Time passes only when a call says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _workload(**fields: Any) -> Workload:
    defaults: dict[str, Any] = {
        "facts": StepFacts(name="w", step="function"),
        "function": lambda x: x,
        "arguments": (),
        "owners": lambda path: "parameters",
        "make_arguments": lambda: (0,),
    }
    return Workload(**{**defaults, **fields})


def _config(**fields: int) -> MeasureConfig:
    return MeasureConfig(**{"warmup_steps": 1, "timed_steps": 2, "traced_steps": 1, "windows": 1, **fields})


def _fake_tracer(clock: Clock | None = None):
    traces = itertools.count()

    @contextmanager
    def tracer(*, name: str, progress: Any):
        captured = Capture()
        yield captured
        captured.xspace = b"trace %d" % next(traces)

    return tracer


def _taking(clock: Clock, seconds: list[float]):
    left = iter(seconds)

    def call(*arguments: Any) -> Any:
        clock.now += next(left)
        return arguments[0]

    return SimpleNamespace(call=call)


def test_b13_the_first_call_and_warm_up_stay_out_of_the_step_time():
    """Steps of [21.5, 0.1, ...]: steady state 0.1 s, the first call apart, never the mean of 4.38 s."""
    clock = Clock()
    executable = _taking(clock, [21.5, 0.9] + [0.10] * 3)
    found = measure(executable, _workload(), _config(), clock=clock, tracer=_fake_tracer()).timing
    assert found.first_call_s == 21.5
    assert found.step_time_s == pytest.approx(0.10) and found.traced_step_s == (pytest.approx(0.10),)


def test_windows_alternate_and_the_trace_nearest_the_median_is_kept():
    clock = Clock()
    executable = _taking(clock, [1, 1, 10, 10, 12, 11, 11, 19, 12, 12, 14])
    found = measure(executable, _workload(), _config(windows=3), clock=clock, tracer=_fake_tracer())
    assert found.timing.untraced_step_s == (10, 11, 12) and found.timing.step_time_s == 11
    assert found.timing.traced_step_s == (12, 19, 14)
    assert found.xspace == b"trace 2"


def test_b14_the_clock_stops_only_when_every_output_is_ready():
    """Timing only the calls of a@a@a measures the enqueue; a window lasts at least as long as its steps' work."""
    a = jnp.ones((700, 700))
    compiled = jax.jit(lambda a: a @ a @ a @ a @ a @ a).lower(a).compile()
    compiled(a).block_until_ready()
    waited: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        compiled(a).block_until_ready()
        waited.append(time.perf_counter() - began)
    workload = _workload(arguments=(a,), make_arguments=lambda: (a,))
    timing = measure(SimpleNamespace(call=compiled), workload, _config(timed_steps=8), tracer=_fake_tracer()).timing
    assert timing.step_time_s > 0.3 * min(waited)  # independent steps overlap on two cores


def test_b14_outputs_of_earlier_steps_are_waited_for_too(monkeypatch):
    seen: list[Any] = []
    monkeypatch.setattr(run.jax, "block_until_ready", lambda tree: seen.append(tree) or tree)
    made: list[Any] = []

    def call(x: Any) -> Any:
        made.append((jnp.zeros(3), jnp.zeros(())))
        return made[-1]

    measure(SimpleNamespace(call=call), _workload(), _config(timed_steps=3), tracer=_fake_tracer())
    outputs, witnesses = seen[5]  # first call and warm-up: a wait before and one after each; then the timed window
    assert outputs is made[4]
    assert [w is pair[1] for w, pair in zip(witnesses, made[2:5], strict=True)] == [True] * 3


def test_c6_donated_arguments_are_copied_where_nothing_replaces_them():
    x = jnp.arange(4.0)
    compiled = jax.jit(lambda x: x + 1, donate_argnums=0).lower(x).compile()
    made: list[int] = []

    def make() -> tuple[Any, ...]:
        made.append(1)
        return (jnp.arange(4.0),)

    workload = _workload(donate_argnums=(0,), make_arguments=make)
    measure(SimpleNamespace(call=compiled), workload, _config(timed_steps=3), tracer=_fake_tracer())
    assert len(made) == 1


def test_outputs_become_the_next_arguments():
    seen: list[int] = []

    def call(x: int) -> int:
        seen.append(x)
        return x + 1

    workload = _workload(next_arguments=lambda arguments, outputs: (outputs,))
    measure(SimpleNamespace(call=call), workload, _config(), tracer=_fake_tracer())
    assert seen == [0, 1, 2, 3, 4]


def test_a_window_is_no_longer_than_a_round_and_begins_with_fresh_arguments_when_it_must():
    """A cache with room for 5 calls: first call and 1 of warm-up, then windows of 4 -> fresh, fresh."""
    seen: list[int] = []

    def call(x: int) -> int:
        seen.append(x)
        return x + 1

    workload = _workload(next_arguments=lambda arguments, outputs: (outputs,), steps_per_round=5)
    timing = measure(
        SimpleNamespace(call=call), workload, _config(timed_steps=9, traced_steps=4), tracer=_fake_tracer()
    ).timing
    assert seen == [0, 1, 0, 1, 2, 3, 4, 0, 1, 2, 3]
    assert timing.steps_per_window == 5


def test_abstract_arguments_cannot_be_run():
    with pytest.raises(UserError, match="only abstract arguments"):
        measure(SimpleNamespace(call=None), _workload(make_arguments=None), _config())


def test_e7_without_a_trace_the_times_still_stand():
    @contextmanager
    def stuck(*, name: str, progress: Any):
        yield Capture()
        raise TraceTimeout("the profiler has not handed over its trace after 600 s")

    found = measure(SimpleNamespace(call=lambda x: x), _workload(), _config(windows=2), tracer=stuck)
    assert found.xspace is None and len(found.timing.untraced_step_s) == 1
    assert found.notes == ("the profiler has not handed over its trace after 600 s",)


def test_an_interrupt_leaves_no_session_open():
    calls = itertools.count()

    def call(x: Any) -> Any:
        if next(calls) == 4:
            raise KeyboardInterrupt
        return x

    with pytest.raises(KeyboardInterrupt):
        measure(SimpleNamespace(call=call), _workload(), _config())
    with trace() as taken:
        pass
    assert taken.xspace


def test_a_measured_window_reads_back_with_its_steps():
    x = jnp.ones((64, 64)) / 64
    compiled = jax.jit(lambda x: jnp.tanh(x @ x), donate_argnums=0).lower(x).compile()
    workload = _workload(
        make_arguments=lambda: (jnp.ones((64, 64)) / 64,), next_arguments=lambda a, o: (o,), donate_argnums=(0,)
    )
    found = measure(SimpleNamespace(call=compiled), workload, _config(traced_steps=3))
    timeline = read_timeline(found.xspace or b"", {})
    assert timeline.steps["step"].to_list() == [0, 1, 2] and timeline.notes == ()
    assert len(found.timing.traced_step_s) == 1


def test_f7_host_time_of_a_module_falls_as_its_traversal_is_taken_out():
    """24 Linear blocks: nnx.jit traverses the module at each call, a split state is flattened, flat leaves are not."""

    class Blocks(nnx.Module):
        def __init__(self) -> None:
            self.blocks = nnx.List([nnx.Linear(16, 16, rngs=nnx.Rngs(i)) for i in range(24)])

        def __call__(self, x: jax.Array) -> jax.Array:
            for block in self.blocks:
                x = block(x)
            return x

    model, x = Blocks(), jnp.ones((4, 16))
    graph, state = nnx.split(model)
    leaves, tree = jax.tree.flatten(state)
    whole = nnx.jit(lambda model, x: model(x))
    split = jax.jit(lambda state, x: nnx.merge(graph, state)(x))
    flat = jax.jit(lambda leaves, x: nnx.merge(graph, jax.tree.unflatten(tree, leaves))(x)).lower(leaves, x).compile()
    times = [_step_time(f, a, x) for f, a in ((whole, model), (split, state), (flat, leaves))]
    assert times[0] > 5 * times[1] > 5 * 0.5 * times[2]


def _step_time(function: Any, *arguments: Any) -> float:
    workload = _workload(make_arguments=lambda: arguments)
    config = _config(timed_steps=30, windows=3)
    return measure(SimpleNamespace(call=function), workload, config, tracer=_fake_tracer()).timing.step_time_s


def test_numpy_outputs_need_no_witness():
    measure(SimpleNamespace(call=lambda x: np.ones(2)), _workload(), _config(), tracer=_fake_tracer())
