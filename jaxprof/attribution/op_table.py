"""The op table: one row per HLO instruction that a step executes, with every kind of evidence beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Literal

import polars as pl

from jaxprof.attribution.join import NOT_IN_MODULE
from jaxprof.attribution.measures import OpMeasure
from jaxprof.attribution.roofline import Price
from jaxprof.hlo.op_cost import ModuleCosts, OpCost

OP_TABLE = pl.Schema(
    {
        # identity
        "program": pl.String(),
        "op": pl.String(),
        "opcode": pl.String(),  # null where the trace shows an op that the module does not have
        "category": pl.String(),
        "scope": pl.String(),
        "part": pl.String(),
        "phase": pl.String(),
        "source": pl.String(),
        "trace_names": pl.String(),  # other names under which the trace shows the op, comma separated
        # work, per step and device (executions multiplied in); null where unknown
        "executions": pl.Float64(),  # mean of the trace's occurrences where measured; else compiled
        "compiled_executions": pl.Int64(),  # product of trip counts; null where unknown
        "flops": pl.Int64(),
        "flops_dtype": pl.String(),
        "other_flops": pl.Int64(),
        "hbm_bytes_read": pl.Int64(),
        "hbm_bytes_written": pl.Int64(),
        "collective": pl.String(),
        "payload_bytes": pl.Int64(),
        "wire_bytes": pl.Int64(),
        "group_size": pl.Int64(),
        "mesh_axes": pl.String(),  # comma separated
        "link": pl.String(),
        # time in seconds per step per device
        "compute_time": pl.Float64(),
        "hbm_time": pl.Float64(),
        "link_time": pl.Float64(),
        "predicted_time": pl.Float64(),
        "measured_time": pl.Float64(),  # self, wait included, mean over steps and devices
        "measured_time_max": pl.Float64(),  # of the slowest device
        "exposed_time": pl.Float64(),  # collectives: while the device computes nothing; wait excluded
        "wait_time": pl.Float64(),  # collectives: before the last participant arrived
        "exposed_wait_time": pl.Float64(),  # of that, while the device does nothing else
        # verdict
        "bound": pl.String(),  # compute, hbm, collective, host, latency
        "roofline_fraction": pl.Float64(),
        "unknown": pl.String(),
    }
)

PROVENANCE = {
    "executions": "measured", "compiled_executions": "compiled", "flops": "compiled", "other_flops": "compiled",
    "hbm_bytes_read": "compiled", "hbm_bytes_written": "compiled", "payload_bytes": "compiled", "wire_bytes": "formula",
    "link": "assumed", "compute_time": "formula", "hbm_time": "formula", "link_time": "formula",
    "predicted_time": "formula", "measured_time": "measured", "measured_time_max": "measured",
    "exposed_time": "measured", "wait_time": "measured", "exposed_wait_time": "measured", "bound": "formula",
    "roofline_fraction": "measured",
}  # fmt: skip
"""How the table's figures are known."""

_LATENCY_S = 5e-6
_LATENCY_FRACTION = 0.1
"""An execution this short that is this far below its roofline is the cost of starting it, not of its work."""


def op_table(
    costs: ModuleCosts,
    prices: Mapping[str, Price],
    measures: Mapping[tuple[str, str], OpMeasure],
    evidence: Literal["measured", "predicted"] | None,
) -> pl.DataFrame:
    """The table of ``costs`` with what a timeline says beside it (``evidence`` is None where there is none).

    Ops that only the timeline shows follow with empty costs and the reason in ``unknown``; ops that only the module has
    keep null times. Sorted by time, the longest first.
    """
    rows: list[dict[str, Any]] = []
    for cost in costs.ops:
        measure = measures.get((costs.module, cost.op))
        rows.append(_row(costs.module, cost, prices[cost.op], measure, evidence))
    known = {cost.op for cost in costs.ops}
    for (program, op), measure in measures.items():
        if program != costs.module or op not in known:
            rows.append(_foreign_row(program, op, measure, evidence))
    table = pl.DataFrame([{**dict.fromkeys(OP_TABLE), **row} for row in rows], schema=OP_TABLE)
    time = pl.coalesce("measured_time", "predicted_time", pl.max_horizontal("compute_time", "hbm_time", "link_time"))
    return table.sort(time, "program", "op", descending=[True, False, False], nulls_last=True)


