"""Runs a compiled workload: first call apart, warm-up dropped, then untraced and traced windows in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax

from jaxprof.attribution.facts import Timing
from jaxprof.compile.executable import Executable
from jaxprof.config.schema import MeasureConfig
from jaxprof.errors import UserError
from jaxprof.measure.capture import Capture, Progress, TraceTimeout, trace
from jaxprof.workloads.workload import Workload

STEP_ANNOTATION = "step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Wall times of a workload and one trace of it."""

    timing: Timing
    xspace: bytes | None
    """The traced window whose step time is nearest the median; None where the profiler did not hand one over."""
    notes: tuple[str, ...] = ()


def measure(
    executable: Executable,
    workload: Workload,
    config: MeasureConfig,
    *,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.perf_counter,
    tracer: Callable[..., AbstractContextManager[Capture]] = trace,
) -> Measurement:
    """Times the workload and traces it.

    A window never synchronises inside: it begins when all earlier work is done and ends when every output of every step
    in it is. Arguments that are used up (a full KV cache) are replaced between windows, so a window is no longer than a
    round. An interrupt leaves no profiler session open.
    """
    if workload.make_arguments is None:
        raise UserError(
            f"the workload '{workload.facts.name}' has only abstract arguments and cannot run; compile it instead"
        )
    say = progress or (lambda message: None)
    caller = _Caller(executable.call, workload, workload.make_arguments)
    timed_steps = caller.fit(config.timed_steps)
    traced_steps = caller.fit(config.traced_steps)
    say("first call")
    first_call_s = caller.window(1, clock)
    if config.warmup_steps:
        say(f"warming up: {config.warmup_steps} steps")
        for _ in range(config.warmup_steps):
            caller.window(1, clock)
    untraced: list[float] = []
    traced: list[tuple[float, bytes]] = []
    traced_s: list[float] = []
    notes: list[str] = []
    for window in range(config.windows):
        say(f"window {window + 1} of {config.windows}: {timed_steps} untraced steps")
        untraced.append(caller.window(timed_steps, clock) / timed_steps)
        say(f"window {window + 1} of {config.windows}: {traced_steps} traced steps")
        try:
            with tracer(name=workload.facts.name, progress=progress) as capture:
                traced_s.append(caller.window(traced_steps, clock, annotate=True) / traced_steps)
        except TraceTimeout as error:
            notes.append(str(error))
            break
        traced.append((traced_s[-1], capture.xspace))
    return Measurement(
        timing=Timing(
            first_call_s=first_call_s,
            untraced_step_s=tuple(untraced),
            traced_step_s=tuple(traced_s),
            steps_per_window=timed_steps,
        ),
        xspace=_nearest_median(traced),
        notes=tuple(notes),
    )


class _Caller:
    """Calls the step again and again, each time with the arguments that follow from the last."""

    def __init__(
        self, call: Callable[..., Any], workload: Workload, make_arguments: Callable[[], tuple[Any, ...]]
    ) -> None:
        self._call = call
        self._make_arguments = make_arguments
        self._next = workload.next_arguments
        self._donated = frozenset(workload.donate_argnums) if workload.next_arguments is None else frozenset()
        self._round = workload.steps_per_round
        self._arguments = make_arguments()
        self._calls = 0

    def fit(self, steps: int) -> int:
        """As many of ``steps`` as one round has."""
        return max(1, steps if self._round is None else min(steps, self._round))

    def window(self, steps: int, clock: Callable[[], float], *, annotate: bool = False) -> float:
        """Seconds that ``steps`` calls take, from an idle device to the last output."""
        if self._round is not None and self._calls + steps > self._round:
            self._arguments, self._calls = self._make_arguments(), 0
        spare = [self._copies() for _ in range(steps)] if self._donated else []
        jax.block_until_ready((self._arguments, spare))
        witnesses: list[Any] = []
        outputs: Any = None
        began = clock()
        for step in range(steps):
            if annotate:
                with jax.profiler.StepTraceAnnotation(STEP_ANNOTATION, step_num=step):
                    outputs = self._step(spare)
            else:
                outputs = self._step(spare)
            witnesses.append(_witness(outputs))
        jax.block_until_ready((outputs, [w for w in witnesses if w is not None and not w.is_deleted()]))
        return clock() - began

    def _step(self, spare: list[tuple[Any, ...]]) -> Any:
        outputs = self._call(*(spare.pop() if spare else self._arguments))
        if self._next is not None:
            self._arguments = self._next(self._arguments, outputs)
        self._calls += 1
        return outputs

    def _copies(self) -> tuple[Any, ...]:
        """The arguments with those copied that a call donates and nothing replaces."""
        return tuple(
            jax.tree.map(jax.numpy.copy, argument) if number in self._donated else argument
            for number, argument in enumerate(self._arguments)
        )


def _witness(outputs: Any) -> jax.Array | None:
    """The smallest output of a call. All outputs of a call are ready together, so it stands for them without holding
    their memory; where the next call consumes it, that call waits in its place."""
    arrays = [leaf for leaf in jax.tree.leaves(outputs) if isinstance(leaf, jax.Array)]
    return min(arrays, key=lambda array: array.nbytes, default=None)


def _nearest_median(traced: Sequence[tuple[float, bytes]]) -> bytes | None:
    if not traced:
        return None
    middle = statistics.median(step_s for step_s, _ in traced)
    return min(traced, key=lambda window: abs(window[0] - middle))[1]
