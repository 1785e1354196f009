"""What the hardware can do: the figures that costs are divided by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Provenance = Literal["measured", "compiled", "formula", "assumed", "published"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """One device as JAX counts devices. Peaks are dense."""

    name: str
    """As in the hardware book: h100-sxm, v5p, cpu."""
    device_kinds: tuple[str, ...] = ()
    """``jax.Device.device_kind`` strings that mean this device."""
    peak_flops_per_s: dict[str, float] = field(default_factory=dict)
    """By operand dtype in HLO spelling (bf16, f32, s8, f8e4m3fn, ...). f32 is what float32 operands reach at XLA's
    default precision: TF32 on NVIDIA GPUs that have it, one bf16 pass on TPUs; f32_highest is full float32 where that
    differs."""
    hbm_bytes_per_s: float | None = None
    hbm_bytes: float | None = None
    link_bytes_per_s: dict[str, float] = field(default_factory=dict)
    """One device's sending rate by link: ici, nvlink, pcie, dcn, shared memory."""
    provenance: Provenance = "published"
    source: str = ""
    """Where the numbers come from."""
    sources: dict[str, str] = field(default_factory=dict)
    """The source of each figure apart, by field name."""
    devices_per_chip: int = 1
    """How many JAX devices share one chip; the figures here are one device's share."""
    notes: tuple[str, ...] = ()