def executions_of(cost: OpCost, measure: OpMeasure | None, evidence: str | None) -> Fraction | None:
    """Executions a step and device: those in the trace, none of a branch that it does not show, else the compiled."""
    if evidence == "measured":
        if measure is not None:
            return measure.executions
        if cost.executions.low == 0:
            return Fraction(0)
    exact = cost.executions.exact
    return None if exact is None else Fraction(exact)


def _row(program: str, cost: OpCost, price: Price, measure: OpMeasure | None, evidence: str | None) -> dict[str, Any]:
    executions = executions_of(cost, measure, evidence)

    def per_step(each: float | None) -> Any:
        if each is None or executions is None:
            return None
        return round(each * executions) if isinstance(each, int) else each * float(executions)

    reasons = [cost.unknown, cost.executions.why if executions is None else None]
    times = {
        "compute_time": per_step(price.compute_s),
        "hbm_time": per_step(price.hbm_s),
        "link_time": per_step(price.link_s),
    }
    is_collective = cost.collective is not None
    return {
        "program": program,
        "op": cost.op,
        "opcode": cost.opcode,
        "category": cost.category,
        "scope": cost.scope,
        "part": cost.part,
        "phase": cost.phase,
        "source": cost.source,
        "executions": None if executions is None else float(executions),
        "compiled_executions": cost.executions.exact,
        "flops": None if cost.unknown else per_step(sum(cost.flops.values())),
        "flops_dtype": ",".join(cost.flops) or None,
        "other_flops": per_step(cost.other_flops),
        "hbm_bytes_read": per_step(cost.hbm_bytes_read),
        "hbm_bytes_written": per_step(cost.hbm_bytes_written),
        "collective": cost.collective,
        "payload_bytes": per_step(cost.payload_bytes) if is_collective else None,
        "wire_bytes": per_step(cost.wire_bytes) if is_collective else None,
        "group_size": cost.group_size,
        "mesh_axes": ",".join(cost.mesh_axes) if is_collective else None,
        "link": price.link,
        **times,
        **_times(measure, evidence, collective=price.resource == "collective"),
        **_verdict(price, times, measure),
        "unknown": "; ".join(reason for reason in reasons if reason) or None,
    }


def _foreign_row(program: str, op: str, measure: OpMeasure, evidence: str | None) -> dict[str, Any]:
    """A row for what runs and is no instruction of the module."""
    is_host = measure.stream == "host"
    return {
        "program": program,
        "op": op,
        "opcode": "host" if is_host else None,
        "category": "host" if is_host else "other",
        "part": "other",
        "phase": "unknown",
        "executions": float(measure.executions),
        **_times(measure, evidence, collective=False),
        "bound": "host" if is_host else None,
        "unknown": None if is_host else NOT_IN_MODULE,
    }


def _times(measure: OpMeasure | None, evidence: str | None, *, collective: bool) -> dict[str, Any]:
    if measure is None:
        return {}
    names = ",".join(measure.trace_names) or None
    if evidence == "predicted":
        own: dict[str, Any] = {"predicted_time": measure.time_s}
    else:
        own = {"measured_time": measure.time_s, "measured_time_max": measure.time_max_s}
    if collective:
        own |= {
            "exposed_time": measure.own_s,
            "wait_time": measure.wait_s,
            "exposed_wait_time": measure.exposed_wait_s,
        }
    return {"trace_names": names, **own}


def _verdict(price: Price, times: Mapping[str, float | None], measure: OpMeasure | None) -> dict[str, Any]:
    """What bounds an op, and which fraction of its roofline it reaches.

    The roofline is the longest of compute, HBM and link time; a collective is held to its link from the last
    participant's arrival on.
    """
    if price.resource == "collective":
        roofline = times["link_time"]
        spent = measure.time_s - measure.wait_s if measure else None
    else:
        known = _known(times[name] for name in ("compute_time", "hbm_time"))
        roofline = max(known) if len(known) == 2 else None
        spent = measure.time_s if measure else None
    fraction = roofline / spent if roofline and spent else None
    kernel = price.resource in ("compute", "hbm")
    works = not (price.compute_s == 0 and price.hbm_s == 0)
    each_s = measure.time_s / float(measure.executions) if measure and measure.executions else None
    slow_start = fraction is not None and fraction < _LATENCY_FRACTION and each_s is not None and each_s < _LATENCY_S
    latency = price.resource == "control" or (kernel and (not works or slow_start))
    return {"bound": "latency" if latency else price.resource, "roofline_fraction": fraction}


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
