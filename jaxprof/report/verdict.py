"""The sentence that a report starts with, and what its figures mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxprof.report.text import percent, seconds

PARTS = (
    ("compute", "compute", "an op bound by compute runs"),
    ("hbm", "HBM traffic", "an op bound by memory runs"),
    ("transfer", "transfer", "a collective moves data, nothing computes"),
    ("wait", "waiting", "a collective waits for its last participant"),
    ("host", "host", "infeed, copies, dispatch gaps"),
    ("idle", "idle", "nothing runs"),
)
"""Key in run.json's breakdown, name, meaning."""


def verdict(summary: Mapping[str, Any]) -> str:
    """One or two sentences: how long a step takes, and what takes most of it."""
    parts, step = summary["breakdown_s"] or {}, summary["step_time_s"]
    known = {name: parts[key] for key, name, _ in PARTS if parts.get(key) is not None}
    if len(known) < len(PARTS) or not step:
        return _unrun(summary)
    total = sum(known.values())
    first, second = sorted(known, key=lambda name: -known[name])[:2]
    sentence = (
        f"A step takes {seconds(step)}; {percent(known[first] / total)} of it is {first}, "
        f"then {second} with {percent(known[second] / total)}."
    )
    bars = [bar for bar in summary["waterfall_s"] or () if bar["seconds"] is not None and bar["cause"] != "ideal"]
    if bars:
        worst = max(bars, key=lambda bar: bar["seconds"])
        sentence += f" The largest loss against the ideal is {worst['cause']}: {seconds(worst['seconds'])}."
    return sentence


def _unrun(summary: Mapping[str, Any]) -> str:
    low, high = summary["step_time_bounds_s"] or (None, None)
    if low is None:
        return "Nothing was run, and no peaks are known: these are the compiled program's costs, without times."
    return (
        f"Nothing was run: by the compiled program's costs a step takes {seconds(low)} at least, "
        f"and {seconds(high)} if nothing overlaps."
    )


def conventions(summary: Mapping[str, Any]) -> str:
    """What the figures mean, for those who compare them with others'."""
    text = (
        "FLOPs are 2mnk a matmul, over all devices; peaks are dense, for the operands' dtype; MFU leaves recompute "
        "out, HFU counts what ran; times, bytes and memory are one device's, per step."
    )
    if summary["evidence"] == "measured" and summary["target"]["device"] == "cpu":
        text += " A simulated mesh shares this machine's cores: its shares and counts mean something, its times do not."
    return text
