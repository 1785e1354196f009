"""Collectives: how many bytes they carry, among which devices, over which mesh axes.

Sizes follow nccl-tests (doc/PERFORMANCE.md): S is the larger of the input and the output of one participant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from jaxprof.hlo.groups import Groups, MalformedGroups, MeshGroups, axes_of, expand, rings
from jaxprof.hlo.module import Computation, Instruction, Module
from jaxprof.hlo.program import MeshAxes
from jaxprof.hlo.shapes import Shape, dtype_bits

KINDS = (
    "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all",
    "collective-broadcast", "send", "recv",
)  # fmt: skip
_SEND_RECV_PAIRS = "_xla_send_recv_source_target_pairs"
_NAMES_REPLICAS_AND_PARTITIONS = ("all-gather", "all-reduce", "reduce-scatter")


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective as one device sees it."""

    kind: str
    payload_bytes: int
    wire_bytes: int
    group_size: int
    groups: Groups
    """Groups of device positions; source-target pairs of a permute."""
    axes: tuple[str, ...]
    promoted_from: str | None = None


def kind_of(instruction: Instruction) -> str | None:
    """The kind of collective that an opcode begins; None for all other opcodes, the ``-done`` halves among them."""
    kind = instruction.opcode.removesuffix("-start")
    return kind if kind in KINDS else None


def inner_collectives(instruction: Instruction, module: Module) -> Iterator[tuple[Instruction, Computation]]:
    """Collectives inside a fusion or an async wrapper, with the computation that holds each."""
    return ((inner, computation) for inner, computation in module.held(instruction) if kind_of(inner))


def describe(instruction: Instruction, computation: Computation, module: Module, mesh: MeshAxes | None) -> Collective:
    """The collective that an instruction begins, in the computation that holds it.

    Raises MalformedGroups where its device groups contradict themselves.
    """
    kind = kind_within(instruction, computation)
    payload = payload_bytes(kind, instruction)
    groups = device_groups(instruction, kind, module, mesh)
    members = rings(groups) if instruction.pairs else groups
    size = 2 if kind in ("send", "recv") else max(map(len, members), default=1)
    return Collective(
        kind=kind,
        payload_bytes=payload,
        wire_bytes=wire_bytes(kind, payload, size),
        group_size=size,
        groups=groups,
        axes=mesh_axes(instruction, groups, mesh),
        promoted_from=promoted_from(instruction, computation, module),
    )


def kind_within(instruction: Instruction, computation: Computation) -> str:
    """The kind of a collective; an all-reduce that its fusion only slices is a reduce-scatter, as TPUs have it."""
    kind = kind_of(instruction)
    if kind is None:
        raise ValueError(f"{instruction.name} is no collective")
    root = computation.root
    while root.opcode in ("bitcast", "copy", "convert"):
        root = root.operands[0]
    scatters = root.opcode == "dynamic-slice" and root.operands[0] is instruction
    return "reduce-scatter" if kind == "all-reduce" and scatters else kind


def payload_bytes(kind: str, instruction: Instruction) -> int:
    """S in bytes: the larger of what one participant puts in and gets out."""
    given = sum(shape.bytes for shape in instruction.operand_shapes if _carried(shape))
    match kind:
        case "all-gather" | "recv":
            return max(given, _result_bytes(instruction))
        case "ragged-all-to-all" | "send" | "collective-permute":
            return instruction.operand_shapes[0].bytes if instruction.operands else 0
    return given


def _result_bytes(instruction: Instruction) -> int:
    """Bytes of the results; a ``-start`` carries its operands before and contexts behind them."""
    shape = instruction.shape
    if instruction.opcode.endswith("-start") and len(shape.elements) > 1:
        shape = shape.elements[1]
    elif instruction.opcode == "recv" and shape.elements:
        shape = shape.elements[0]
    return sum(leaf.bytes for leaf in shape.leaves() if _carried(leaf))


def _carried(shape: Shape) -> bool:
    return shape.dtype != "token"


def wire_bytes(kind: str, payload: int, group_size: int) -> int:
    """Bytes that one device sends, by the ring algorithms behind nccl-tests' busbw; a group of one sends none."""
    if group_size <= 1 and kind not in ("send", "recv"):
        return 0
    match kind:
        case "all-reduce":
            return 2 * payload * (group_size - 1) // group_size
        case "all-gather" | "reduce-scatter" | "all-to-all" | "ragged-all-to-all":
            return payload * (group_size - 1) // group_size
        case "recv":
            return 0
    return payload


def bandwidths(kind: str, size_bytes: int, group_size: int, seconds: float) -> tuple[float, float]:
    """(algbw, busbw) in bytes per second as nccl-tests defines them, for a collective of S = ``size_bytes``."""
    algorithm = size_bytes / seconds
    factor = {
        "all-reduce": 2 * (group_size - 1) / group_size,
        "all-gather": (group_size - 1) / group_size,
        "reduce-scatter": (group_size - 1) / group_size,
        "all-to-all": (group_size - 1) / group_size,
        "ragged-all-to-all": (group_size - 1) / group_size,
    }.get(kind, 1.0)
    return algorithm, algorithm * factor


