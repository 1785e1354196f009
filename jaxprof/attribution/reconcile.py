"""Reconciliation: the model's FLOPs, the compiled and the executed ones, and a name for each difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from jaxprof.attribution.facts import ModelFacts
from jaxprof.attribution.measures import OpMeasure
from jaxprof.attribution.work import Work, compiled_flops_range
from jaxprof.hardware.device import DeviceSpec
from jaxprof.hlo.op_cost import ModuleCosts

_GROUPS = {
    "attention": ("attention.qkv", "attention.core", "attention.out"),
    "MLP": ("mlp",),
    "experts": ("moe.router", "moe.experts"),
    "output layer": ("unembed", "loss"),
}
"""Parts whose FLOPs are compared as one: where two of them meet in one matmul, metadata names only one."""
_EXTRA = {
    "attention": "attention: heads replicated or padded",
    "MLP": "MLP: replicated or padded",
    "experts": "experts: capacity and padding",
    "output layer": "output layer: vocabulary padding, or tokens whose logits are not needed",
}
_MISSING = {
    "attention": "attention: masked positions that the kernel skips",
    "MLP": "MLP: model FLOPs that did not run",
    "experts": "experts: tokens dropped or gradients not needed",
    "output layer": "output layer: model FLOPs that did not run",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """FLOPs of one step over all devices; None where unknown."""

    model_causal: int | None
    model_full: int | None
    compiled: int | None
    compiled_range: tuple[int, int | None]
    """The least and the most that branches and loops allow; None where there is no limit."""
    executed: int | None
    differences: tuple[tuple[str, int], ...]
    """Name and FLOPs: these lead from ``model_causal`` (where there is a model) to ``executed`` (else ``compiled``)."""
    unknown_kernels: tuple[str, ...]


def reconcile(
    costs: ModuleCosts,
    num_devices: int,
    model: ModelFacts | None,
    compiled: Work,
    executed: Work | None,
    measures: Mapping[tuple[str, str], OpMeasure],
) -> Reconciliation:
    """``compiled`` and ``executed`` are one device's work; ``executed`` is None where nothing was traced."""
    low, high = compiled_flops_range(costs)
    least = round(compiled.total * num_devices)
    executed_total = None if executed is None else round(executed.total * num_devices)
    differences: list[tuple[str, int]] = []
    if model is not None and least:
        differences += _model_differences(model, compiled, num_devices)
    if executed_total is not None and executed_total != least:
        differences += _trace_differences(costs, measures, num_devices, executed_total - least)
    return Reconciliation(
        model_causal=model.flops_causal if model else None,
        model_full=model.flops_full if model else None,
        compiled=low * num_devices if low == high else None,
        compiled_range=(low * num_devices, None if high is None else high * num_devices),
        executed=executed_total,
        differences=tuple(differences),
        unknown_kernels=unknown_kernels(costs),
    )


def unknown_kernels(costs: ModuleCosts) -> tuple[str, ...]:
    """Kernels whose FLOPs are unknown, each name once, with the number of instructions where there are several."""
    count: dict[str, int] = {}
    for cost in costs.ops:
        if cost.unknown:
            count[cost.unknown] = count.get(cost.unknown, 0) + 1
    return tuple(name if number == 1 else f"{name} ({number} instructions)" for name, number in sorted(count.items()))


def _model_differences(model: ModelFacts, compiled: Work, num_devices: int) -> list[tuple[str, int]]:
    """From the model's causal FLOPs to the compiled ones, exactly: what has no name of its own is the last row."""
    rows: list[tuple[str, int]] = []
    if masked := model.flops_full - model.flops_causal:
        rows.append(("masked attention", masked))
    if recompute := round(compiled.recompute * num_devices):
        rows.append(("recompute", recompute))
    if sum(model.flops_parts.values()) == model.flops_full:
        for group, parts in _GROUPS.items():
            of_model = sum(model.flops_parts.get(part, 0) for part in parts)
            ran = round(sum(compiled.by_part.get(part, Fraction(0)) for part in parts) * num_devices)
            if extra := ran - of_model:
                rows.append(((_EXTRA if extra > 0 else _MISSING)[group], extra))
    named = model.flops_causal + sum(flops for _, flops in rows)
    if rest := round(compiled.total * num_devices) - named:
        rows.append(("other matmuls that are not the model's" if rest > 0 else "model FLOPs that did not run", rest))
    return rows


def _trace_differences(
    costs: ModuleCosts, measures: Mapping[tuple[str, str], OpMeasure], num_devices: int, difference: int
) -> list[tuple[str, int]]:
    """Why the executed FLOPs are not the compiled ones: branches and loops with a range, then what the trace lacks."""
    ranged = Fraction(0)
    for cost in costs.ops:
        if cost.flops and cost.executions.exact is None:
            measure = measures.get((costs.module, cost.op))
            ran = measure.executions if measure else Fraction(0)
            ranged += sum(cost.flops.values()) * (ran - cost.executions.low)
    rows: list[tuple[str, int]] = []
    if branches := round(ranged * num_devices):
        rows.append(("branches and loops beyond their least", branches))
    if rest := difference - branches:
        rows.append(("not in the trace" if rest < 0 else "executed more often than compiled", rest))
    return rows


def utilisation_by_peak(
    flops: int | None, work: Work, device: DeviceSpec | None, step_time_s: float | None, num_devices: int
) -> dict[str, float]:
    """FLOPs of one step over all devices against the peak of each dtype that ran, as if all were of that dtype.

    Of use only beside the time-weighted figure, where dtypes are mixed; empty otherwise.
    """
    if flops is None or device is None or not step_time_s or len(work.by_dtype) < 2:
        return {}
    return {
        dtype: flops / (num_devices * device.peak_flops_per_s[dtype] * step_time_s)
        for dtype in sorted(work.by_dtype)
        if dtype in device.peak_flops_per_s
    }


def bounds_of(compute_s: float | None, hbm_s: float | None, link_s: float | None) -> list[float | None] | None:
    """[max, sum] of the times that a device's FLOPs, HBM traffic and collectives take at full speed.

    All but perfect overlap lies between. Where a part is unknown the maximum of the others is still a lower bound, and
    there is no upper one; None where all are unknown.
    """
    parts = (compute_s, hbm_s, link_s)
    known = [part for part in parts if part is not None]
    if not known:
        return None
    return [max(known), sum(known) if len(known) == len(parts) else None]
