"""What makes a run's figures doubtful: one line each, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from jaxprof.attribution.breakdown import whole_steps
from jaxprof.attribution.measures import Measures
from jaxprof.attribution.summary import Joined
from jaxprof.hlo.op_cost import ModuleCosts
from jaxprof.hlo.program import Program

_CLOSES = 0.005
"""The breakdown explains a step where no more than this fraction of its wall time is left over."""
_OUTLIER = 1.5
"""A step that takes this many times the median one is named."""
_OVERHEAD = 0.05


def doubts(joined: Joined, summary: dict[str, Any]) -> Iterator[str]:
    """Lines on utilisation, peaks, FLOPs, and on what the timeline leaves open."""
    yield from _utilisation(summary)
    yield from _peaks(joined)
    yield from _flops(joined)
    if joined.measures is not None:
        yield from _timeline(joined.measures, joined.program)
    overhead = summary["timing"]["tracing_overhead"]
    if overhead is not None and abs(overhead) > _OVERHEAD:
        yield (
            f"traced steps took {overhead:+.1%} against untraced ones: the step time is the untraced steps', the "
            "breakdown's shares are the traced ones'"
        )


def _utilisation(summary: dict[str, Any]) -> Iterator[str]:
    for name in ("mfu", "hfu"):
        value = summary[name]
        if value is not None and value > 1:
            yield (
                f"{name.upper()} is {value:.0%}, which cannot be: the timing did not wait for the outputs, or the peak "
                "is wrong"
            )


def _peaks(joined: Joined) -> Iterator[str]:
    device = joined.device
    if device is None:
        yield (
            f"no peak is known for device kind {joined.program.device_kind!r}: MFU, roofline and waterfall are "
            "unknown; name the device or give a peak"
        )
        return
    total = joined.work.total
    for dtype, flops in sorted(joined.work.by_dtype.items()):
        if flops and dtype not in device.peak_flops_per_s:
            yield (
                f"{device.name} has no peak for {dtype}, which {float(flops / total):.1%} of the FLOPs have: MFU, HFU "
                "and waterfall are unknown; give one"
            )


def _flops(joined: Joined) -> Iterator[str]:
    program = joined.program
    if is_replicated(joined.costs, program):
        yield (
            f"replicated compute: every argument stands whole on each of the {program.num_devices} devices and nothing "
            f"is exchanged, so each device repeats the same work ({program.num_devices}x)"
        )
    for name, flops in joined.found.differences:
        if name in ("not in the trace", "executed more often than compiled"):
            yield f"{abs(flops):,} FLOPs are {name}"


def is_replicated(costs: ModuleCosts, program: Program) -> bool:
    """Whether every device runs the same FLOPs on the same data: nothing sharded, exchanged or chosen by device."""
    if program.num_devices == 1 or not program.arguments or not any(cost.flops for cost in costs.ops):
        return False
    whole = all(argument.replicas == program.num_devices for argument in program.arguments)
    by_device = any(cost.collective or cost.opcode in ("partition-id", "replica-id") for cost in costs.ops)
    return whole and not by_device


def _timeline(measures: Measures, program: Program) -> Iterator[str]:
    breakdown = measures.breakdown
    if breakdown.is_empty():
        yield "the timeline has no steps: the breakdown is unknown"
        return
    wall = float(breakdown["wall_s"].sum())
    unexplained = float(breakdown["unexplained_s"].sum())
    if unexplained > _CLOSES * wall:
        yield f"{unexplained / wall:.1%} of the wall time goes to ops that the compiled module does not have"
    if measures.outside_s > _CLOSES * wall:
        yield (
            f"ops ran for {measures.outside_s:.3g} s outside of all steps (summed over devices): the breakdown leaves "
            "that out"
        )
    if measures.devices < program.num_devices:
        yield f"the timeline has {measures.devices} of {program.num_devices} devices: their mean stands for all"
    walls = whole_steps(breakdown).group_by("step").agg(pl.col("wall_s").max()).sort("step")
    usual = walls["wall_s"].median()
    for step, seconds in walls.iter_rows():
        if isinstance(usual, float) and seconds > _OUTLIER * usual:
            yield f"step {step} took {seconds:.3g} s against a median of {usual:.3g} s"
