"""Which step each run of a program belongs to, where steps begin and end, and which of them are whole.

A *run* is one execution of one program on all its devices. Frames of runs have the columns ``program``, ``run``,
``start_ps`` (its first op on any device) and ``busy_ps`` (the time of all its ops).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from jaxprof.hlo.op_cost import ModuleCosts
from jaxprof.trace.timeline import STEPS

_RUN = ["program", "run"]


def assign_steps(
    runs: pl.DataFrame, annotations: pl.DataFrame, launches: pl.DataFrame
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Columns program, run, step; and notes. Runs outside every step (warm-up) are left out.

    ``annotations``: name, line, start_ps, end_ps of the host's step annotations. ``launches``: run (null where
    unknown), line, start_ps of the host's calls that started runs. A step is everything launched inside one annotation,
    however late it ran and however many programs it was. Runs of programs without launches are dealt out in order.
    Without annotations that hold work, a step is a run of the program with the most time, with the runs of those that
    ran in every step and of others until the next one.
    """
    runs = runs.sort("start_ps")
    annotations, notes = _holding_work(annotations.sort("start_ps"), launches)
    if annotations.is_empty():
        steps, more = _infer(runs)
        return steps, (*notes, *more)
    windows = _outermost(annotations)
    known = launches.drop_nulls("run").unique("run", keep="first")
    inside = known.join(windows, on="line").filter(_within(pl.col("start_ps"))).select("run", "step")
    exact = runs.join(inside, on="run").select(*_RUN, "step")
    # a program's other runs were launched before the trace began
    unknown = runs.join(runs.join(known, on="run").select("program"), on="program", how="anti")
    dealt, more = _deal_out(unknown, windows)
    steps = pl.concat([exact, dealt])
    left_out = runs.height - steps.height
    outside = (f"{left_out} runs outside the annotated steps left out (warm-up)",) if left_out else ()
    return steps, (*notes, *more, *outside)


def _within(time: pl.Expr) -> pl.Expr:
    return (time >= pl.col("window_start_ps")) & (time < pl.col("window_end_ps"))


def _windows(annotations: pl.DataFrame) -> pl.DataFrame:
    return annotations.select(
        "name", "line", pl.col("start_ps").alias("window_start_ps"), pl.col("end_ps").alias("window_end_ps")
    )


