"""The step breakdown: each instant of each step on each device belongs to exactly one activity.

A sweep over the boundaries of all intervals, in integer picoseconds, so that the activities of a step sum to its wall
time exactly. Where several ops run at once, the first of these has the instant:

    compute > hbm > unknown (an op that the module does not have) > transfer > wait > host > idle

So a collective beside the ops stream is exposed only while no op runs there. What is left between a step's last op and
the next step's first one is host time (a dispatch gap); a gap between ops is idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

ACTIVITIES = ("compute", "hbm", "unknown", "transfer", "wait", "host")
"""What an interval can be, by priority; nothing at all is idle."""
PARTS = ("compute", "hbm", "transfer", "wait", "host", "idle")
"""The parts of a breakdown; what is ``unknown`` stands in ``unexplained`` instead."""
BREAKDOWN = pl.Schema(
    {
        "device": pl.Int32(),
        "step": pl.Int32(),
        "wall_s": pl.Float64(),
        **{f"{part}_s": pl.Float64() for part in PARTS},
        "overlapped_collective_s": pl.Float64(),  # in flight while the device computes; not one of the parts
        "unexplained_s": pl.Float64(),  # wall time that is none of the parts: ops that the module does not have
    }
)
PS_PER_S = 1e12

_UNKNOWN, _TRANSFER, _WAIT, _HOST = (ACTIVITIES.index(name) for name in ("unknown", "transfer", "wait", "host"))
_IDLE = len(ACTIVITIES)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Which activity had each instant."""

    steps: pl.DataFrame
    """One row per device and step; Int64 picoseconds of wall, the PARTS, overlapped_collective and unexplained."""
    intervals: pl.DataFrame
    """The intervals given, with ``main_ps`` and ``waiting_ps``: the time that is each one's own after, and during, its
    leading wait. Simultaneous ones of one activity share an instant evenly, so all of them sum to the parts."""
    outside_ps: int
    """Picoseconds in which something ran on a device outside of all of its steps."""

    def breakdown(self) -> pl.DataFrame:
        """The steps in seconds, as BREAKDOWN has them."""
        seconds = (
            pl.col(name.removesuffix("_s")).truediv(PS_PER_S).alias(name) for name in BREAKDOWN if name[-2:] == "_s"
        )
        return self.steps.select("device", "step", *seconds)


def sweep(intervals: pl.DataFrame, steps: pl.DataFrame) -> Sweep:
    """Attribute every instant of ``steps`` (the columns of trace.timeline.STEPS).

    ``intervals`` has device, start_ps, end_ps, wait_ps and ``activity``: one of ACTIVITIES, or null for a row that
    keeps nothing busy.
    """
    codes = pl.DataFrame({"activity": ACTIVITIES, "code": range(len(ACTIVITIES))}, schema_overrides={"code": pl.Int64})
    coded = intervals.with_row_index("_row").join(codes, on="activity", how="left", maintain_order="left")
    main, waiting = np.zeros(len(coded)), np.zeros(len(coded))
    parts: list[dict[str, Any]] = []
    outside = 0
    for (device,), windows in steps.sort("device", "start_ps").group_by("device", maintain_order=True):
        rows = coded.filter((pl.col("device") == device) & pl.col("code").is_not_null())
        found = _sweep_device(
            _ints(rows, "start_ps"), _ints(rows, "wait_ps"), _ints(rows, "end_ps"), _ints(rows, "code"), windows
        )
        index = rows["_row"].to_numpy()
        main[index], waiting[index] = found.main, found.waiting
        parts += found.steps
        outside += found.outside
    durations = {name: pl.Int64() for name in ("wall", *PARTS, "overlapped_collective", "unexplained")}
    return Sweep(
        steps=pl.DataFrame(parts, schema={"device": pl.Int32(), "step": pl.Int32(), **durations}),
        intervals=intervals.with_columns(main_ps=pl.Series(main), waiting_ps=pl.Series(waiting)),
        outside_ps=outside,
    )


@dataclass(frozen=True, slots=True)
class _Swept:
    main: npt.NDArray[np.float64]
    waiting: npt.NDArray[np.float64]
    steps: list[dict[str, Any]]
    outside: int


