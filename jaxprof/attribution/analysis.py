"""Everything that is known of one step, joined: run.json's object, the op table and the step breakdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from jaxprof.attribution.breakdown import BREAKDOWN, mean_step
from jaxprof.attribution.doubts import doubts
from jaxprof.attribution.facts import StepFacts, Timing
from jaxprof.attribution.measures import measure_ops
from jaxprof.attribution.op_table import op_table
from jaxprof.attribution.provenance import provenance
from jaxprof.attribution.reconcile import reconcile
from jaxprof.attribution.roofline import price
from jaxprof.attribution.summary import Joined, summarize
from jaxprof.attribution.verdict import verdict
from jaxprof.attribution.waterfall import at_peak
from jaxprof.attribution.work import compiled_work, executed_work
from jaxprof.hardware.device import DeviceSpec
from jaxprof.hlo.op_cost import ModuleCosts
from jaxprof.hlo.program import Program
from jaxprof.trace.timeline import Timeline

if TYPE_CHECKING:
    from jaxprof.hlo.buffers import MemoryReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What a report shows."""

    summary: dict[str, Any]
    """run.json's object: every key always there, None where a figure is unknown."""
    ops: pl.DataFrame
    """As OP_TABLE has it."""
    breakdown: pl.DataFrame
    """As BREAKDOWN has it: one row per device and traced step, in the seconds of the trace."""
    warnings: tuple[str, ...]


def analyze(
    program: Program,
    costs: ModuleCosts,
    *,
    device: DeviceSpec | None,
    facts: StepFacts,
    timeline: Timeline | None = None,
    timing: Timing | None = None,
    memory: MemoryReport | None = None,
    warnings: Sequence[str] = (),
) -> Analysis:
    """Join the evidence on one step.

    Without ``device`` (peaks) there is no roofline, MFU or waterfall; without ``timeline`` no breakdown. The step time
    is that of untraced steps where ``timing`` has it, else the timeline's; the parts of the breakdown are the traced
    steps' shares of it. ``warnings`` come first among the analysis's own.
    """
    devices = program.num_devices
    evidence = timeline.evidence if timeline is not None else None
    prices = {cost.op: price(cost, device, platform=program.platform, num_devices=devices) for cost in costs.ops}
    measures = measure_ops(timeline, costs, prices) if timeline is not None else None
    by_op = measures.ops if measures is not None else {}
    compiled = compiled_work(costs)
    executed = executed_work(costs, by_op) if evidence == "measured" else None
    work = compiled if executed is None else executed
    traced = mean_step(measures.breakdown) if measures is not None else None
    step_time_s = timing.step_time_s if timing is not None else traced.wall_s if traced is not None else None
    joined = Joined(
        program=program,
        costs=costs,
        device=device,
        facts=facts,
        timing=timing,
        memory=memory,
        evidence=evidence,
        prices=prices,
        measures=measures,
        ops=op_table(costs, prices, by_op, evidence),
        work=work,
        peak=at_peak(facts.model.flops_causal if facts.model else None, work, device, devices) if device else None,
        found=reconcile(costs, devices, facts.model, compiled, executed, by_op),
        step=traced.scaled(step_time_s) if traced is not None and step_time_s is not None else None,
        step_time_s=step_time_s,
    )
    breakdown = measures.breakdown if measures is not None else pl.DataFrame(schema=BREAKDOWN)
    summary = summarize(joined)
    said = (
        *warnings,
        *facts.notes,
        *costs.warnings,
        *(timeline.notes if timeline is not None else ()),
        *(memory.warnings if memory is not None else ()),
        *doubts(joined, summary),
    )
    summary["provenance"] = provenance(joined)
    summary["warnings"] = list(dict.fromkeys(said))
    simulated = program.platform == "cpu" and devices > 1
    summary["verdict"] = verdict(summary, joined.ops, breakdown, simulated=simulated)
    return Analysis(summary=summary, ops=joined.ops, breakdown=breakdown, warnings=tuple(summary["warnings"]))
