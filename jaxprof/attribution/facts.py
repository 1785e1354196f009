"""What is known of a step besides its HLO and its timeline: plain data that the analysis takes in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

StepKind = Literal["train", "prefill", "decode", "function"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The architecture's own numbers; FLOPs are for one step over all devices, recompute excluded."""

    name: str
    parameters: int
    active_parameters: int
    non_embedding_parameters: int
    flops_causal: int
    """Attention counted over attended pairs only (exact causal, sliding window respected)."""
    flops_full: int
    """Attention counted over all pairs."""
    flops_parts: dict[str, int] = field(default_factory=dict)
    """flops_full by model part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """One step of a workload."""

    name: str
    step: StepKind
    global_batch: int | None = None
    """In sequences."""
    seq_len: int | None = None
    tokens_per_step: int | None = None
    """Over all devices."""
    model: ModelFacts | None = None
    notes: tuple[str, ...] = ()
    """Padding and replication done silently by real systems, said aloud here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Wall times of a measured program, in seconds. Windows alternate untraced and traced."""

    first_call_s: float
    """The first call, compilation excluded."""
    untraced_step_s: tuple[float, ...]
    """Mean step time of each untraced throughput window (no synchronising inside)."""
    traced_step_s: tuple[float, ...]
    """The same with the profiler on."""
    steps_per_window: int

    @property
    def step_time_s(self) -> float:
        """The figure to quote: median of the untraced windows."""
        ordered = sorted(self.untraced_step_s)
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
