"""The profiler's trace format as columns: a frame of events for each plane, with the stats that were asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from google.protobuf.message import DecodeError

from jaxprof.errors import UserError
from jaxprof.proto import xplane

_INT64_MAX = 2**63 - 1

StatType = type[pl.Int64] | type[pl.Float64] | type[pl.String]
StatValue = int | float | str | bytes


@dataclass(frozen=True, slots=True)
class Line:
    """One timeline of a plane: a host thread, a device's stream or a derived row such as ``XLA Ops``."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class EventMetadata:
    """What events of one kind share."""

    name: str
    display_name: str
    stats: dict[str, StatValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plane:
    """One device, or one view of the host."""

    name: str
    stats: dict[str, StatValue]
    lines: tuple[Line, ...]
    metadata: dict[int, EventMetadata]
    events: pl.DataFrame
    """``line`` (position in ``lines``), ``metadata`` (key of ``metadata``), ``event`` (its name), ``start_ps``,
    ``duration_ps`` and one column for each stat that was asked for, null where the event has none. Rows stand in the
    order of the file."""


@dataclass(frozen=True, slots=True)
class Space:
    """A whole trace of one process."""

    planes: tuple[Plane, ...]
    remarks: tuple[str, ...]
    """The profiler's own warnings and errors."""
    hostnames: tuple[str, ...]

    def plane(self, name: str) -> Plane | None:
        return next((plane for plane in self.planes if plane.name == name), None)


def read_space(data: bytes, stats: Mapping[str, StatType]) -> Space:
    """Decodes serialized XSpace bytes. ``stats`` names the event stats to keep, with their types.

    Integers are held as signed 64-bit, unsigned ones with the same bits. Raises UserError where the bytes are no trace.
    """
    if not data:
        raise UserError(
            "the trace is empty, likely because it grew past 2 GB; trace fewer steps, or lower python_tracer_level and "
            "host_tracer_level"
        )
    try:
        space = xplane.XSpace.FromString(data)
    except DecodeError as error:
        raise UserError(f"not a profiler trace: {len(data):,} bytes that do not decode as XSpace ({error})") from error
    return Space(
        planes=tuple(_read_plane(plane, stats) for plane in space.planes),
        remarks=(*space.warnings, *space.errors),
        hostnames=tuple(space.hostnames),
    )


def _read_plane(plane: Any, wanted: Mapping[str, StatType]) -> Plane:
    stat_names = {key: metadata.name for key, metadata in plane.stat_metadata.items()}
    columns = {key: name for key, name in stat_names.items() if name in wanted}
    metadata = {
        key: EventMetadata(item.name, item.display_name, _stats(item.stats, stat_names))
        for key, item in plane.event_metadata.items()
    }
    return Plane(
        name=plane.name,
        stats=_stats(plane.stats, stat_names),
        lines=tuple(Line(line.id, line.name or line.display_name) for line in plane.lines),
        metadata=metadata,
        events=_read_events(plane, wanted, columns, stat_names, metadata),
    )


def _read_events(
    plane: Any,
    wanted: Mapping[str, StatType],
    columns: Mapping[int, str],
    stat_names: Mapping[int, str],
    metadata: Mapping[int, EventMetadata],
) -> pl.DataFrame:
    lines: list[int] = []
    ids: list[int] = []
    starts: list[int] = []
    durations: list[int] = []
    rows: dict[str, list[int]] = {name: [] for name in wanted}
    values: dict[str, list[Any]] = {name: [] for name in wanted}
    row = 0
    for position, line in enumerate(plane.lines):
        origin_ps = line.timestamp_ns * 1000
        lines.extend([position] * len(line.events))
        for event in line.events:
            ids.append(event.metadata_id)
            starts.append(origin_ps + event.offset_ps)
            durations.append(event.duration_ps)
            for stat in event.stats:
                name = columns.get(stat.metadata_id)
                if name is not None:
                    rows[name].append(row)
                    values[name].append(_as_type(stat, wanted[name], stat_names))
            row += 1
    frame = pl.DataFrame(
        {
            "line": pl.Series(lines, dtype=pl.Int32),
            "metadata": pl.Series(ids, dtype=pl.Int64),
            "event": pl.Series([metadata[key].name if key in metadata else "" for key in ids], dtype=pl.String),
            "start_ps": pl.Series(starts, dtype=pl.Int64),
            "duration_ps": pl.Series(durations, dtype=pl.Int64),
        }
    )
    return frame.with_columns(_column(name, kind, row, rows[name], values[name]) for name, kind in wanted.items())


def _column(name: str, kind: StatType, length: int, rows: list[int], values: list[Any]) -> pl.Series:
    full: list[Any] = [None] * length
    for row, value in zip(rows, values, strict=True):
        full[row] = value
    return pl.Series(name, full, dtype=kind)


def _as_type(stat: Any, kind: StatType, stat_names: Mapping[int, str]) -> StatValue:
    if kind is pl.String:
        return stat.str_value or stat_names.get(stat.ref_value, "")
    if kind is pl.Float64:
        return stat.double_value or float(stat.int64_value or stat.uint64_value)
    value = stat.int64_value or stat.uint64_value
    return value if value <= _INT64_MAX else value - 2**64


def _stats(stats: Any, names: Mapping[int, str]) -> dict[str, StatValue]:
    found: dict[str, StatValue] = {}
    for stat in stats:
        kind = stat.WhichOneof("value")
        if kind is not None and stat.metadata_id in names:
            value = getattr(stat, kind)
            found[names[stat.metadata_id]] = names.get(value, "") if kind == "ref_value" else value
    return found
