"""Events nest, and a reader who takes children from their parents finds each op's own time."""

from __future__ import annotations

import random
from collections import Counter

import polars as pl
import pytest

from jaxprof.report.nesting import Event, nest
from jaxprof.trace.timeline import INTERVALS

Row = tuple[str, int, int, int]
"""op, occurrence, start, end."""


def frame(rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"device": 0, "step": 0, "program": "m", "op": op, "start_ps": start, "end_ps": end, "wait_ps": 0,
             "stream": "ops", "occurrence": occurrence}
            for op, occurrence, start, end in rows
        ],
        schema={**INTERVALS, "occurrence": pl.Int32()},
    )  # fmt: skip


def read(lane: list[Event]) -> Counter[str | None]:
    """Self time by op, as XProf has it: an event's time without that of the events directly inside it."""
    own: Counter[str | None] = Counter()
    inside: list[Event] = []
    for event in lane:
        while inside and not (inside[-1].start_ps <= event.start_ps and event.end_ps <= inside[-1].end_ps):
            inside.pop()
        if inside:
            own[inside[-1].op] -= event.end_ps - event.start_ps
        own[event.op] += event.end_ps - event.start_ps
        inside.append(event)
    return own


def test_only_nobodys_time_inside_an_op_is_marked() -> None:
    rows = [("loop", 0, 0, 10), ("a", 0, 10, 30), ("a", 1, 35, 50), ("loop", 0, 50, 60), ("b", 0, 70, 80)]
    [lane] = nest(frame(rows))
    assert [(event.op, event.start_ps, event.end_ps) for event in lane] == [
        ("loop", 0, 60), ("a", 10, 30), (None, 30, 35), ("a", 35, 50), ("b", 70, 80),
    ]  # fmt: skip


def test_ops_that_cross_go_onto_lanes_of_their_own() -> None:
    rows = [("a", 0, 0, 40), ("b", 0, 40, 60), ("a", 0, 60, 80), ("b", 0, 80, 90)]
    lanes = nest(frame(rows))
    assert sorted(event.op for lane in lanes for event in lane if event.op) == ["a", "b"]
    assert len(lanes) == 2


def test_an_op_inside_anothers_own_time_is_beside_it() -> None:
    lanes = nest(frame([("long", 0, 0, 100), ("short", 0, 10, 20)]))
    assert [[event.op for event in lane] for lane in lanes] in ([["long"], ["short"]], [["short"], ["long"]])


def test_what_takes_no_time_is_an_execution_too() -> None:
    [lane] = nest(frame([("a", 0, 0, 10), ("b", 0, 5, 5), ("b", 1, 10, 10)]))
    assert Counter(event.op for event in lane) == {"a": 1, "b": 2}


@pytest.mark.parametrize("seed", range(30))
def test_any_timeline_keeps_its_times_and_executions(seed: int) -> None:
    chance = random.Random(seed)
    rows: list[Row] = []
    for occurrence in range(40):
        time = chance.randrange(400)
        for _ in range(chance.choice((1, 1, 2, 4))):
            end = time + chance.randrange(30)
            rows.append(
                (chance.choice("abc") if not rows or rows[-1][1] != occurrence else rows[-1][0], occurrence, time, end)
            )
            time = end + chance.randrange(1, 40)
    lanes = nest(frame(rows))
    times = sum((read(lane) for lane in lanes), Counter())
    expected: Counter[str] = Counter()
    for op, _, start, end in rows:
        expected[op] += end - start
    assert {op: times[op] for op in expected} == expected
    executions = Counter(event.op for lane in lanes for event in lane if event.op)
    assert executions == Counter(op for op, _ in {(op, occurrence) for op, occurrence, _, _ in rows})
