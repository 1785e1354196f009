"""The MFU waterfall: from the time that the model's FLOPs take at peak to the time that the step took.

Each bar is the difference of two levels, so the bars telescope to the step time whatever the figures are. A bar that
comes out negative gets the name of what was gained instead of lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from jaxprof.attribution.breakdown import MeanStep
from jaxprof.attribution.measures import OpMeasure
from jaxprof.attribution.roofline import Price, compute_time_s
from jaxprof.attribution.work import Work
from jaxprof.hardware.device import DeviceSpec, Provenance
from jaxprof.hlo.op_cost import ModuleCosts


@dataclass(frozen=True, slots=True)
class Bar:
    """Seconds of a step lost to one cause, on one device (the mean of all)."""

    cause: str
    seconds: float
    provenance: Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class AtPeak:
    """Seconds that a device would take for FLOPs at its dense peaks, each dtype at its own."""

    model_s: float | None
    """The model's FLOPs, spread over the dtypes as the executed ones are."""
    recompute_s: float
    executed_s: float


def at_peak(model_flops: int | None, work: Work, device: DeviceSpec, num_devices: int) -> AtPeak | None:
    """Ideal times of the model's FLOPs (all devices, one step) and of the executed ``work`` (one device).

    None where a dtype that ran has no peak.
    """
    executed_s = compute_time_s(_floats(work.by_dtype), device)
    recompute_s = compute_time_s(_floats(work.recompute_by_dtype), device)
    if executed_s is None or recompute_s is None:
        return None
    model_s = None
    if model_flops is not None and work.total:
        share = Fraction(model_flops, num_devices) / work.total
        model_s = compute_time_s(_floats({dtype: count * share for dtype, count in work.by_dtype.items()}), device)
    return AtPeak(model_s=model_s, recompute_s=recompute_s, executed_s=executed_s)


def waterfall(
    step: MeanStep,
    peak: AtPeak,
    costs: ModuleCosts,
    prices: Mapping[str, Price],
    measures: Mapping[tuple[str, str], OpMeasure],
) -> list[Bar]:
    """The bars of ``step``, whose parts are those of the step time to end at. Without a model the first bar is the
    executed FLOPs at peak."""
    ran = [(prices[cost.op], measures.get((costs.module, cost.op)), cost.unknown) for cost in costs.ops]
    unpriced_s = sum(measure.own_s for _, measure, unknown in ran if measure and unknown) * step.scale
    over_hbm_s = _time_over_hbm(ran)
    on_device_s = step.parts_s["compute"] + step.parts_s["hbm"]

    levels: list[tuple[str, str, float, Provenance]] = []
    if peak.model_s is None:
        levels.append(("executed FLOPs at peak", "", peak.executed_s, "formula"))
    else:
        levels.append(("ideal", "", peak.model_s, "formula"))
        level = peak.model_s + peak.recompute_s
        levels.append(("recompute", "", level, "compiled"))
        levels.append(("FLOPs that are not the model's", "model FLOPs that did not run", peak.executed_s, "compiled"))
    reached = peak.executed_s
    if over_hbm_s is None:
        lost, gained = "HBM traffic and kernels below their roofline", "kernels faster than their peak"
    else:
        reached += over_hbm_s
        levels.append(("time bound by HBM", "", reached, "compiled"))
        lost, gained = "kernels below their roofline", "kernels faster than their roofline"
    if unpriced_s:
        reached += unpriced_s
        levels.append(("kernels of unknown cost", "", reached, "measured"))
    levels.append((lost, gained, on_device_s, "measured"))
    reached = on_device_s
    for cause, seconds in (
        ("exposed transfer", step.parts_s["transfer"]),
        ("wait", step.parts_s["wait"]),
        ("host", step.parts_s["host"]),
        ("idle", step.parts_s["idle"]),
        ("ops that the module does not have", step.unexplained_s),
    ):
        if cause != "ops that the module does not have" or seconds:
            reached += seconds
            levels.append((cause, "", reached, "measured"))
    bars: list[Bar] = []
    before = 0.0
    for lost, gained, level, provenance in levels:
        seconds = level - before
        bars.append(Bar(gained if seconds < 0 and gained else lost, seconds, provenance))
        before = level
    return bars


def _time_over_hbm(ran: list[tuple[Price, OpMeasure | None, str | None]]) -> float | None:
    """What HBM traffic adds to the FLOPs' time over all ops; None where bandwidth is unknown."""
    total = 0.0
    for price, measure, unknown in ran:
        if measure is None or unknown or price.resource not in ("compute", "hbm"):
            continue
        if price.hbm_s is None or price.compute_s is None:
            return None
        total += max(0.0, price.hbm_s - price.compute_s) * float(measure.executions)
    return total


def _floats(work: Mapping[str, Fraction]) -> dict[str, float]:
    return {dtype: float(count) for dtype, count in work.items()}
