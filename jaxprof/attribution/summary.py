"""run.json's object: every summary figure of one step, null where unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from jaxprof.attribution.breakdown import PARTS, MeanStep, by_device
from jaxprof.attribution.collectives import collectives
from jaxprof.attribution.environment import environment
from jaxprof.attribution.facts import ModelFacts, StepFacts, Timing
from jaxprof.attribution.measures import Measures, OpMeasure
from jaxprof.attribution.reconcile import Reconciliation, bounds_of, utilisation_by_peak
from jaxprof.attribution.roofline import Price, compute_time_s
from jaxprof.attribution.waterfall import AtPeak, waterfall
from jaxprof.attribution.work import Work, hbm_bytes, other_flops
from jaxprof.attribution.xla_figures import xla_figures
from jaxprof.hardware.device import DeviceSpec
from jaxprof.hlo.op_cost import ModuleCosts
from jaxprof.hlo.program import Program

if TYPE_CHECKING:
    from jaxprof.hlo.buffers import MemoryReport

SCHEMA = 1
CONVENTION = "causal"
"""Attention in the model's FLOPs counts attended pairs only; the other convention stands beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """One step's evidence, joined."""

    program: Program
    costs: ModuleCosts
    device: DeviceSpec | None
    facts: StepFacts
    timing: Timing | None
    memory: MemoryReport | None
    evidence: Literal["measured", "predicted"] | None
    """Of the timeline; None where there is none."""
    prices: Mapping[str, Price]
    measures: Measures | None
    ops: pl.DataFrame
    work: Work
    """Executed where measured, else compiled."""
    peak: AtPeak | None
    found: Reconciliation
    step: MeanStep | None
    """The mean traced step, scaled to ``step_time_s``."""
    step_time_s: float | None

    @property
    def op_measures(self) -> Mapping[tuple[str, str], OpMeasure]:
        return self.measures.ops if self.measures is not None else {}


def summarize(joined: Joined) -> dict[str, Any]:
    """All keys that design.md names, and more beside them; ``provenance``, ``warnings`` and ``verdict`` come later."""
    facts, step, step_time_s = joined.facts, joined.step, joined.step_time_s
    devices = joined.program.num_devices
    roofline = _roofline(joined)
    return {
        "schema": SCHEMA,
        "name": facts.name,
        "evidence": _evidence(joined),
        "step": facts.step,
        "model": _model(facts.model),
        "target": _target(joined),
        "mesh": dict(zip(mesh.names, mesh.sizes, strict=True)) if (mesh := joined.program.mesh) else {},
        "global_batch": facts.global_batch,
        "seq_len": facts.seq_len,
        "tokens_per_step": facts.tokens_per_step,
        "steps_measured": _steps(joined),
        "step_time_s": step_time_s,
        "step_time_bounds_s": bounds_of(*roofline.values()),
        "roofline_s": roofline,
        "tokens_per_s_per_device": (
            facts.tokens_per_step / step_time_s / devices if facts.tokens_per_step is not None and step_time_s else None
        ),
        "error_bar": None,
        "timing": _timing(joined.timing),
        "compile": {"seconds": joined.program.compile_s, "cached": joined.program.compile_cached},
        "flops": _flops(joined),
        **_utilisation(joined),
        "hbm_bytes": _hbm_bytes(joined),
        "breakdown_s": dict(step.parts_s) if step else dict.fromkeys(PARTS),
        "breakdown_by_device_s": by_device(joined.measures.breakdown, step) if joined.measures and step else [],
        "overlapped_collective_s": step.overlapped_collective_s if step else None,
        "unexplained_s": step.unexplained_s if step else None,
        "waterfall_s": _waterfall(joined),
        "collectives": collectives(joined.ops),
        "memory": _memory(joined),
        "xla": xla_figures(joined.costs, joined.program, joined.memory.peak_bytes if joined.memory else None),
        "environment": environment(joined.program.platform),
    }


def _evidence(joined: Joined) -> str:
    """A timeline without untraced timing is somebody else's trace; timing alone is a run whose trace was not read."""
    if joined.evidence == "measured" and joined.timing is None:
        return "trace"
    return joined.evidence or ("measured" if joined.timing is not None else "compiled")


def _model(model: ModelFacts | None) -> dict[str, Any]:
    names = ("name", "parameters", "active_parameters", "non_embedding_parameters")
    return {name: getattr(model, name) if model else None for name in names}


def _target(joined: Joined) -> dict[str, Any]:
    device, program = joined.device, joined.program
    name = device.name if device else program.device_kind
    if program.platform == "cpu" and program.num_devices > 1:
        whole = f"cpu-mesh:{program.num_devices}"
    else:
        whole = f"{name}-{program.num_devices}" if program.platform == "tpu" else f"{name}x{program.num_devices}"
    peaks = dict(device.peak_flops_per_s) if device else {}
    dtype = main_dtype(joined.work)
    return {
        "name": whole,
        "device": name,
        "devices": program.num_devices,
        "peak_flops_per_s": peaks.get(dtype) if dtype else None,
        "peak_dtype": dtype if dtype in peaks else None,
        "peaks_flops_per_s": peaks,
        "hbm_bytes_per_s": device.hbm_bytes_per_s if device else None,
        "hbm_bytes": device.hbm_bytes if device else None,
        "link_bytes_per_s": dict(device.link_bytes_per_s) if device else {},
        "source": device.source if device else None,
    }


