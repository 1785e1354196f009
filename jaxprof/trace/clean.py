"""Events that cannot be: clocks that were never set, durations of centuries."""

from __future__ import annotations

import polars as pl

_LONGEST_PS = 24 * 3600 * 10**12
"""A day. Profiler sessions last seconds; events longer than this come from an end that was never written."""


def drop_impossible(events: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The events whose ``start_ps`` and ``duration_ps`` can be, and a note for each reason that others were dropped."""
    start, duration = pl.col("start_ps"), pl.col("duration_ps")
    reason = (
        pl.when((start == 0) & (duration == 0))
        .then(pl.lit("no time at all"))
        .when(start < 0)
        .then(pl.lit("a start before the clock's zero"))
        .when(duration < 0)
        .then(pl.lit("a negative duration"))
        .when(duration > _LONGEST_PS)
        .then(pl.lit("a duration of more than a day"))
    )
    marked = events.with_columns(reason.alias("_reason"))
    dropped = marked.drop_nulls("_reason").group_by("_reason").len().sort("_reason")
    notes = tuple(f"dropped {count} events with {why}" for why, count in dropped.iter_rows())
    return marked.filter(pl.col("_reason").is_null()).drop("_reason"), notes