def device_groups(instruction: Instruction, kind: str, module: Module, mesh: MeshAxes | None) -> Groups:
    """The groups, or source-target pairs, as positions of devices in the program.

    The position of partition p of replica r is r x partitions + p. Which of the two an instruction's ids mean depends
    on whether it has a channel and on ``use_global_device_ids`` (CollectiveOpGroupMode in xla_data.proto). Empty groups
    are everyone.
    """
    if instruction.malformed:
        raise MalformedGroups(instruction.malformed)
    if kind in ("send", "recv"):
        ids = [int(device) for device in re.findall(r"\d+", instruction.frontend_attributes.get(_SEND_RECV_PAIRS, ""))]
        return tuple(zip(ids[::2], ids[1::2], strict=False))
    replicas, partitions = module.replicas or 1, module.partitions or 1
    if instruction.pairs:
        if instruction.channel is None and replicas > 1:
            return tuple(
                (s * partitions + p, t * partitions + p) for p in range(partitions) for s, t in instruction.pairs
            )
        return tuple(instruction.pairs)
    ids = expand(instruction.groups) if instruction.groups is not None else ()
    devices = max(replicas * partitions, mesh.devices if mesh else 1)
    if not ids or not any(ids):
        if instruction.channel is None:
            ids = (tuple(range(replicas)),)
        elif kind in _NAMES_REPLICAS_AND_PARTITIONS:
            return (tuple(range(devices)),)
        else:
            ids = (tuple(range(max(partitions, devices // replicas))),)
    if instruction.global_ids:
        return ids
    if instruction.channel is None:
        return tuple(tuple(r * partitions + p for r in group) for p in range(partitions) for group in ids)
    if kind in _NAMES_REPLICAS_AND_PARTITIONS:
        return tuple(tuple(r * partitions + p for r in group for p in range(partitions)) for group in ids)
    return tuple(tuple(r * partitions + p for p in group) for r in range(replicas) for group in ids)


def mesh_axes(instruction: Instruction, groups: Groups, mesh: MeshAxes | None) -> tuple[str, ...]:
    """Axes of the program's mesh; without one, those that the instruction itself names."""
    if mesh is not None:
        return axes_of(groups, mesh)
    notation = instruction.groups
    if isinstance(notation, MeshGroups):
        return tuple(notation.names[axis] for axis, _, size in notation.axes if size > 1)
    return ()


def promoted_from(instruction: Instruction, computation: Computation, module: Module) -> str | None:
    """The narrower dtype that the program asked for where the backend widened a collective; None where it did not.

    The CPU compiler reduces bf16 in float32: it converts before and after, and calls the reduction ``..._promoted``.
    Where it had widened the producer already, only the conversion after is left.
    """
    if not instruction.operands:
        return None
    operand = instruction.operands[0]
    before = _converted_from(operand, module)
    after = {_converted_to(user, instruction, module) for user in _readers(instruction, computation)}
    narrower = {dtype for dtype in (before, *after) if dtype and dtype_bits(dtype) < dtype_bits(operand.shape.dtype)}
    if any(name.endswith("_promoted") for name in instruction.called):
        return narrower.pop() if len(narrower) == 1 else _PROMOTED.get(operand.shape.dtype)
    return before if before in narrower and after == {before} else None


_PROMOTED = {"f32": "bf16", "s32": "s16", "u32": "u16"}
"""What XLA's promotion passes widen from, for when no conversion is left to tell."""


def _readers(instruction: Instruction, computation: Computation) -> Iterator[Instruction]:
    """Users of a value, behind the ``-done`` of an async pair and the parts of a tuple."""
    for user in computation.instructions:
        if instruction in user.operands:
            if user.opcode.endswith("-done") or user.opcode in ("get-tuple-element", "bitcast"):
                yield from _readers(user, computation)
            else:
                yield user


def _converted_from(instruction: Instruction, module: Module) -> str | None:
    """What a convert, or a fusion that ends in one, converts from."""
    while instruction.opcode in ("bitcast", "copy", "reshape", "transpose") and instruction.operands:
        instruction = instruction.operands[0]
    if instruction.opcode == "fusion":
        return _converted_from(module.computations[instruction.called[0]].root, module)
    return instruction.operands[0].shape.dtype if instruction.opcode == "convert" else None


def _converted_to(user: Instruction, value: Instruction, module: Module) -> str | None:
    """What a user converts the value to before anything else; None where it uses the value as it is."""
    if user.opcode == "convert":
        return user.shape.dtype
    if user.opcode != "fusion":
        return None
    computation = module.computations[user.called[0]]
    parameter = computation.parameters()[user.operands.index(value)] if value in user.operands else None
    kinds = {
        _converted_to(inner, parameter, module) for inner in computation.instructions if parameter in inner.operands
    } if parameter is not None else set()  # fmt: skip
    return kinds.pop() if len(kinds) == 1 else None
