"""From the ops of all devices to a timeline: the part that is the same whatever profiler wrote the trace."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from jaxprof.errors import UserError
from jaxprof.hlo.op_cost import ModuleCosts
from jaxprof.trace.intervals import Times, fill_gaps, gaps, self_pieces
from jaxprof.trace.steps import assign_steps, incomplete_steps, step_table
from jaxprof.trace.timeline import INTERVALS, Timeline
from jaxprof.trace.waiting import last_arrivals
from jaxprof.trace.xspace import Space

DISPATCH_PS = 1_000_000
"""A gap shorter than a microsecond is the executor going from one op to the next, not a kernel at work elsewhere."""


def assemble(
    ops: pl.DataFrame,
    costs: Mapping[str, ModuleCosts],
    *,
    annotations: pl.DataFrame,
    launches: pl.DataFrame,
    num_devices: int | None,
    one_at_a_time: bool,
    permute_joins_all: bool,
    events_lost: bool,
) -> Timeline:
    """The timeline of ``ops``, one row per execution:

    device (position in the mesh), program, run, op, start_ps, end_ps; ``latest_ps``, where the op goes on beyond its
    end, by when it has ended, else null; ``beside``, whether the profiler says that it runs beside the device's other
    ops.

    ``one_at_a_time`` where the device runs one op at a time, so that an op inside another one is its part. Else a
    collective that shares an instant with another op runs beside it. ``annotations`` and ``launches`` as for
    ``assign_steps``, ``permute_joins_all`` as for ``last_arrivals``. Raises UserError where no step is whole.
    """
    busy = pl.col("end_ps") - pl.col("start_ps")
    runs = ops.group_by("program", "run").agg(pl.col("start_ps").min(), busy.sum().alias("busy_ps"))
    steps, step_notes = assign_steps(runs, annotations, launches)
    missing = _missing_devices(ops, num_devices)
    ops = ops.join(steps, on=["program", "run"]).sort("device", "start_ps").with_row_index("execution")
    if ops.is_empty():
        raise UserError("no run in the trace lies in an annotated step; annotate the calls of the steps themselves")
    left_out, lost_notes = incomplete_steps(ops, costs, events_lost=events_lost)
    if len(left_out) == ops["step"].n_unique():
        raise UserError(f"every step of the trace lost events: {'; '.join(lost_notes)}; trace fewer steps")
    ops = ops.with_columns(last_arrivals(ops, costs, permute_joins_all=permute_joins_all).alias("arrived_ps"))
    starts = ops.group_by("device", "step").agg(pl.col("start_ps").min())
    if not one_at_a_time:
        ops = _collectives_beside(ops, costs)
    rows, overlap_notes = _in_their_windows(_rows(ops), starts)
    origin = rows["start_ps"].min()
    intervals = rows.filter(~pl.col("step").is_in(list(left_out))).with_columns(
        (pl.col("arrived_ps").fill_null(0) - pl.col("start_ps"))
        .clip(0, pl.col("end_ps") - pl.col("start_ps"))
        .alias("wait_ps"),
        _occurrence().alias("occurrence"),
    )
    return Timeline(
        evidence="measured",
        intervals=intervals.with_columns(pl.col("start_ps", "end_ps") - origin)
        .select(*INTERVALS, "occurrence")
        .cast(INTERVALS)
        .sort("device", "start_ps"),
        steps=step_table(starts, rows, left_out).with_columns(pl.col("start_ps", "end_ps", "busy_end_ps") - origin),
        notes=(*missing, *step_notes, *overlap_notes, *lost_notes),
    )


def step_annotations(host: pl.DataFrame) -> pl.DataFrame:
    return host.drop_nulls("step_num").select(
        pl.col("event").alias("name"), "line", "start_ps", (pl.col("start_ps") + pl.col("duration_ps")).alias("end_ps")
    )


def events_lost(space: Space) -> bool:
    """Whether the profiler says that it dropped events."""
    return any("drop" in remark.lower() for remark in space.remarks)


def _collectives_beside(ops: pl.DataFrame, costs: Mapping[str, ModuleCosts]) -> pl.DataFrame:
    """Marks collectives that share an instant with another op of their device."""
    names = [(program, cost.op) for program, module in costs.items() for cost in module.ops if cost.collective]
    collectives = pl.DataFrame(names, schema={"program": pl.String, "op": pl.String}, orient="row")
    parts = [
        device.with_columns(
            pl.Series("shared", _overlaps_another(device["start_ps"].to_numpy(), device["end_ps"].to_numpy()))
        )
        for _, device in ops.group_by("device", maintain_order=True)
    ]
    collective = pl.struct("program", "op").is_in(collectives.to_struct().implode())
    return pl.concat(parts).with_columns(beside=pl.col("beside") | (pl.col("shared") & collective)).drop("shared")


def _rows(ops: pl.DataFrame) -> pl.DataFrame:
    """One row per piece of self time, with ``stream``.

    What runs beside stands whole on the ``async`` stream. Ops that outlive their event also get the gaps up to their
    latest end: what ran in between has its own time, and more is not known.
    """
    parts: list[pl.DataFrame] = []
    for _, device in ops.group_by("device", maintain_order=True):
        start, end = device["start_ps"].to_numpy(), device["end_ps"].to_numpy()
        beside = device["beside"].to_numpy()
        stays = np.flatnonzero(~beside)
        index, piece_start, piece_end = self_pieces(start[stays], end[stays])
        hidden = np.setdiff1d(stays, stays[index])  # too short for the clock, or nothing left of them: still executions
        parts.append(_pieces(device, hidden, start[hidden], start[hidden], "ops"))
        parts.append(_pieces(device, stays[index], piece_start, piece_end, "ops"))
        aside = np.flatnonzero(beside)
        parts.append(_pieces(device, aside, start[aside], end[aside], "async"))
        late = np.flatnonzero(device["latest_ps"].is_not_null().to_numpy())
        gap_start, gap_end = gaps(start, end)
        wide = gap_end - gap_start > DISPATCH_PS
        latest = device["latest_ps"].fill_null(0).to_numpy()
        # nothing runs after the last op, so the tail of the device's last kernel is a gap too
        last = int(end.max(initial=0))
        gap_start, gap_end = np.append(gap_start[wide], last), np.append(gap_end[wide], max(last, int(latest.max())))
        index, piece_start, piece_end = fill_gaps(gap_start, gap_end, end[late], latest[late])
        parts.append(_pieces(device, late[index], piece_start, piece_end, "ops"))
    return pl.concat(parts)


def _overlaps_another(start: Times, end: Times) -> np.ndarray:
    """Whether each interval shares an instant with another one; both are in order of start."""
    reached = np.maximum.accumulate(end)
    earlier = np.zeros(len(start), bool)
    earlier[1:] = reached[:-1] > start[1:]
    later = np.zeros(len(start), bool)
    later[:-1] = start[1:] < end[:-1]
    return earlier | later


def _pieces(device: pl.DataFrame, index: np.ndarray, start: Times, end: Times, stream: str) -> pl.DataFrame:
    return device[index].with_columns(
        pl.Series("start_ps", start, dtype=pl.Int64),
        pl.Series("end_ps", end, dtype=pl.Int64),
        pl.lit(stream).alias("stream"),
    )


def _in_their_windows(rows: pl.DataFrame, starts: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Cuts rows where the next step begins on their device, so that each stands in the step whose time it takes.

    Steps that do not depend on each other overlap; what still runs of one when the next begins counts in the next.
    """
    parts: list[pl.DataFrame] = []
    for (device,), group in rows.group_by("device", maintain_order=True):
        mine = starts.filter(pl.col("device") == device).sort("start_ps")
        begins = mine["start_ps"].to_numpy()
        start, end = group["start_ps"].to_numpy(), group["end_ps"].to_numpy()
        first = np.searchsorted(begins, start, side="right") - 1
        last = np.maximum(np.searchsorted(begins, end, side="left") - 1, first)
        index = np.repeat(np.arange(len(start)), last - first + 1)
        window = np.concatenate([np.arange(a, b + 1) for a, b in zip(first, last, strict=True)] or [first])
        ends = np.append(begins[1:], np.iinfo(np.int64).max)
        parts.append(
            group[index].with_columns(
                pl.Series("start_ps", np.maximum(start[index], begins[window])),
                pl.Series("end_ps", np.minimum(end[index], ends[window])),
                mine["step"].gather(window),
                group["step"].gather(index).alias("launched_in"),
            )
        )
    cut = pl.concat(parts).with_columns(
        pl.col("step").sort_by("start_ps").first().over("device", "execution").alias("began_in")
    )
    late = cut.filter(pl.col("step") != pl.col("launched_in"))["execution"].n_unique()
    note = f"steps overlap: {late} ops ran on after the next step had begun, which that step's time holds"
    return cut, (note,) if late else ()


def _occurrence() -> pl.Expr:
    """Executions numbered in the step in which they began. What runs on into the next step adds none there."""
    number = pl.col("execution").rank("dense").over("device", "began_in", "program", "op") - 1
    return pl.when(pl.col("step") == pl.col("began_in")).then(number).otherwise(0).cast(pl.Int32)


def _missing_devices(ops: pl.DataFrame, num_devices: int | None) -> tuple[str, ...]:
    missing = sorted(set(range(num_devices or 0)) - set(ops["device"].to_list()))
    return (f"no events from devices {', '.join(map(str, missing))}",) if missing else ()
