"""Traces of TPUs: a plane for each device, with lines for its modules, its ops and what runs beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from jaxprof.errors import UserError
from jaxprof.hlo.op_cost import ModuleCosts
from jaxprof.trace.assemble import assemble, events_lost, step_annotations
from jaxprof.trace.clean import drop_impossible
from jaxprof.trace.programs import name_programs
from jaxprof.trace.timeline import Timeline
from jaxprof.trace.xspace import EventMetadata, Plane, Space, StatType

TPU_STATS: dict[str, StatType] = {
    "run_id": pl.Int64,
    "step_num": pl.Int64,
    "device_offset_ps": pl.Int64,
    "device_duration_ps": pl.Int64,
}

_DEVICE = re.compile(r"/device:TPU:(\d+)$")
_MODULE = re.compile(r"(.*)\((\d+)\)$")
_NAME = re.compile(r"%?([^\s=]+) = ")
_INT64_MAX = 2**63 - 1


def is_tpu_plane(name: str) -> bool:
    return _DEVICE.match(name) is not None


def tpu_timeline(space: Space, costs: Mapping[str, ModuleCosts], num_devices: int | None = None) -> Timeline:
    """The timeline of the ``XLA Ops`` and ``Async XLA Ops`` lines, read with TPU_STATS.

    A run is a span of the ``XLA Modules`` line. Loops nest their bodies on the line and keep the time between them.
    Raises UserError where no device has ops.
    """
    parts = [_device_ops(plane, int(match[1])) for plane in space.planes if (match := _DEVICE.match(plane.name))]
    ops, dropped = drop_impossible(pl.concat(parts))
    if ops.is_empty():
        raise UserError("the trace's TPU planes hold no ops, so it has no steps; trace while the program runs")
    ops = _matched_runs(name_programs(ops, costs))
    host = space.plane("/host:CPU")
    annotations = step_annotations(host.events if host else space.planes[0].events.clear())
    timeline = assemble(
        ops.with_columns(
            (pl.col("start_ps") + pl.col("duration_ps")).alias("end_ps"), pl.lit(None, pl.Int64).alias("latest_ps")
        ),
        costs,
        annotations=annotations,
        launches=pl.DataFrame(schema={"run": pl.Int64, "line": pl.Int32, "start_ps": pl.Int64}),
        num_devices=num_devices,
        one_at_a_time=True,
        permute_joins_all=False,
        events_lost=events_lost(space),
    )
    return replace(timeline, notes=(*space.remarks, *dropped, *timeline.notes))


def _matched_runs(ops: pl.DataFrame) -> pl.DataFrame:
    """``run`` such that devices that ran one program together have it in common.

    It is the run id where all devices of a program have the same ones. Where each device counts for itself, it is the
    place of the run among the program's runs on the device.
    """
    ids = ops.select("program", "device", "run").unique()
    shared = ids.group_by("program", "run").agg(pl.len().alias("by"))
    devices = ids.group_by("program").agg(pl.col("device").n_unique().alias("of"))
    own = shared.join(devices, on="program").filter(pl.col("by") < pl.col("of"))["program"].unique()
    counted = pl.col("run_start_ps").rank("dense").over("program", "device").cast(pl.Int64)
    return ops.with_columns(pl.when(pl.col("program").is_in(own.implode())).then(counted).otherwise("run").alias("run"))


def _device_ops(plane: Plane, device: int) -> pl.DataFrame:
    modules = _on_line(plane, "XLA Modules").sort("start_ps")
    ops = pl.concat(
        [
            _on_line(plane, name).with_columns(pl.lit(beside).alias("beside"))
            for name, beside in (("XLA Ops", False), ("Async XLA Ops", True))
        ]
    )
    held = np.searchsorted(modules["start_ps"].to_numpy(), ops["start_ps"].to_numpy(), side="right") - 1
    ops, modules = ops.filter(pl.Series(held >= 0, dtype=pl.Boolean)), modules[held[held >= 0]]
    names = [_module(event) for event in modules["event"]]
    return _on_device_clock(ops).select(
        pl.Series("op", [_op(plane.metadata[key]) for key in ops["metadata"]], dtype=pl.String),
        pl.Series("hlo_module", [name for name, _ in names], dtype=pl.String),
        pl.Series("program_id", [program for _, program in names], dtype=pl.Int64),
        modules["run_id"].fill_null(0).alias("run"),
        modules["start_ps"].alias("run_start_ps"),
        pl.lit(device, pl.Int32).alias("device"),
        "start_ps",
        "duration_ps",
        "beside",
    )


def _on_device_clock(ops: pl.DataFrame) -> pl.DataFrame:
    """Start and duration by the device's own clock where the trace has them.

    The profiler moves events to the host's clock piece by piece, which makes single ops longer or shorter by as much as
    themselves. Events without device times are moved back by those that have them, and the whole by the usual distance
    of the two clocks, so that devices can be compared.
    """
    known = ops.drop_nulls(["device_offset_ps", "device_duration_ps"])
    if known.is_empty():
        return ops
    host = known["start_ps"].to_numpy()
    device = known["device_offset_ps"].to_numpy()
    both = np.concatenate([host, host + known["duration_ps"].to_numpy()])
    own = np.concatenate([device, device + known["device_duration_ps"].to_numpy()])
    order = np.argsort(both, kind="stable")
    ends = (ops["start_ps"] + ops["duration_ps"]).to_numpy()
    begin, end = (np.interp(t, both[order], own[order]).astype(np.int64) for t in (ops["start_ps"].to_numpy(), ends))
    distance = int(np.median(host - device))
    return ops.with_columns(
        pl.coalesce("device_offset_ps", pl.Series(begin)).alias("start_ps") + distance,
        pl.coalesce("device_duration_ps", pl.Series(end - begin)).alias("duration_ps"),
    )


def _on_line(plane: Plane, name: str) -> pl.DataFrame:
    return plane.events.filter(pl.col("line").is_in([i for i, line in enumerate(plane.lines) if line.name == name]))


def _op(metadata: EventMetadata) -> str:
    """The instruction's name. The event is named by its text, ``%fusion.1 = f32[8] fusion(...)``."""
    match = _NAME.match(metadata.name)
    return match[1] if match else metadata.display_name or metadata.name


def _module(event: str) -> tuple[str, int]:
    """Name and id, as signed 64-bit, from ``jit_step(12190760917235803885)``."""
    match = _MODULE.match(event)
    if match is None:
        return event, 0
    number = int(match[2])
    return match[1], number if number <= _INT64_MAX else number - 2**64
