"""Writes small XSpaces, so that a test can say what a profiler would have written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from jaxprof.proto.xplane import XSpace

Event = tuple[str, float, float, Mapping[str, Any]]
"""Name, start and duration in microseconds, stats."""


def build_xspace(
    planes: Mapping[str, Mapping[str, Sequence[Event]]], *, warnings: Sequence[str] = (), timestamp_us: int = 0
) -> bytes:
    """An XSpace with these planes, lines and events. Strings go through references as the profiler's own do."""
    space = XSpace(warnings=list(warnings))
    for plane_name, lines in planes.items():
        plane = space.planes.add(name=plane_name)
        events: dict[str, int] = {}
        stats: dict[str, int] = {}

        def stat_id(name: str, plane: Any = plane, stats: dict[str, int] = stats) -> int:
            if name not in stats:
                stats[name] = len(stats) + 1
                plane.stat_metadata[stats[name]].id = stats[name]
                plane.stat_metadata[stats[name]].name = name
            return stats[name]

        for line_id, (line_name, rows) in enumerate(lines.items()):
            line = plane.lines.add(id=line_id, name=line_name, timestamp_ns=timestamp_us * 1000)
            for name, start_us, duration_us, values in rows:
                if name not in events:
                    events[name] = len(events) + 1
                    plane.event_metadata[events[name]].id = events[name]
                    plane.event_metadata[events[name]].name = name
                event = line.events.add(
                    metadata_id=events[name],
                    offset_ps=round((start_us - timestamp_us) * 1e6),
                    duration_ps=round(duration_us * 1e6),
                )
                for key, value in values.items():
                    stat = event.stats.add(metadata_id=stat_id(key))
                    if isinstance(value, str):
                        stat.ref_value = stat_id(value)
                    elif isinstance(value, float):
                        stat.double_value = value
                    elif value >= 2**63:
                        stat.uint64_value = value
                    else:
                        stat.int64_value = value
    return space.SerializeToString()


@pytest.fixture
def xspace() -> Callable[..., bytes]:
    return build_xspace


@pytest.fixture
def op() -> Callable[..., Event]:
    """An HLO op event as XLA's CPU executor writes it."""

    def make(
        name: str,
        start_us: float,
        duration_us: float,
        *,
        run: int = 1,
        device: int = 0,
        module: str = "jit_step",
        program: int = 7,
        flow: int | None = None,
    ) -> Event:
        stats: dict[str, Any] = {
            "hlo_op": name, "hlo_module": module, "program_id": program, "run_id": run, "device_ordinal": device,
        }  # fmt: skip
        return name, start_us, duration_us, stats if flow is None else {**stats, "_p": flow}

    return make
