"""Events whose times cannot be."""

from __future__ import annotations

from jaxprof.trace.read import read_timeline


def test_e16_impossible_times_are_dropped_and_counted_by_reason(xspace, op):
    """(0, 0), (100, -5), (200, 7.4e15 us) and (300, 10): one valid event, a span of 10 us."""
    events = [op("a", 0, 0), op("b", 100, -5), op("c", 200, 7.4e12), op("d", 300, 10)]
    timeline = read_timeline(xspace({"/host:CPU": {"t": events}}), {})
    assert timeline.intervals.select("op", "start_ps", "end_ps").rows() == [("d", 0, 10_000_000)]
    assert timeline.steps.select("start_ps", "end_ps").rows() == [(0, 10_000_000)]
    assert [note for note in timeline.notes if note.startswith("dropped")] == [
        "dropped 1 events with a duration of more than a day",
        "dropped 1 events with a negative duration",
        "dropped 1 events with no time at all",
    ]


def test_e16_a_negative_start_is_dropped_too(xspace, op):
    timeline = read_timeline(xspace({"/host:CPU": {"t": [op("a", -50, 10), op("d", 300, 10)]}}), {})
    assert timeline.intervals["op"].to_list() == ["d"]
    assert "dropped 1 events with a start before the clock's zero" in timeline.notes
