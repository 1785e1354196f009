"""What a timeline says of each op, and of each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import polars as pl

from jaxprof.attribution.breakdown import PS_PER_S, sweep
from jaxprof.attribution.join import join_names
from jaxprof.attribution.roofline import Price
from jaxprof.hlo.op_cost import ModuleCosts
from jaxprof.trace.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class OpMeasure:
    """One op in a timeline; times are seconds per step, the mean over devices and steps."""

    executions: Fraction
    """A step and device."""
    time_s: float
    """Self time, wait included: the union of its intervals."""
    time_max_s: float
    """Of the device on which the op takes longest."""
    own_s: float
    """The instants of the step breakdown that are this op's, wait left out: a collective's exposed transfer."""
    wait_s: float
    exposed_wait_s: float
    stream: str
    trace_names: tuple[str, ...] = ()
    """Names under which the timeline shows it, where they are not its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """A timeline joined with the module's costs."""

    ops: dict[tuple[str, str], OpMeasure]
    """By (program, op)."""
    breakdown: pl.DataFrame
    """As BREAKDOWN has it."""
    devices: int
    steps: int
    outside_s: float
    """Time in which something ran outside of all steps, summed over devices."""


def measure_ops(timeline: Timeline, costs: ModuleCosts, prices: Mapping[str, Price]) -> Measures:
    """Join ``timeline`` with ``costs`` and attribute every instant. Ops are known by name; those that the module does
    not have keep the name in the trace."""
    steps = timeline.steps
    joined = timeline.intervals.join(steps.select("device", "step"), on=["device", "step"], how="semi")
    joined = _with_instructions(joined, costs)
    kinds = pl.DataFrame(
        {"op": list(prices), "resource": [price.resource for price in prices.values()]},
        schema={"op": pl.String(), "resource": pl.String()},
    ).with_columns(program=pl.lit(costs.module))
    joined = joined.join(kinds, on=["program", "op"], how="left", maintain_order="left")
    joined = joined.with_columns(
        activity=pl.when(stream="host")
        .then(pl.lit("host"))
        .otherwise(pl.col("resource").fill_null("unknown").replace({"collective": "transfer", "control": None}))
    )
    swept = sweep(joined, steps)
    instances = steps.select("device", "step").n_unique()
    return Measures(
        ops=_per_op(swept.intervals, steps),
        breakdown=swept.breakdown(),
        devices=steps["device"].n_unique(),
        steps=instances // max(1, steps["device"].n_unique()),
        outside_s=swept.outside_ps / PS_PER_S,
    )


def _with_instructions(intervals: pl.DataFrame, costs: ModuleCosts) -> pl.DataFrame:
    """``op`` becomes the module's name for it; the trace's own stays in ``trace_op``."""
    names = intervals.filter(pl.col("program") == costs.module)["op"].unique()
    joined = join_names(names, costs.ops)
    mapping = pl.DataFrame(
        {"trace_op": list(joined), "instruction": list(joined.values())},
        schema={"trace_op": pl.String(), "instruction": pl.String()},
    ).with_columns(program=pl.lit(costs.module))
    return (
        intervals.rename({"op": "trace_op"})
        .join(mapping, on=["program", "trace_op"], how="left", maintain_order="left")
        .with_columns(op=pl.coalesce("instruction", "trace_op"))
        .drop("instruction")
    )


def _per_op(intervals: pl.DataFrame, steps: pl.DataFrame) -> dict[tuple[str, str], OpMeasure]:
    """Means over all steps and devices, those in which an op does not run among them."""
    op = ["program", "op"]
    instances = steps.select("device", "step").n_unique()
    before = pl.col("end_ps").cum_max().shift(1).over("device", *op)
    times = (
        intervals.sort("device", "start_ps")
        .with_columns(union_ps=(pl.col("end_ps") - pl.max_horizontal("start_ps", before)).clip(lower_bound=0))
        .group_by(*op, "device")
        .agg(pl.col("union_ps", "wait_ps", "main_ps", "waiting_ps").sum(), pl.col("stream").first())
        .join(steps.group_by("device").agg(steps=pl.len()), on="device")
        .with_columns(slowest_ps=pl.col("union_ps") / pl.col("steps"))
        .group_by(op)
        .agg(
            pl.col("union_ps", "wait_ps", "main_ps", "waiting_ps").sum() / instances,
            pl.col("slowest_ps").max(),
            pl.col("stream").first(),
        )
    )
    runs = (
        intervals.group_by(*op, "device", "step", "trace_op")
        .agg(runs=pl.col("occurrence").n_unique())
        .group_by(*op, "device", "step")
        .agg(pl.col("runs").max())  # several names for one execution of a fusion are one execution
        .group_by(op)
        .agg(pl.col("runs").sum())
    )
    names = intervals.group_by(op).agg(pl.col("trace_op").filter(pl.col("trace_op") != pl.col("op")).unique().sort())
    table = times.join(runs, on=op).join(names, on=op).sort(op)
    return {
        (row["program"], row["op"]): OpMeasure(
            executions=Fraction(row["runs"], instances),
            time_s=row["union_ps"] / PS_PER_S,
            time_max_s=row["slowest_ps"] / PS_PER_S,
            own_s=row["main_ps"] / PS_PER_S,
            wait_s=row["wait_ps"] / PS_PER_S,
            exposed_wait_s=row["waiting_ps"] / PS_PER_S,
            stream=row["stream"],
            trace_names=tuple(row["trace_op"]),
        )
        for row in table.iter_rows(named=True)
    }
