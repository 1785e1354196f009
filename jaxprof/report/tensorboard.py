"""A run as an XSpace that XProf reads: every page is filled, for a simulated CPU mesh as for real devices.

XProf fills its pages from device planes, and a CPU trace has none. So each device of the timeline gets a plane in the
TPU's style (XProf fills nothing but the trace viewer from other styles), with our own times and costs in it:

- plane statistics: the peaks that the report uses,
- line ``Steps``: a marker per step, from its first op to the next step's first,
- line ``XLA Modules``: each program's extent in each step,
- lines ``XLA Ops``: the ops, laid out so that XProf finds the op table's self times and executions (one line, and
  further ones for what runs beside it on the same device),
- lines ``Collective waits`` and ``Host``: drawn only.

The compiled module stands in ``/host:metadata`` for the memory and graph viewers.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from jaxprof.hlo.program import Program
from jaxprof.proto.schema import build_messages
from jaxprof.proto.xplane import XSpace
from jaxprof.report.nesting import nest
from jaxprof.trace.timeline import Timeline

PROGRAM_ID = 1
"""One program a run; XProf joins ops with their module on it."""
_HBM, _READ, _WRITE = 1, 1, 2
_GAP = 0
"""Symbol 0 is XProf's 'root', which it leaves out of every sum: the mark for time inside an op that is nobody's."""

_MESSAGES = build_messages(
    "hlo_container",
    """
    message HloProto
      1 bytes hlo_module
      3 bytes buffer_assignment
    message MemoryAccessBreakdown
      1 repeated MemoryAccessed memory_accessed
    message MemoryAccessed
      1 int32 operation_type
      2 int64 memory_space
      3 int64 bytes_accessed
    """,
)


def write_xspace(
    program: Program,
    timeline: Timeline,
    ops: pl.DataFrame,
    summary: Mapping[str, Any],
    *,
    hlo_text: str | None = None,
    hostname: str = "jaxprof",
) -> bytes:
    """Serialized XSpace of ``timeline``, with the costs of ``ops`` (OP_TABLE) and the peaks of ``summary``'s target.

    ``hlo_text`` (``HloModule.to_string()``) gives each op its line of HLO in XProf's tables.
    """
    space = XSpace(hostnames=[hostname])
    _write_module(_Plane(space, 0, "/host:metadata"), program)
    expressions = hlo_expressions(hlo_text) if hlo_text else {}
    rows = _rows_by_trace_name(ops)
    devices = timeline.steps["device"].unique().sort().to_list()
    for device in devices:
        plane = _Plane(space, device + 1, f"/device:TPU:{device}")
        _write_peaks(plane, summary.get("target") or {})
        _write_device(
            plane, _of_device(timeline.intervals, device), _of_device(timeline.steps, device), rows, expressions
        )
    return space.SerializeToString()


def hlo_proto(program: Program) -> bytes:
    """Serialized HloProto: the module, with its buffer assignment where the compiler gave one."""
    proto = _MESSAGES["HloProto"](hlo_module=program.hlo_module, buffer_assignment=program.buffer_assignment or b"")
    return proto.SerializeToString()


def hlo_expressions(text: str) -> dict[str, str]:
    """Each instruction's line of an HLO text, by its name; metadata and backend configuration are cut off."""
    expressions: dict[str, str] = {}
    for line in text.splitlines():
        stripped = line.strip().removeprefix("ROOT ")
        name, equals, _ = stripped.partition(" = ")
        if equals and line.startswith(" "):
            expressions[name.removeprefix("%")] = stripped.split(", metadata={")[0].split(", backend_config=")[0]
    return expressions


