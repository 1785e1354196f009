"""What one HLO instruction costs: a row per instruction that a step executes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Category = Literal[
    "matmul", "convolution", "attention", "elementwise", "reduction", "data movement", "gather/scatter", "collective",
    "custom call", "host", "control", "other",
]  # fmt: skip
Phase = Literal["forward", "backward", "recompute", "optimizer", "prefill", "decode", "unknown"]
Part = Literal[
    "embed", "attention.qkv", "attention.core", "attention.out", "mlp", "moe.router", "moe.experts", "norm", "unembed",
    "loss", "optimizer", "other",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Executions:
    """How often an instruction runs in one call of the program: a range, exact where low == high.

    ``high`` is None where a loop's trip count cannot be known; ``why`` then says which loop.
    """

    low: int
    high: int | None
    why: str | None = None

    @property
    def exact(self) -> int | None:
        return self.low if self.low == self.high else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCost:
    """Costs of one instruction; work and bytes are for one execution on one device."""

    op: str
    """Instruction name as the module has it, without a leading %. The name that trace events carry."""
    computation: str
    opcode: str
    category: Category
    executions: Executions
    flops: dict[str, int] = field(default_factory=dict)
    """Matmul, convolution and attention FLOPs by operand dtype (2mnk). Empty for all other ops."""
    other_flops: int = 0
    """Elementwise work and reductions, kept apart from MFU."""
    hbm_bytes_read: int = 0
    hbm_bytes_written: int = 0
    collective: str | None = None
    """all-gather, all-reduce, reduce-scatter, all-to-all, collective-permute, ragged-all-to-all, collective-broadcast,
    send, recv. On the ``-start`` of an asynchronous pair only."""
    payload_bytes: int = 0
    """The collective's size S as nccl-tests defines it: the larger of input and output of one participant."""
    wire_bytes: int = 0
    """Bytes one device sends: ring all-gather S(n-1)/n, all-reduce 2S(n-1)/n, reduce-scatter S(n-1)/n, permute S."""
    group_size: int | None = None
    groups: tuple[tuple[int, ...], ...] | None = None
    """Replica groups as device positions, or the source-target pairs of a permute."""
    mesh_axes: tuple[str, ...] = ()
    promoted_from: str | None = None
    """dtype that the program asked for where the backend widened the collective (bf16 to f32 on CPU)."""
    scope: str = ""
    """op_name path from the metadata."""
    part: Part = "other"
    phase: Phase = "unknown"
    source: str = ""
    """file:line of the user's code."""
    contains: tuple[str, ...] = ()
    """Names of instructions inside the fusion or async wrapper, for joining traces that name those."""
    unknown: str | None = None
    """Why FLOPs are unknown (an unpriced custom call, a host callback). None where they are known."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the most that a quantity can be; ``high`` is None where there is no most."""

    low: int
    high: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCosts:
    """Costs of a whole module on one device."""

    module: str
    ops: tuple[OpCost, ...]
    warnings: tuple[str, ...] = ()
    """One line each, for people: malformed replica groups, unknown trip counts, unpriced kernels, ..."""
    flops: Bounds | None = None
    """Matmul FLOPs of one call on one device. Narrower than the sum over ``ops``: exactly one branch of a conditional
    runs. A loop of unknown length counts one iteration in ``low`` and leaves ``high`` open; unknown kernels count 0."""


@dataclass(frozen=True, slots=True)
class DeclaredCost:
    """What a user says one run of a kernel costs on one device; None where not said."""

    flops: int | None = None
    bytes: int | None = None
