"""XLA's own cost and memory analysis beside ours, with the reason for each difference."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from jaxprof.attribution.reconcile import unknown_kernels
from jaxprof.attribution.work import compiled_flops_range, hbm_bytes, other_flops
from jaxprof.hlo.op_cost import ModuleCosts
from jaxprof.hlo.program import Program


@dataclass(frozen=True, slots=True)
class XlaFigure:
    """One figure of one device; None where either side cannot say."""

    figure: str
    unit: Literal["FLOP", "bytes"]
    ours: int | None
    xla: float | None
    reason: str | None
    """Why they differ; None where they do not."""


def xla_figures(costs: ModuleCosts, program: Program, peak_bytes: int | None) -> list[dict[str, Any]]:
    """Rows of XlaFigure as plain objects. ``peak_bytes`` is our own peak of one device."""
    return [asdict(row) for row in (_flops(costs, program), _bytes(costs, program), *_memory(program, peak_bytes))]


def _flops(costs: ModuleCosts, program: Program) -> XlaFigure:
    figure = "FLOPs, elementwise included"
    low, high = compiled_flops_range(costs)
    other = other_flops(costs, {}, None)
    ours = round(low + other) if low == high and other is not None else None
    xla = (program.xla_cost or {}).get("flops")
    if xla is None:
        return XlaFigure(figure, "FLOP", ours, None, "this compiler gives no cost analysis")
    once = sum(sum(op.flops.values()) + op.other_flops for op in costs.ops)
    reasons: list[str] = []
    if xla < 0:
        reasons.append(f"XLA gives {xla:g}, its mark for a cost that it cannot say")
    elif xla != ours:
        if ours != once:
            reasons.append(f"XLA counts a loop's body once: with that, ours would be {once:,}")
        if ours is None:
            reasons.append("XLA takes the largest branch of a conditional, and one iteration of an unknown loop")
        if any(op.opcode == "custom-call" and op.flops for op in costs.ops):
            reasons.append("XLA prices no custom call; ours go by shapes or a declared cost")
        if once != xla:
            reasons.append("elementwise work, conversions and indices are counted by other rules")
    if found := unknown_kernels(costs):
        reasons.append(f"neither knows {', '.join(found)}")
    return XlaFigure(figure, "FLOP", ours, xla if xla >= 0 else None, "; ".join(reasons) or None)


def _bytes(costs: ModuleCosts, program: Program) -> XlaFigure:
    read, written = hbm_bytes(costs, {}, None)
    ours = None if read is None or written is None else round(read + written)
    xla = (program.xla_cost or {}).get("bytes accessed")
    if xla is None or xla < 0:
        return XlaFigure("bytes accessed", "bytes", ours, None, "this compiler gives no bytes")
    reasons: list[str] = []
    if xla != ours:
        if any(op.executions.exact != 1 for op in costs.ops):
            reasons.append("XLA counts a loop's body once")
        reasons.append("XLA counts a loop's or call's operands too; ours only what the instructions inside it touch")
    return XlaFigure("bytes accessed", "bytes", ours, xla, "; ".join(reasons) or None)


def _memory(program: Program, peak_bytes: int | None) -> list[XlaFigure]:
    memory = program.memory
    sizes = (memory.argument_bytes, memory.output_bytes, memory.alias_bytes, memory.temp_bytes)
    kept = [argument for argument in program.arguments if argument.parameter is not None]
    held = sum(argument.device_bytes for argument in kept) if kept else None
    if not any(sizes) and held != 0:  # some backends give nothing, or zeros
        reason = "this backend gives no memory analysis; ours is from the shapes"
        return [XlaFigure("arguments", "bytes", held, None, reason)]
    argument, output, alias, temp = sizes
    differs = held is not None and held != argument
    rows = [XlaFigure("arguments", "bytes", held, argument, "XLA pads to the layout's tiles" if differs else None)]
    if argument is None or output is None or alias is None or temp is None:
        return rows
    total = argument + output - alias + temp
    reason = None if peak_bytes in (None, total) else "ours is the compiler's total of allocations, constants among it"
    rows.append(XlaFigure("arguments + outputs - aliases + temporaries", "bytes", peak_bytes, total, reason))
    if memory.peak_bytes is not None:
        left_out = temp and memory.peak_bytes < total
        reason = "XLA's peak field leaves temporaries out here" if left_out else None
        if reason is None and peak_bytes not in (None, memory.peak_bytes):
            reason = "XLA's peak field is what is alive at once; ours all that is allocated"
        rows.append(XlaFigure("XLA's peak field", "bytes", peak_bytes, memory.peak_bytes, reason))
    return rows
