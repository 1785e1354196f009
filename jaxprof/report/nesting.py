"""One device's rows of a timeline as events that nest, because XProf takes an event's children from its time.

An op that others interrupt has several rows in the timeline, and its time is their sum; XProf counts an execution for
every event, so it needs one event from the first row to the last, with the rest taken away again by what lies inside.
On a CPU mesh ops also run side by side on one device, and then neither lies inside the other. So the events go onto as
few lanes as it takes for each to be either apart from another or wholly inside one of its gaps; what remains of a gap
is nobody's on that lane and gets an event without an op. XProf then finds each op's own time exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl


@dataclass(frozen=True, slots=True)
class Event:
    """One execution of an op, or time inside one that is not its own (``op`` is None)."""

    program: str
    op: str | None
    start_ps: int
    end_ps: int
    step: int


@dataclass(slots=True)
class _Open:
    """An event that later ones may lie inside of."""

    end_ps: int
    gaps: list[tuple[int, int]]
    """Between its rows, in order; what its children take is cut off."""

    def takes(self, start_ps: int, end_ps: int) -> bool:
        return any(first <= start_ps and end_ps <= last for first, last in self.gaps)

    def give(self, start_ps: int, end_ps: int) -> list[tuple[int, int]]:
        """Hand a part of a gap to a child; returns what of the gaps lies before it."""
        before = [(first, min(last, start_ps)) for first, last in self.gaps if first < start_ps]
        self.gaps = [(max(first, end_ps), last) for first, last in self.gaps if last > end_ps]
        return before


@dataclass(slots=True)
class _Lane:
    events: list[Event] = field(default_factory=list)
    open: list[tuple[Event, _Open]] = field(default_factory=list)

    def put(self, event: Event, gaps: list[tuple[int, int]]) -> bool:
        """Add ``event`` where it fits; False where it would cross another one. What takes no time fits anywhere."""
        if event.end_ps == event.start_ps:
            self.events.append(event)
            return True
        while self.open and self.open[-1][1].end_ps <= event.start_ps:
            self._close()
        if self.open and not self.open[-1][1].takes(event.start_ps, event.end_ps):
            return False
        if self.open:
            parent, state = self.open[-1]
            self._leave(parent, state.give(event.start_ps, event.end_ps))
        self.events.append(event)
        self.open.append((event, _Open(event.end_ps, gaps)))
        return True

    def finish(self) -> list[Event]:
        while self.open:
            self._close()
        return sorted(self.events, key=lambda event: (event.start_ps, -event.end_ps))

    def _close(self) -> None:
        event, state = self.open.pop()
        self._leave(event, state.gaps)

    def _leave(self, event: Event, gaps: list[tuple[int, int]]) -> None:
        self.events += [Event(event.program, None, first, last, event.step) for first, last in gaps if last > first]


def nest(intervals: pl.DataFrame) -> list[list[Event]]:
    """Lanes of events in order of start, parents before their children; the fullest first.

    ``intervals`` are one device's (columns of INTERVALS and ``occurrence``).
    """
    executions = (
        intervals.sort("start_ps")
        .group_by("program", "op", "step", "occurrence", maintain_order=True)
        .agg(starts="start_ps", ends="end_ps", first=pl.col("start_ps").min(), last=pl.col("end_ps").max())
        .sort("first", "last", descending=[False, True])
    )
    lanes: list[_Lane] = []
    for program, op, step, _, starts, ends, first, last in executions.iter_rows():
        event = Event(program, op, first, last, step)
        gaps = [(a, b) for a, b in zip(ends[:-1], starts[1:], strict=True) if b > a]
        if not any(lane.put(event, list(gaps)) for lane in lanes):
            lanes.append(_Lane())
            lanes[-1].put(event, gaps)
    return sorted((lane.finish() for lane in lanes), key=len, reverse=True)
