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
    """By operand dtype in HLO spelling (bf16, f32, s8, f8e4m3fn, ...)."""
    hbm_bytes_per_s: float | None = None
    hbm_bytes: float | None = None
    link_bytes_per_s: dict[str, float] = field(default_factory=dict)
    """One device's sending rate by link: ici, nvlink, pcie, dcn, shared memory."""
    provenance: Provenance = "published"
    source: str = ""
    """Where the numbers come from."""
    notes: tuple[str, ...] = ()
