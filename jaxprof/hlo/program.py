"""A compiled program as plain data: everything the analysis needs, with no live executable behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Owner = Literal[
    "parameters", "optimizer state", "gradients", "activations", "kv cache", "batch", "temporaries", "other arguments"
]


@dataclass(frozen=True, slots=True)
class MeshAxes:
    """A mesh's axes, major to minor; device ``i`` of the program is position ``i`` in row-major order."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def devices(self) -> int:
        product = 1
        for size in self.sizes:
            product *= size
        return product


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One leaf of the program's arguments."""

    path: str
    """Where it stands in the arguments, as in ``state.params.layers.attention.q``."""
    dtype: str
    """HLO spelling: f32, bf16, s8, ..."""
    shape: tuple[int, ...]
    """Global shape."""
    device_bytes: int
    """Bytes on one device, unpadded."""
    owner: Owner
    donated: bool = False
    parameter: int | None = None
    """Number of the entry computation's parameter; None where the compiler dropped an unused argument."""
    replicas: int = 1
    """On how many devices each element stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStats:
    """The compiler's own sizes in bytes on one device (``Compiled.memory_analysis()``); None where it gives none."""

    argument_bytes: int | None = None
    output_bytes: int | None = None
    alias_bytes: int | None = None
    temp_bytes: int | None = None
    generated_code_bytes: int | None = None
    peak_bytes: int | None = None
    total_allocation_bytes: int | None = None
    host_argument_bytes: int | None = None
    host_output_bytes: int | None = None
    host_temp_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One compiled, scheduled HLO module and what its compiler said of it."""

    name: str
    hlo_module: bytes
    """Serialized HloModuleProto, optimized and scheduled."""
    num_devices: int
    mesh: MeshAxes | None
    platform: str
    """cpu, gpu or tpu."""
    device_kind: str
    arguments: tuple[Argument, ...] = ()
    buffer_assignment: bytes | None = None
    """Serialized BufferAssignmentProto, or None where the compiler gives none."""
    memory: MemoryStats = field(default_factory=MemoryStats)
    xla_cost: dict[str, float] | None = None
    """``cost_analysis()`` as the compiler gives it, for comparison only."""
    compile_s: float | None = None
    compile_cached: bool = False
    diagnostics: tuple[str, ...] = ()
    """What the compiler wrote to standard error, a line each."""