def _sweep_device(start: Ints, wait: Ints, end: Ints, code: Ints, windows: pl.DataFrame) -> _Swept:
    """Cut one device's time at every boundary; each segment between two of them belongs to one activity as a whole."""
    first, busy_end, last = (_ints(windows, name) for name in ("start_ps", "busy_end_ps", "end_ps"))
    middle = np.minimum(start + wait, end)
    points, places = np.unique(np.concatenate([start, middle, end, first, busy_end, last]), return_inverse=True)
    n, w = len(start), len(first)
    at_start, at_middle, at_end, at_first, at_busy, at_last = np.split(places, np.cumsum([n, n, n, w, w]))
    lengths = np.diff(points)

    def active(begins: Ints, ends: Ints) -> Ints:
        """How many of the spans cover each segment."""
        count = len(points)
        return np.cumsum(np.bincount(begins, minlength=count) - np.bincount(ends, minlength=count))[:-1]

    running = [active(at_middle[code == k], at_end[code == k]) for k in range(len(ACTIVITIES))]
    running[_WAIT] = running[_WAIT] + active(at_start, at_middle)
    inside = active(at_first, at_last) > 0
    owner = np.full(len(lengths), _IDLE)
    for k in reversed(range(len(ACTIVITIES))):
        owner[running[k] > 0] = k
    idle_as_host = (owner == _IDLE) & (active(at_busy, at_last) > 0)
    in_flight = (running[_TRANSFER] + running[_WAIT] > 0) & (owner <= _UNKNOWN)

    def within(chosen: npt.NDArray[np.bool_]) -> Ints:
        """Time of the chosen segments in each step."""
        total = np.concatenate([[0], np.cumsum(np.where(chosen, lengths, 0))])
        return total[at_last] - total[at_first]

    spent = {
        "wall": last - first,
        "compute": within(owner == 0),
        "hbm": within(owner == 1),
        "transfer": within(owner == _TRANSFER),
        "wait": within(owner == _WAIT),
        "host": within((owner == _HOST) | idle_as_host),
        "idle": within((owner == _IDLE) & ~idle_as_host),
        "overlapped_collective": within(in_flight),
        "unexplained": within(owner == _UNKNOWN),
    }
    numbers = windows.select("device", "step").iter_rows(named=True)
    rows = [{**row, **{name: int(values[i]) for name, values in spent.items()}} for i, row in enumerate(numbers)]

    shares = [
        np.concatenate([[0.0], np.cumsum(np.where(inside & (owner == k), lengths / np.maximum(running[k], 1), 0.0))])
        for k in range(len(ACTIVITIES))
    ]
    main = np.zeros(n)
    for k, share in enumerate(shares):
        of_kind = code == k
        main[of_kind] = share[at_end[of_kind]] - share[at_middle[of_kind]]
    waiting = shares[_WAIT][at_middle] - shares[_WAIT][at_start]
    outside = int(lengths[(owner != _IDLE) & ~inside].sum())
    return _Swept(main, waiting, rows, outside)


def _ints(frame: pl.DataFrame, column: str) -> Ints:
    return frame[column].cast(pl.Int64).to_numpy()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanStep:
    """One step, in seconds, averaged over devices and steps."""

    wall_s: float
    """Of the slowest device, the median over the steps."""
    parts_s: dict[str, float]
    """By PARTS; with ``unexplained_s`` they sum to the mean wall time of the devices."""
    unexplained_s: float
    overlapped_collective_s: float
    scale: float = 1.0
    """Seconds here for each second of the timeline."""

    def scaled(self, wall_s: float) -> MeanStep:
        """The same shares of a step that takes ``wall_s``."""
        total = sum(self.parts_s.values()) + self.unexplained_s
        factor = wall_s / total if total else 0.0
        return MeanStep(
            wall_s=wall_s,
            parts_s={part: seconds * factor for part, seconds in self.parts_s.items()},
            unexplained_s=self.unexplained_s * factor,
            overlapped_collective_s=self.overlapped_collective_s * factor,
            scale=self.scale * factor,
        )


def mean_step(breakdown: pl.DataFrame) -> MeanStep | None:
    """The mean of a BREAKDOWN; None where it is empty.

    The last step of a trace ends with its last op, so its dispatch gap is unknown: where there are others it is left
    out.
    """
    if breakdown.is_empty():
        return None
    whole = whole_steps(breakdown)
    walls = whole.group_by("step").agg(pl.col("wall_s").max())["wall_s"]
    means = whole.select(pl.col("^.*_s$").mean()).row(0, named=True)
    return MeanStep(
        wall_s=float(np.median(walls.to_numpy())),
        parts_s={part: means[f"{part}_s"] for part in PARTS},
        unexplained_s=means["unexplained_s"],
        overlapped_collective_s=means["overlapped_collective_s"],
    )


def by_device(breakdown: pl.DataFrame, step: MeanStep) -> list[dict[str, float]]:
    """The same of each device on its own: ``device`` and the PARTS in seconds, at the scale of ``step``."""
    means = whole_steps(breakdown).group_by("device").agg(pl.col(f"{part}_s").mean().alias(part) for part in PARTS)
    return means.sort("device").with_columns(pl.col(PARTS) * step.scale).to_dicts()


def whole_steps(breakdown: pl.DataFrame) -> pl.DataFrame:
    """The steps whose dispatch gap is known; all of them where a device has one only."""
    whole = breakdown.filter(pl.col("step") < pl.col("step").max())
    return breakdown if whole.is_empty() else whole