def main_dtype(work: Work) -> str | None:
    """The operand dtype that most FLOPs have; None where there are none."""
    return max(work.by_dtype, key=lambda dtype: (work.by_dtype[dtype], dtype), default=None)


def _steps(joined: Joined) -> int | None:
    if joined.timing is not None:
        return len(joined.timing.untraced_step_s) * joined.timing.steps_per_window
    return joined.measures.steps if joined.measures is not None else None


def _timing(timing: Timing | None) -> dict[str, Any]:
    """Wall times of the windows; ``tracing_overhead`` is the traced step's time over the untraced one's, less one."""
    if timing is None:
        names = ("first_call_s", "untraced_step_s", "traced_step_s", "steps_per_window", "tracing_overhead")
        return dict.fromkeys(names)
    traced = median(timing.traced_step_s) if timing.traced_step_s else None
    return {
        "first_call_s": timing.first_call_s,
        "untraced_step_s": list(timing.untraced_step_s),
        "traced_step_s": list(timing.traced_step_s),
        "steps_per_window": timing.steps_per_window,
        "tracing_overhead": traced / timing.step_time_s - 1 if traced is not None and timing.step_time_s else None,
    }


def _flops(joined: Joined) -> dict[str, Any]:
    found = joined.found
    other = other_flops(joined.costs, joined.op_measures, joined.evidence)
    return {
        "model_causal": found.model_causal,
        "model_full": found.model_full,
        "compiled": found.compiled,
        "compiled_range": list(found.compiled_range),
        "executed": found.executed,
        "other": None if other is None else round(other * joined.program.num_devices),
        "by_dtype": {
            dtype: round(count * joined.program.num_devices) for dtype, count in sorted(joined.work.by_dtype.items())
        },
        "recompute": round(joined.work.recompute * joined.program.num_devices),
        "unknown_kernels": list(found.unknown_kernels),
        "differences": [f"{name}: {flops:+,} FLOPs" for name, flops in found.differences],
        "differences_flops": dict(found.differences),
    }


def _utilisation(joined: Joined) -> dict[str, Any]:
    """MFU and HFU weigh each dtype's FLOPs with the time that they take at its own peak."""
    peak, model, step_time_s = joined.peak, joined.facts.model, joined.step_time_s
    mfu = peak.model_s / step_time_s if peak and peak.model_s is not None and step_time_s else None
    ran = joined.found.executed if joined.found.executed is not None else joined.found.compiled
    full = mfu * model.flops_full / model.flops_causal if mfu is not None and model and model.flops_causal else None
    by_peak = utilisation_by_peak(ran, joined.work, joined.device, step_time_s, joined.program.num_devices)
    return {
        "mfu": mfu,
        "mfu_full": full,
        "hfu": peak.executed_s / step_time_s if peak and step_time_s and ran is not None else None,
        "hfu_by_peak": by_peak,
        "mfu_convention": CONVENTION if model else None,
    }


def _hbm_bytes(joined: Joined) -> dict[str, int | None]:
    moved = hbm_bytes(joined.costs, joined.op_measures, joined.evidence)
    return {
        name: None if count is None else round(count) for name, count in zip(("read", "written"), moved, strict=True)
    }


def _roofline(joined: Joined) -> dict[str, float | None]:
    """Seconds of one device for all FLOPs at peak, all HBM traffic and all collectives on their links."""
    device = joined.device
    work = {dtype: float(count) for dtype, count in joined.work.by_dtype.items()}
    moved = hbm_bytes(joined.costs, joined.op_measures, joined.evidence)
    speed = device.hbm_bytes_per_s if device else None
    on_links = joined.ops.filter(pl.col("wire_bytes") > 0)["link_time"]
    return {
        "compute": compute_time_s(work, device),
        "hbm": None if speed is None or None in moved else float(sum(moved, Fraction(0))) / speed,  # type: ignore[arg-type]
        "link": None if device is None or on_links.has_nulls() else float(on_links.sum()),
    }


def _waterfall(joined: Joined) -> list[dict[str, Any]]:
    if joined.step is None or joined.peak is None:
        return []
    bars = waterfall(joined.step, joined.peak, joined.costs, joined.prices, joined.op_measures)
    return [{"cause": bar.cause, "seconds": bar.seconds, "provenance": bar.provenance} for bar in bars]


def _memory(joined: Joined) -> dict[str, Any]:
    memory, device = joined.memory, joined.device
    capacity = device.hbm_bytes if device else None
    peak = memory.peak_bytes if memory else None
    return {
        "peak_bytes": peak,
        "capacity_bytes": capacity,
        "fits": None if peak is None or capacity is None else peak <= capacity,
        "by_owner": dict(memory.by_owner) if memory else {},
        "remedies": [],
    }
