"""The first line of a report, in words: what a step's time goes into, and the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from jaxprof.attribution.breakdown import PARTS, whole_steps

_PREDICATE = {
    "compute": "Ops bound by compute take",
    "hbm": "Ops bound by HBM traffic take",
    "transfer": "Collectives moving data while nothing computes take",
    "wait": "Wait on collectives takes",
    "host": "The host (dispatch gaps, infeed, callbacks) takes",
    "idle": "Idle time inside the program takes",
}
_STRAGGLER = 0.5
"""A device that waits for less than this fraction of what the median device waits is the one that others wait for."""
_WORTH_NAMING = 0.05


def verdict(summary: Mapping[str, Any], ops: pl.DataFrame, breakdown: pl.DataFrame, *, simulated: bool) -> str:
    """One to three sentences: the largest part of the step, its evidence, and what a simulated mesh's times mean."""
    parts = summary["breakdown_s"]
    total = sum(value for value in parts.values() if value is not None)
    if not total:
        return _without_times(summary)
    largest = max(PARTS, key=lambda part: parts[part])
    sentence = f"{_PREDICATE[largest]} {parts[largest] / total:.0%} of the step ({_evidence(largest, summary, ops)})."
    if (straggler := _straggler(breakdown)) is not None:
        sentence += f" {straggler}"
    if simulated:
        sentence += (
            f" This is a simulated mesh: its {summary['target']['devices']} devices share one machine's cores, so "
            "FLOPs, bytes and collectives are the program's own, while times say nothing about an accelerator's."
        )
    return sentence


def _without_times(summary: Mapping[str, Any]) -> str:
    bounds = summary["step_time_bounds_s"]
    if summary["step_time_s"] is not None:
        least = (
            ""
            if bounds is None
            else f", {summary['step_time_s'] / bounds[0]:.1f} times what its program needs at least"
        )
        return f"A step takes {_time(summary['step_time_s'])}{least}; where the time goes is unknown without its trace."
    if bounds is None:
        return "Nothing was run and no peaks are known: these are the compiled program's costs, without times."
    low, high = bounds
    roofline = {name: seconds for name, seconds in summary["roofline_s"].items() if seconds is not None}
    longest = max(roofline, key=lambda name: roofline[name])
    names = {"compute": "FLOPs at peak", "hbm": "HBM traffic", "link": "collectives on their links"}
    upper = "" if high is None else f", {_time(high)} if nothing overlaps"
    return (
        f"Nothing was run. By the compiled program a step takes at least {low:.3g} s for its {names[longest]}{upper}."
    )


def _evidence(part: str, summary: Mapping[str, Any], ops: pl.DataFrame) -> str:
    match part:
        case "transfer" | "wait":
            column = "exposed_time" if part == "transfer" else "exposed_wait_time"
            return _largest_collective(ops, column) or "no single collective stands out"
        case "host":
            return "time in which no op of the program runs on the device"
        case "idle":
            return "gaps between the ops of one step"
    kernels = ops.filter(pl.col("bound").is_in(["compute", "hbm", "latency"]))
    time = "measured_time" if kernels["measured_time"].is_not_null().any() else "predicted_time"
    first = kernels.filter(pl.col(time).is_not_null()).sort(time, descending=True).head(1)
    said = []
    if part == "compute" and (hfu := summary["hfu"]) is not None:
        said.append(f"the step's FLOPs run at {hfu:.1%} of peak over the whole step")
    if not first.is_empty():
        row = first.row(0, named=True)
        said.append(f"the longest op is {row['op']}{_of_part(row['part'])}, {_time(row[time])}")
    return "; ".join(said) or "no single op stands out"


def _of_part(part: str | None) -> str:
    return f" in {part}" if part and part != "other" else ""


def _largest_collective(ops: pl.DataFrame, column: str) -> str | None:
    groups = (
        ops.filter(pl.col("collective").is_not_null() & (pl.col(column) > 0))
        .group_by("collective", "mesh_axes")
        .agg(pl.col(column).sum())
        .sort(column, "collective", descending=[True, False])
    )
    if groups.is_empty():
        return None
    kind, axes, seconds = groups.row(0)
    over = f" over {axes.replace(',', ' and ')}" if axes else ""
    return f"most of it in {kind}{over}: {_time(seconds)}"


def _straggler(breakdown: pl.DataFrame) -> str | None:
    """The one device that hardly waits while the others do."""
    waits = whole_steps(breakdown).group_by("device").agg(pl.col("wait_s", "wall_s").sum())
    shares = waits.select("device", share=pl.col("wait_s") / pl.col("wall_s")).sort("share", "device")
    if shares.height < 2:
        return None
    device, least = shares.row(0)
    following = shares["share"][1]
    if following < _WORTH_NAMING or least > _STRAGGLER * following:
        return None
    median = shares["share"][1:].median()
    return f"Device {device} waits least ({least:.0%} of its step, the others {median:.0%}): they wait for it."


def _time(seconds: float) -> str:
    scale, unit = next(((s, u) for s, u in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")) if seconds >= s), (1e-9, "ns"))
    return f"{seconds / scale:.3g} {unit}"
