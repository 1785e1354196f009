"""What a computation does, as sums that add up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs of one or several instructions."""

    flops: dict[str, int] = field(default_factory=dict)
    """Of matmuls, convolutions and attention, by operand dtype."""
    other: int = 0
    """Of elementwise work and reductions."""
    unknown: str | None = None
    """What could not be counted."""

    @property
    def total(self) -> int:
        return sum(self.flops.values())

    def __add__(self, more: Work) -> Work:
        return Work(
            dict(Counter(self.flops) + Counter(more.flops)), self.other + more.other, self.unknown or more.unknown
        )
