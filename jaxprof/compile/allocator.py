"""What a device's allocator counted while programs ran, beside what the compiler said they would need."""

from __future__ import annotations

from collections.abc import Mapping


def describe_allocator(stats: Mapping[str, int] | None, platform: str, *, peak_before: int | None = None) -> str:
    """One line on ``jax.Device.memory_stats()``, which is None where the allocator keeps none (the CPU's).

    The allocator's peak never goes back. ``peak_before`` is what it was before the run: a peak that has not risen since
    belongs to something earlier in the process.
    """
    peak = (stats or {}).get("peak_bytes_in_use")
    if peak is None:
        return f"no allocator statistics on {platform}"
    if peak_before is None or peak <= peak_before:
        return f"allocator peak {peak:,} B since process start; this run may have needed less"
    return f"allocator peak {peak:,} B in this run"
