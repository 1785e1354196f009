"""Whose the memory of a program is at its peak."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from jaxprof.hlo.costs import module_costs
from jaxprof.hlo.liveness import Memory
from jaxprof.hlo.module import parse_module
from jaxprof.hlo.op_cost import ModuleCosts
from jaxprof.hlo.ownership import LiveBuffer, Owners
from jaxprof.hlo.program import Argument, MemoryStats, Program

_LISTED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """Bytes on one device when the program needs most."""

    peak_bytes: int | None
    """None where the backend has no memory analysis."""
    by_owner: dict[str, int] = field(default_factory=dict)
    """Sums to ``peak_bytes``; where that is None, what is known (arguments)."""
    live: tuple[LiveBuffer, ...] = ()
    """The largest buffers alive at the peak, largest first."""
    warnings: tuple[str, ...] = ()


def memory_by_owner(program: Program, costs: ModuleCosts | None = None) -> MemoryReport:
    """Every byte of the program's peak under one owner.

    The peak is the compiler's: its total of allocations where it gives one (jaxlib 0.12 and later), otherwise
    arguments + outputs - aliases + temporaries, and constants, which is the same sum. The ready-made peak field is not
    used: on the CPU it leaves temporaries out.

    Arguments have the owners that the program states. Of the temporaries, *gradients* are what the backward pass makes
    and the optimizer reads with at most collectives and moves between; *activations* are what the forward pass makes
    and the backward pass reads, by model part; *recomputed activations* the same made again by remat; *parameter
    copies* are parameters gathered, converted or moved. Copies of a KV cache count as *kv cache*. What other
    collectives make is *collective temporaries*, the rest *temporaries*. *Unused* is room between buffers that nothing
    occupies at that moment, *padding* what tiles add to arrays.

    Where the compiler gives no buffer assignment, temporaries are one figure and a warning says so.
    ``costs`` spares computing the module's costs again.
    """
    stats = program.memory
    if stats.argument_bytes is None or stats.output_bytes is None or stats.temp_bytes is None:
        return _arguments_only(program)
    alias_bytes = stats.alias_bytes or 0
    summed = stats.argument_bytes + stats.output_bytes - alias_bytes + stats.temp_bytes
    warnings = _peak_field(stats, summed)
    if program.buffer_assignment is None:
        by_owner = _by_owner(program.arguments)
        by_owner["outputs"] += stats.output_bytes - alias_bytes
        by_owner["temporaries"] += stats.temp_bytes
        warnings.append("the compiler gives no buffer assignment: temporaries are not told apart by owner")
        return _closed(by_owner, stats.total_allocation_bytes or summed, (), warnings)

    module = parse_module(program.hlo_module)
    memory = Memory(module, program.hlo_module, program.buffer_assignment)
    by_owner: Counter[str] = Counter()
    live = []
    for part in Owners(program, module, memory, costs or module_costs(module, program.mesh)).parts():
        by_owner[part.owner] += part.bytes
        if part.op:
            live.append(part)
    live.sort(key=lambda buffer: -buffer.bytes)
    constants = sum(allocation.bytes for allocation in memory.allocations if allocation.is_constant)
    return _closed(by_owner, stats.total_allocation_bytes or summed + constants, tuple(live[:_LISTED]), warnings)


def _closed(by_owner: Counter[str], peak_bytes: int, live: tuple[LiveBuffer, ...], warnings: list[str]) -> MemoryReport:
    """The report, with what the parts leave over said as such."""
    rest = peak_bytes - sum(by_owner.values())
    if rest:
        by_owner["not attributed"] += rest
        if abs(rest) > 0.01 * peak_bytes:
            warnings.append(f"memory by owner leaves {rest:,} B of the compiler's {peak_bytes:,} B unattributed")
    kept = {owner: held for owner, held in by_owner.most_common() if held}
    return MemoryReport(peak_bytes=peak_bytes, by_owner=kept, live=live, warnings=tuple(warnings))


def _peak_field(stats: MemoryStats, summed: int) -> list[str]:
    if not stats.peak_bytes or not stats.temp_bytes or stats.peak_bytes >= 0.99 * summed:
        return []
    return [
        f"the compiler's own peak field says {stats.peak_bytes:,} B, less than arguments + outputs - aliases + "
        f"temporaries = {summed:,} B, which is shown: that field can leave temporaries out"
    ]


def _arguments_only(program: Program) -> MemoryReport:
    by_owner = _by_owner(program.arguments)
    return MemoryReport(
        peak_bytes=None,
        by_owner=dict(by_owner.most_common()),
        warnings=(
            f"memory analysis is not available on this backend; "
            f"arguments alone take {sum(by_owner.values()):,} B by their shapes",
        ),
    )


def _by_owner(arguments: tuple[Argument, ...]) -> Counter[str]:
    held: Counter[str] = Counter()
    for argument in arguments:
        if argument.parameter is not None:
            held[argument.owner] += argument.device_bytes
    return held
