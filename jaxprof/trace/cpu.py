"""Traces of a CPU mesh: every HLO op is an event on a host thread.

The device and the run of an op come from its own stats, never from its thread, since one device's ops move between
threads. A kernel that spreads over the thread pool returns at once; its ``end: NAME`` event, paired by a flow id, then
gives the latest time at which it can have ended. It may be very late, because the thread that finishes a kernel first
runs what was waiting for it, so the first op that uses the result bounds it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from jaxprof.errors import UserError
from jaxprof.hlo.op_cost import ModuleCosts
from jaxprof.trace.assemble import DISPATCH_PS, assemble, events_lost, step_annotations
from jaxprof.trace.clean import drop_impossible
from jaxprof.trace.graph import OpGraph, embedded_modules, op_graph
from jaxprof.trace.programs import name_programs
from jaxprof.trace.timeline import Timeline
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


def cpu_timeline(space: Space, costs: Mapping[str, ModuleCosts], num_devices: int | None = None) -> Timeline:
    """The timeline of the HLO ops on the host plane, read with CPU_STATS.

    Raises UserError where there are none. ``costs`` by module name give the groups of collectives and say how often
    each op is to run.
    """
    plane = space.plane(HOST_PLANE)
    if plane is None:
        raise UserError(f"the trace has no {HOST_PLANE} plane, so it holds no steps of a CPU mesh")
    host = plane.events.filter(pl.col("hlo_op").is_null())
    is_op = pl.col("hlo_op").is_not_null() & ~pl.col("event").str.starts_with("end: ")
    ops, dropped = drop_impossible(plane.events.filter(is_op))
    if ops.is_empty():
        raise UserError(
            "the trace holds no HLO ops, so it has no steps; trace with host_tracer_level=2 while the program runs"
            + "".join(f" ({note})" for note in dropped)
        )
    ops = ops.rename({"hlo_op": "op", "run_id": "run"}).with_columns(
        pl.col("hlo_module").fill_null("unknown module"), pl.col("program_id").fill_null(0), pl.col("run").fill_null(0)
    )
    ops = name_programs(ops, costs)
    modules, module_notes = embedded_modules(space, ops["program_id"].unique().to_list())
    graphs = {
        program: op_graph(modules[program_id], group["op"].unique().to_list())
        for (program, program_id), group in ops.group_by("program", "program_id")
        if program_id in modules
    }
    every = _placed(ops, host)
    ops = _leaves(every, graphs)

    ops = ops.with_columns(
        (pl.col("start_ps") + pl.col("duration_ps")).alias("end_ps"),
        pl.lit(False).alias("beside"),
    )
    ops = ops.with_columns(_latest_ends(ops, every, host, graphs).alias("latest_ps"))
    timeline = assemble(
        ops,
        costs,
        annotations=step_annotations(host),
        launches=_launches(host),
        num_devices=num_devices,
        one_at_a_time=False,
        permute_joins_all=True,
        events_lost=events_lost(space),
    )
    notes = (*space.remarks, *dropped, *module_notes, *_host_notes(host), *timeline.notes)
    return replace(timeline, notes=notes)


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


def _launches(host: pl.DataFrame) -> pl.DataFrame:
    many = pl.col("run_id").is_not_null() & pl.col("name").is_not_null()
    single = pl.col("event").str.ends_with("::ExecuteHelperOnSingleDevice")
    return host.filter(many | single).select(pl.col("run_id").alias("run"), "line", "start_ps")


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
        .filter(pl.col("end_event_ps") > pl.col("end_ps") + DISPATCH_PS)
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


def _host_notes(host: pl.DataFrame) -> tuple[str, ...]:
    if host["event"].str.starts_with("$").any():
        return ("the Python tracer was on: it slows short steps; python_tracer_level=0 turns it off",)
    return ()
