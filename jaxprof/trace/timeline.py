"""A timeline: when each op ran on each device. Measured and predicted timelines are this one type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

INTERVALS = pl.Schema(
    {
        "device": pl.Int32(),  # position in the mesh
        "step": pl.Int32(),  # 0, 1, ... within the traced window
        "program": pl.String(),  # HLO module name
        "op": pl.String(),  # instruction name, as in OpCost.op
        "start_ps": pl.Int64(),  # since the timeline's origin
        "end_ps": pl.Int64(),
        "wait_ps": pl.Int64(),  # of a collective: the leading part spent before its last participant arrived
        "stream": pl.String(),  # "ops" (the in-order stream), "async" (beside it), "host" (infeed, copies, dispatch)
    }
)
"""One row per executed op. Rows hold self time: an op that nests others is cut to what is left of it, so one op may
have several rows in one execution; ``occurrence`` counts executions, not rows."""

STEPS = pl.Schema(
    {"device": pl.Int32(), "step": pl.Int32(), "start_ps": pl.Int64(), "end_ps": pl.Int64(), "busy_end_ps": pl.Int64()}
)
"""One row per device and step. The step lasts from its first op to the next step's first op (``end_ps``); the last one
ends with its last op. After ``busy_end_ps`` nothing of this step runs: the rest is a gap that host dispatch causes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Intervals and steps, both sorted by device and start."""

    evidence: Literal["measured", "predicted"]
    intervals: pl.DataFrame
    """Columns of INTERVALS plus ``occurrence`` (Int32): which execution of the op in its step on its device, from 0."""
    steps: pl.DataFrame
    """Columns of STEPS."""
    notes: tuple[str, ...] = ()
    """What was lost or inferred, one line each: dropped events, incomplete steps left out, inferred steps."""