def _holding_work(annotations: pl.DataFrame, launches: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Annotations in which something was launched, and a note on the rest. All of them where no launch was recorded."""
    if launches.is_empty() or annotations.is_empty():
        return annotations, ()
    indexed = annotations.with_row_index("_at")
    held = (
        launches.select("line", pl.col("start_ps").alias("launch_ps"))
        .join(_windows(annotations).with_row_index("_at"), on="line")
        .filter(_within(pl.col("launch_ps")))["_at"]
        .unique()
    )
    empty = indexed.filter(~pl.col("_at").is_in(held.implode()))["name"].unique(maintain_order=True).to_list()
    notes = tuple(
        f"annotation '{name}' holds no execution and was not taken for a step: inside a jitted function it marks the "
        "tracing, which happens once"
        for name in empty
    )
    return indexed.filter(pl.col("_at").is_in(held.implode())).drop("_at"), notes


def _outermost(annotations: pl.DataFrame) -> pl.DataFrame:
    """Windows that stand in no other one of their thread, numbered in order of start as ``step``."""
    reached = pl.col("end_ps").cum_max().shift(1).over("line", order_by="start_ps")
    outer = annotations.filter(reached.is_null() | (pl.col("end_ps") > reached))
    return _windows(outer).with_row_index("step").with_columns(pl.col("step").cast(pl.Int32))


def _deal_out(runs: pl.DataFrame, windows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Steps of runs whose launch is unknown: equal shares in order, else by the window in which they began."""
    runs = runs.filter(pl.col("start_ps") >= windows["window_start_ps"].min())
    parts: list[pl.DataFrame] = [runs.select(*_RUN, pl.lit(0, pl.Int32).alias("step")).clear()]
    notes: list[str] = []
    for (program,), group in runs.group_by("program", maintain_order=True):
        if group.height % windows.height == 0:
            share = group.height // windows.height
            step = pl.int_range(pl.len(), dtype=pl.Int32) // share
        else:
            begun = windows["window_start_ps"].search_sorted(group["start_ps"], side="right") - 1
            step = pl.Series("step", begun).cast(pl.Int32)
            notes.append(
                f"{group.height} runs of {program} in {windows.height} annotated steps: each counted in the step in "
                "which it began"
            )
        parts.append(group.select(*_RUN, step.alias("step")))
    return pl.concat(parts), tuple(notes)


def _infer(runs: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    totals = runs.group_by("program").agg(pl.col("busy_ps").sum()).sort("busy_ps", "program", descending=[True, False])
    main = totals["program"][0]
    starts = runs.filter(pl.col("program") == main)["start_ps"]
    parts: list[pl.DataFrame] = []
    for _, group in runs.group_by("program", maintain_order=True):
        if group.height % len(starts) == 0:
            step = pl.int_range(pl.len(), dtype=pl.Int32) // (group.height // len(starts))
        else:
            step = pl.Series(starts.search_sorted(group["start_ps"], side="right")).cast(pl.Int32) - 1
        parts.append(group.select(*_RUN, step.alias("step")))
    steps = pl.concat(parts).filter(pl.col("step") >= 0)
    before = runs.height - steps.height
    return steps, (
        f"steps inferred: each run of {main} is one, as the trace has no step annotations",
        *((f"{before} runs of other programs before the first step left out",) if before else ()),
    )


def incomplete_steps(
    ops: pl.DataFrame, costs: Mapping[str, ModuleCosts], *, events_lost: bool
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Steps of which events are missing on some device, and notes.

    ``ops`` has one row per execution: device, step, program, run, op. Where a program's costs are known, a run on a
    device is whole if its ops ran as often as the compiled program says. Else it is compared with the fullest run where
    the profiler said that it lost events, and with half of the median where it did not, since loops may differ from
    step to step.
    """
    missing: dict[int, str] = {}
    notes: list[str] = []
    for (program,), group in ops.group_by("program", maintain_order=True):
        counted = _counted(group, costs.get(str(program)))
        exact = counted is not None
        rows = group if counted is None else group.join(counted, on="op")
        found = _counts(rows)
        if exact:
            expected = int(rows.unique("op")["executions"].sum())
        else:
            counts = found["found"].to_numpy()
            expected = int(counts.max() if events_lost else np.median(counts) / 2)
        short = found.filter(pl.col("found") < expected)
        if exact and short.height == found.height:
            notes.append(
                f"no run of {program} in the trace has the {expected} op executions that its compiled module has: "
                "the trace may be of another program"
            )
            continue
        for step, device, count in short.select("step", "device", "found").iter_rows():
            missing.setdefault(step, f"{count} of {expected} events of {program} on device {device}")
    if missing:
        lost = "; ".join(f"step {step}: {why}" for step, why in sorted(missing.items()))
        notes.append(f"incomplete steps left out ({lost})")
    return tuple(sorted(missing)), tuple(notes)


def _counted(group: pl.DataFrame, costs: ModuleCosts | None) -> pl.DataFrame | None:
    """Ops that have events and run a known number of times, with that number."""
    if costs is None:
        return None
    seen = set(group["op"].unique())
    known = [(cost.op, cost.executions.exact) for cost in costs.ops if cost.executions.exact and cost.op in seen]
    return pl.DataFrame(known, schema={"op": pl.String, "executions": pl.Int64}, orient="row") if known else None


def _counts(rows: pl.DataFrame) -> pl.DataFrame:
    """Executions ``found`` for each run on each device of its program, 0 where a device has none."""
    devices = rows.select("device").unique()
    every = rows.select("step", "run").unique().join(devices, how="cross")
    found = rows.group_by("step", "run", "device").agg(pl.len().cast(pl.Int64).alias("found"))
    return every.join(found, on=["step", "run", "device"], how="left").with_columns(pl.col("found").fill_null(0))


def step_table(starts: pl.DataFrame, rows: pl.DataFrame, left_out: Sequence[int]) -> pl.DataFrame:
    """STEPS of a timeline, sorted by device and start.

    ``starts``: device, step, start_ps of every step, the incomplete ones too, since the step before one ends with its
    start. ``rows``: device, step, end_ps of the intervals kept.
    """
    ends = rows.group_by("device", "step").agg(pl.col("end_ps").max().alias("last_ps"))
    return (
        starts.sort("device", "start_ps")
        .with_columns(pl.col("start_ps").shift(-1).over("device").alias("next_ps"))
        .join(ends, on=["device", "step"])
        .filter(~pl.col("step").is_in(list(left_out)))
        .with_columns(pl.coalesce("next_ps", "last_ps").alias("end_ps"))
        .with_columns(pl.min_horizontal("last_ps", "end_ps").alias("busy_end_ps"))
        .select(list(STEPS))
        .cast(STEPS)
        .sort("device", "start_ps")
    )
