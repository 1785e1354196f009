"""Traces of a CPU mesh: every HLO op is an event on a host thread.

The device and the run of an op come from its own stats, never from its thread, since one device's ops move between
threads. A kernel that spreads over the thread pool returns at once; its ``end: NAME`` event, paired by a flow id, then
gives the latest time at which it can have ended. It may be very late, because the thread that finishes a kernel first
runs what was waiting for it, so the first op that uses the result bounds it too.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from jaxprof.errors import UserError
from jaxprof.hlo.op_cost import ModuleCosts
from jaxprof.trace.clean import drop_impossible
from jaxprof.trace.graph import OpGraph, embedded_modules, op_graph
from jaxprof.trace.intervals import Times, fill_gaps, gaps, self_pieces
from jaxprof.trace.steps import assign_steps, incomplete_steps, step_table
from jaxprof.trace.timeline import INTERVALS, Timeline
from jaxprof.trace.waiting import last_arrivals
from jaxprof.trace.xspace import Space, StatType

CPU_STATS: dict[str, StatType] = {
    "hlo_op": pl.String,
    "hlo_module": pl.String,
    "program_id": pl.Int64,
    "run_id": pl.Int64,
    "device_ordinal": pl.Int64,
    "step_num": pl.Int64,
    "_p": pl.Int64,  # flow id, on the event where a flow begins
    "_c": pl.Int64,  # and where it ends
    "name": pl.String,  # of the module that an Execute event launches
    "replica": pl.Int64,
    "partition": pl.Int64,
    "global_device_id": pl.Int64,
}
HOST_PLANE = "/host:CPU"

_CONTROL_NAME = r"^(while|call|conditional)(\.\d+)*$"
_DISPATCH_PS = 1_000_000
"""A gap shorter than a microsecond is the executor going from one op to the next, not a kernel at work elsewhere."""


def cpu_timeline(space: Space, costs: Mapping[str, ModuleCosts], num_devices: int | None = None) -> Timeline:
    """The timeline of the HLO ops on the host plane, read with CPU_STATS.

    Raises UserError where there are none. ``costs`` by module name give the groups of collectives and say how often
    each op is to run.
    """
    plane = space.plane(HOST_PLANE)
    is_op = pl.col("hlo_op").is_not_null() & ~pl.col("event").str.starts_with("end: ")
    ops = plane.events.filter(is_op) if plane else pl.DataFrame()
    if plane is None or ops.is_empty():
        raise UserError(
            "the trace holds no HLO ops, so it has no steps; trace with host_tracer_level=2 while the program runs"
        )
    host = plane.events.filter(pl.col("hlo_op").is_null())
    ops, dropped = drop_impossible(ops)
    ops = _named(ops, costs)
    modules, module_notes = embedded_modules(space, ops["program_id"].unique().to_list())
    graphs = {
        program: op_graph(modules[program_id], group["op"].unique().to_list())
        for (program, program_id), group in ops.group_by("program", "program_id")
        if program_id in modules
    }
    every = _placed(ops, host)
    ops = _leaves(every, graphs)

    runs = ops.group_by("program", "run").agg(pl.col("start_ps").min(), pl.col("duration_ps").sum().alias("busy_ps"))
    steps, step_notes = assign_steps(runs, _annotations(host), _launches(host))
    ops = ops.join(steps, on=["program", "run"])
    left_out, lost_notes = incomplete_steps(ops, costs, events_lost=any("drop" in r.lower() for r in space.remarks))

    ops = ops.with_columns((pl.col("start_ps") + pl.col("duration_ps")).alias("end_ps")).sort("device", "start_ps")
    ops = ops.with_columns(
        last_arrivals(ops, costs, permute_joins_all=True).alias("arrived_ps"),
        _latest_ends(ops, every, host, graphs).alias("latest_ps"),
    ).with_row_index("execution")
    starts = ops.group_by("device", "step").agg(pl.col("start_ps").min())
    rows, overlap_notes = _in_their_windows(_rows(ops, _collectives(costs)), starts)
    origin = rows["start_ps"].min()
    table = step_table(starts, rows, left_out)
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
        steps=table.with_columns(pl.col("start_ps", "end_ps", "busy_end_ps") - origin),
        notes=(
            *space.remarks,
            *dropped,
            *module_notes,
            *_host_notes(host),
            *_missing_devices(ops, num_devices),
            *step_notes,
            *overlap_notes,
            *lost_notes,
        ),
    )


def _named(ops: pl.DataFrame, costs: Mapping[str, ModuleCosts]) -> pl.DataFrame:
    """Adds ``program``, ``op`` and ``run``.

    The program is the module's name; where several programs share one, it stays with the one whose ops the costs know
    best and the others get their id behind it.
    """
    ops = ops.rename({"hlo_op": "op", "run_id": "run"}).with_columns(
        pl.col("hlo_module").fill_null("unknown module"), pl.col("program_id").fill_null(0), pl.col("run").fill_null(0)
    )
    known = pl.DataFrame(
        [(module, cost.op) for module, c in costs.items() for cost in c.ops],
        schema={"hlo_module": pl.String, "op": pl.String},
        orient="row",
    ).with_columns(pl.lit(True).alias("known"))
    ranked = (
        ops.select("hlo_module", "program_id", "op")
        .unique()
        .join(known, on=["hlo_module", "op"], how="left")
        .group_by("hlo_module", "program_id")
        .agg(pl.col("known").sum(), pl.len())
        .sort("known", "len", "program_id", descending=[True, True, False])
        .with_columns(pl.int_range(pl.len()).over("hlo_module").alias("rank"))
    )
    name = (
        pl.when(pl.col("rank") == 0)
        .then(pl.col("hlo_module"))
        .otherwise(pl.format("{}({})", "hlo_module", "program_id"))
        .alias("program")
    )
    return ops.join(ranked.select("hlo_module", "program_id", name), on=["hlo_module", "program_id"])


def _placed(ops: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """Adds ``device``, the position in the program's mesh, from the events that launch a partition on a device.

    Programs on one device have no such events; then it is the device's ordinal.
    """
    launched = (
        host.drop_nulls(["partition", "global_device_id", "name"])
        .group_by("name", "global_device_id")
        .agg((pl.col("replica").fill_null(0) + pl.col("partition")).first().alias("position"))
        .rename({"name": "hlo_module", "global_device_id": "device_ordinal"})
    )
    return ops.join(launched, on=["hlo_module", "device_ordinal"], how="left").with_columns(
        pl.coalesce("position", "device_ordinal").fill_null(0).cast(pl.Int32).alias("device")
    )


def _leaves(ops: pl.DataFrame, graphs: Mapping[str, OpGraph]) -> pl.DataFrame:
    """Without the loops, calls and conditionals that ran ops of their own.

    One whose body left no events is kept: the compiler made one kernel of it. Without the program's HLO such an op is
    known by its name, and runs others if some op of its run begins while it lasts.
    """
    place = ["program", "run", "device"]
    holders = [ops.clear().select(*place, "op")]
    for program, graph in graphs.items():
        mine = ops.filter(pl.col("program") == program)
        for control, inside in graph.inside.items():
            running = mine.filter(pl.col("op").is_in(list(inside))).select(place).unique()
            holders.append(running.with_columns(pl.lit(control).alias("op")))
    ops = ops.join(pl.concat(holders), on=[*place, "op"], how="anti")
    named = pl.col("op").str.contains(_CONTROL_NAME) & ~pl.col("program").is_in(list(graphs))
    next_start = pl.col("start_ps").shift(-1).over(place, order_by="start_ps")
    holds = named & (next_start < pl.col("start_ps") + pl.col("duration_ps")).fill_null(False)
    return ops.filter(~holds)


def _annotations(host: pl.DataFrame) -> pl.DataFrame:
    return host.drop_nulls("step_num").select(
        pl.col("event").alias("name"), "line", "start_ps", (pl.col("start_ps") + pl.col("duration_ps")).alias("end_ps")
    )


def _launches(host: pl.DataFrame) -> pl.DataFrame:
    many = pl.col("run_id").is_not_null() & pl.col("name").is_not_null()
    single = pl.col("event").str.ends_with("::ExecuteHelperOnSingleDevice")
    return host.filter(many | single).select(pl.col("run_id").alias("run"), "line", "start_ps")


def _collectives(costs: Mapping[str, ModuleCosts]) -> pl.DataFrame:
    return pl.DataFrame(
        [(program, cost.op) for program, module in costs.items() for cost in module.ops if cost.collective],
        schema={"program": pl.String, "op": pl.String},
        orient="row",
    )


def _latest_ends(
    ops: pl.DataFrame, every: pl.DataFrame, host: pl.DataFrame, graphs: Mapping[str, OpGraph]
) -> pl.Series:
    """For each of ``ops`` that outlives its event, the latest time at which it can have ended; null for the others.

    ``every`` has the loops and calls too, which use results.
    """
    ends = (
        host.filter(pl.col("event").str.starts_with("end: "))
        .drop_nulls("_c")
        .select(pl.col("_c").alias("_p"), pl.col("start_ps").alias("end_event_ps"))
        .unique("_p")
    )
    place = ["program", "run", "device"]
    next_run = (
        ops.group_by(place)
        .agg(pl.col("start_ps").min())
        .with_columns(pl.col("start_ps").shift(-1).over("device", order_by="start_ps").alias("next_run_ps"))
        .drop("start_ps")
    )
    late = (
        ops.with_row_index("_row")
        .join(ends, on="_p")
        .filter(pl.col("end_event_ps") > pl.col("end_ps") + _DISPATCH_PS)
        .join(next_run, on=place)
        .select("_row", *place, "op", "end_ps", "end_event_ps", "next_run_ps")
    )
    users = pl.DataFrame(
        [(program, op, user) for program, graph in graphs.items() for op, them in graph.users.items() for user in them],
        schema={"program": pl.String, "op": pl.String, "user": pl.String},
        orient="row",
    )
    used = (
        late.join(users, on=["program", "op"])
        .sort("end_ps")
        .join_asof(
            every.select(*place, pl.col("op").alias("user"), pl.col("start_ps").alias("used_ps")).sort("used_ps"),
            left_on="end_ps",
            right_on="used_ps",
            by=[*place, "user"],
            strategy="forward",
            check_sortedness=False,
        )
        .group_by("_row")
        .agg(pl.col("used_ps").min())
    )
    limits = late.join(used, on="_row", how="left").select(
        "_row", pl.min_horizontal("end_event_ps", "next_run_ps", "used_ps").alias("latest_ps")
    )
    return (
        ops.with_row_index("_row")
        .select("_row")
        .join(limits, on="_row", how="left", maintain_order="left")["latest_ps"]
    )


def _rows(ops: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """One row per piece of self time, with ``stream``.

    A collective that another op of its device overlaps stands whole on the ``async`` stream. Ops that outlive their
    event also get the gaps up to their latest end: what ran in between has its own time, and more is not known.
    """
    marked = ops.join(
        collectives.with_columns(pl.lit(True).alias("collective")), on=["program", "op"], how="left"
    ).with_columns(pl.col("collective").fill_null(False))
    parts: list[pl.DataFrame] = []
    for _, device in marked.group_by("device", maintain_order=True):
        start, end = device["start_ps"].to_numpy(), device["end_ps"].to_numpy()
        collective = device["collective"].to_numpy()
        beside = _overlaps_another(start, end) & collective
        stays = np.flatnonzero(~beside)
        index, piece_start, piece_end = self_pieces(start[stays], end[stays])
        parts.append(_pieces(device, stays[index], piece_start, piece_end, "ops"))
        aside = np.flatnonzero(beside)
        parts.append(_pieces(device, aside, start[aside], end[aside], "async"))
        late = np.flatnonzero(device["latest_ps"].is_not_null().to_numpy())
        gap_start, gap_end = gaps(start, end)
        wide = gap_end - gap_start > _DISPATCH_PS
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


def _host_notes(host: pl.DataFrame) -> tuple[str, ...]:
    if host["event"].str.starts_with("$").any():
        return ("the Python tracer was on: it slows short steps; python_tracer_level=0 turns it off",)
    return ()


def _missing_devices(ops: pl.DataFrame, num_devices: int | None) -> tuple[str, ...]:
    missing = sorted(set(range(num_devices or 0)) - set(ops["device"].to_list()))
    return (f"no events from devices {', '.join(map(str, missing))}",) if missing else ()
