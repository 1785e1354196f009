"""The compiler's own figures as plain data, without the values that some backends put where they know nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxprof.hlo.program import MemoryStats


def memory_stats(analysis: Any, argument_bytes: int) -> MemoryStats:
    """``Compiled.memory_analysis()`` as data; all None where it is None, or zero though the arguments take bytes."""
    if analysis is None:
        return MemoryStats()

    def size(name: str) -> int | None:
        value = getattr(analysis, name, None)
        return value if value is None or value >= 0 else None

    stats = MemoryStats(
        argument_bytes=size("argument_size_in_bytes"),
        output_bytes=size("output_size_in_bytes"),
        alias_bytes=size("alias_size_in_bytes"),
        temp_bytes=size("temp_size_in_bytes"),
        generated_code_bytes=size("generated_code_size_in_bytes"),
        peak_bytes=size("peak_memory_in_bytes"),
        total_allocation_bytes=size("total_allocation_bytes"),
        host_argument_bytes=size("host_argument_size_in_bytes"),
        host_output_bytes=size("host_output_size_in_bytes"),
        host_temp_bytes=size("host_temp_size_in_bytes"),
    )
    is_empty = not (stats.argument_bytes or stats.output_bytes or stats.temp_bytes)
    return MemoryStats() if is_empty and argument_bytes else stats


def xla_cost(analysis: Mapping[str, float] | Sequence[Mapping[str, float]] | None) -> dict[str, float] | None:
    """``Compiled.cost_analysis()``, a dict or a list of one, without the negative values that mean "unknown"."""
    if analysis is not None and not isinstance(analysis, Mapping):
        analysis = analysis[0] if analysis else None
    if analysis is None:
        return None
    return {key: value for key, value in analysis.items() if value >= 0}