def _rows_by_trace_name(ops: pl.DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    """The op table's rows by program and by each name that a trace has for the op."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for row in ops.iter_rows(named=True):
        for name in (row["op"], *(row["trace_names"] or "").split(",")):
            rows[row["program"], name] = row
    return rows


class _Plane:
    """Writes one XPlane, numbering its event and stat names as they come."""

    def __init__(self, space: Any, plane_id: int, name: str) -> None:
        self.proto = space.planes.add(id=plane_id, name=name)
        self._stats: dict[str, int] = {}
        self._events: dict[tuple[str, str], int] = {}
        self.stat("group_id")  # XProf expects this name on every plane, used or not

    def stat(self, name: str) -> int:
        """Number of the stat called ``name``."""
        if name not in self._stats:
            number = self._stats[name] = len(self._stats) + 1
            self.proto.stat_metadata[number].id = number
            self.proto.stat_metadata[number].name = name
        return self._stats[name]

    def set_stats(self, holder: Any, stats: Mapping[str, Any]) -> None:
        """Add each stat that is not None. XProf reads integers only as int64."""
        for name, value in stats.items():
            match value:
                case None:
                    continue
                case int():
                    holder.stats.add(metadata_id=self.stat(name), int64_value=value)
                case float():
                    holder.stats.add(metadata_id=self.stat(name), double_value=value)
                case bytes():
                    holder.stats.add(metadata_id=self.stat(name), bytes_value=value)
                case _:
                    holder.stats.add(metadata_id=self.stat(name), str_value=str(value))

    def event(self, name: str, display_name: str = "", stats: Mapping[str, Any] | None = None) -> int:
        """Number of the event metadata with these names; ``stats`` are set where it is new."""
        key = (name, display_name)
        if key not in self._events:
            number = self._events[key] = len(self._events) + 1
            metadata = self.proto.event_metadata[number]
            metadata.id, metadata.name, metadata.display_name = number, name, display_name
            self.set_stats(metadata, stats or {})
        return self._events[key]

    def line(self, place: int, name: str, events: Iterable[tuple[int, int, int, int]], *, shown_as: str = "") -> None:
        """A line of (event metadata, start_ps, end_ps, step), in order, drawn at ``place``; left out where empty."""
        events = list(events)
        if not events:
            return
        line = self.proto.lines.add(id=place, display_id=place, name=name, display_name=shown_as)
        origin_ns = min(start for _, start, _, _ in events) // 1000
        line.timestamp_ns = origin_ns
        group = self.stat("group_id")
        for metadata, start_ps, end_ps, step in events:
            event = line.events.add(
                metadata_id=metadata, offset_ps=start_ps - origin_ns * 1000, duration_ps=end_ps - start_ps
            )
            event.stats.add(metadata_id=group, int64_value=step)


def _of_device(frame: pl.DataFrame, device: int) -> pl.DataFrame:
    return frame.filter(pl.col("device") == device).sort("start_ps")


def _write_module(plane: _Plane, program: Program) -> None:
    name = f"{program.name}({PROGRAM_ID})"
    for stat in ("Hlo Proto", "hlo_proto"):  # the two spellings of XProf's versions
        plane.stat(stat)
    plane.event(name, name, {"Hlo Proto": hlo_proto(program), "program_id": PROGRAM_ID})


def _write_peaks(plane: _Plane, target: Mapping[str, Any]) -> None:
    """The target's peaks; a peak that is not known is left out."""
    peak, bandwidth = target.get("peak_flops_per_s"), target.get("hbm_bytes_per_s")
    plane.set_stats(
        plane.proto,
        {
            "device_type_string": target.get("name"),
            "peak_teraflops_per_second": None if peak is None else peak / 1e12,
            "peak_hbm_bw_gigabytes_per_second": None if bandwidth is None else bandwidth / 1e9,
        },
    )


def _write_device(
    plane: _Plane,
    intervals: pl.DataFrame,
    steps: pl.DataFrame,
    rows: Mapping[tuple[str, str], Mapping[str, Any]],
    expressions: Mapping[str, str],
) -> None:
    plane.line(
        1,
        "Steps",
        (
            (plane.event(str(step), str(step)), start, end, step)
            for step, start, end in steps.select("step", "start_ps", "end_ps").iter_rows()
        ),
    )
    modules = intervals.group_by("step", "program", maintain_order=True).agg(
        pl.col("start_ps").min(), pl.col("end_ps").max()
    )
    plane.line(
        2,
        "XLA Modules",
        (
            (plane.event(f"{program}({PROGRAM_ID})", program, {"program_id": PROGRAM_ID}), start, end, step)
            for step, program, start, end in modules.iter_rows()
        ),
    )
    _set_run_ids(plane)

    numbers: dict[tuple[str, str], int] = {}

    def number(program: str, op: str) -> int:
        key = (program, op)
        if key not in numbers:
            row = rows.get(key)
            name = op if row is None else row["op"]
            numbers[key] = _op_event(plane, name, row, expressions.get(name), symbol=len(numbers) + 1)
        return numbers[key]

    gap = plane.event("not this op's own", "", {"program_id": PROGRAM_ID, "symbol_id": _GAP})
    lanes = nest(intervals.filter(pl.col("stream") != "host"))
    for place, lane in reversed(list(enumerate(lanes, 3))):  # XProf breaks a step down by the last line of this name
        plane.line(
            place,
            "XLA Ops",
            (
                (gap if event.op is None else number(event.program, event.op), event.start_ps, event.end_ps, event.step)
                for event in lane
            ),
            shown_as="XLA Ops" if lane is lanes[0] else "beside them",
        )
    last = 3 + len(lanes)
    host = intervals.filter(pl.col("stream") == "host").select("program", "op", "start_ps", "end_ps", "step")
    plane.line(
        last, "Host", ((number(program, op), start, end, step) for program, op, start, end, step in host.iter_rows())
    )
    waits = intervals.filter(pl.col("wait_ps") > 0).select("op", "start_ps", "wait_ps", "step")
    plane.line(
        last + 1,
        "Collective waits",
        ((plane.event(f"wait for {op}"), start, start + wait, step) for op, start, wait, step in waits.iter_rows()),
    )


def _set_run_ids(plane: _Plane) -> None:
    for line in plane.proto.lines:
        if line.name == "XLA Modules":
            for run, event in enumerate(line.events):
                plane.set_stats(event, {"run_id": run + 1})


def _op_event(plane: _Plane, op: str, row: Mapping[str, Any] | None, expression: str | None, *, symbol: int) -> int:
    """Event metadata of one op. XProf multiplies FLOPs and bytes by the executions, so they are per execution here."""
    if row is None:
        stats = {"hlo_category": "not in the module", "program_id": PROGRAM_ID, "symbol_id": symbol}
        return plane.event(expression or op, op, stats)
    executions = row["executions"]

    def each(total: int | None) -> int | None:
        return None if total is None or not executions else round(total / executions)

    read, written = each(row["hbm_bytes_read"]), each(row["hbm_bytes_written"])
    moved = None if read is None or written is None else read + written
    flops = each(None if row["flops"] is None else row["flops"] + (row["other_flops"] or 0))
    breakdown = _MESSAGES["MemoryAccessBreakdown"]()
    for kind, size in ((_READ, read), (_WRITE, written)):
        if size:
            breakdown.memory_accessed.add(operation_type=kind, memory_space=_HBM, bytes_accessed=size)
    return plane.event(
        expression or f"%{op} = {row['opcode']}",
        op,
        {
            "hlo_category": row["collective"] or row["category"],
            "program_id": PROGRAM_ID,
            "symbol_id": symbol,
            "flops": flops,
            "model_flops": each(row["flops"]),
            "bytes_accessed": moved,
            "memory_access_breakdown": None if moved is None else breakdown.SerializeToString(),
            "tf_op": _framework_op(row["scope"]),
            "source": row["source"] or None,
        },
    )


def _framework_op(scope: str | None) -> str | None:
    """XProf's ``name:type``; a JAX op's type is the last word of its scope."""
    if not scope:
        return None
    last = scope.rpartition("/")[2]
    return f"{scope}:{last}" if re.fullmatch("[a-z_][a-z0-9_]*", last) and ":" not in scope else scope


def tensorboard_command(run: Path, *, port: int = 6006, host: str = "localhost") -> list[str]:
    """The command that serves ``run``, or a folder of runs."""
    return [sys.executable, "-m", "tensorboard.main", f"--logdir={run}", f"--port={port}", f"--host={host}"]


def open_tensorboard(run: Path, *, port: int = 6006, host: str = "localhost") -> int:
    """Serve ``run`` until it is stopped from the keyboard; returns TensorBoard's exit status."""
    try:
        return subprocess.call(tensorboard_command(run, port=port, host=host))
    except KeyboardInterrupt:
        return 0
