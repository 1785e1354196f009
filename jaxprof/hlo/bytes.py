"""Bytes that one instruction reads from and writes to HBM.

Only what crosses a fusion's boundary counts, slices and gathers count what they touch, an update in place counts its
region. Values that live outside HBM (a TPU's VMEM, host memory) count nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxprof.hlo.module import Computation, Instruction, Module
from jaxprof.hlo.shapes import Shape

FREE = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "add-dependency", "opt-barrier",
    "domain", "while", "conditional", "call", "partition-id", "replica-id", "async-update", "async-done", "copy-done",
    "all-gather-done", "all-reduce-done", "collective-permute-done", "send-done",
})  # fmt: skip
"""Opcodes that move no data themselves: names for it, calls of computations, and the ends of what another started."""

_WHOLE_INPUT = frozenset({
    "dot", "ragged-dot", "convolution", "reduce", "reduce-window", "select-and-scatter", "sort", "custom-call", "fft",
    "cholesky", "triangular-solve", "scatter", "all-gather", "all-reduce", "reduce-scatter", "all-to-all",
    "collective-permute", "call", "while", "conditional", "rng-bit-generator", "map",
})  # fmt: skip
"""Opcodes of which any output may need the whole input."""
_NO_TRAFFIC = ("AllocateBuffer", "ConcatBitcast", "X64Combine", "X64SplitLow", "X64SplitHigh", "Sharding")
"""Custom calls that name memory and move nothing."""
_ON_CHIP = 1
_HBM = 0


@dataclass(frozen=True, slots=True)
class Traffic:
    """HBM bytes of one execution on one device."""

    read: int = 0
    written: int = 0


def instruction_traffic(instruction: Instruction, module: Module, *, tiled: bool) -> Traffic:
    """HBM traffic of one execution. ``tiled``: memory space 1 is on-chip, as it is for the TPU compiler only."""
    operands = _distinct(instruction)
    match instruction.opcode:
        case opcode if opcode in FREE:
            return Traffic()
        case "custom-call" if instruction.target in _NO_TRAFFIC:
            return Traffic()
        case "fusion" | "async-start":
            if not instruction.called:
                return Traffic()
            return _fusion(instruction, module.computations[instruction.called[0]], module, tiled)
        case "slice" | "dynamic-slice" | "gather":
            source, *indices = instruction.operands
            read = _bytes(_like(instruction.shape, source.shape), tiled) + _sum(indices, tiled)
            return Traffic(read, _bytes(instruction.shape, tiled))
        case "dynamic-update-slice":
            _, update, *indices = instruction.operands
            return Traffic(
                _bytes(update.shape, tiled) + _sum(indices, tiled),
                _bytes(_like(update.shape, instruction.shape), tiled),
            )
        case "scatter":
            update = instruction.operands[-1]
            region = _bytes(_like(update.shape, instruction.shape), tiled)
            return Traffic(region + _sum(instruction.operands[1:], tiled), region)
        case "custom-call" if instruction.target.startswith(("__cublas$", "__cudnn$", "__onednn$")):
            return Traffic(_sum(operands, tiled), _bytes(next(instruction.shape.leaves()), tiled))
        case "copy-start":
            return Traffic(_sum(operands, tiled), _bytes(instruction.shape.elements[0], tiled))
        case "all-gather-start" | "collective-permute-start":
            return Traffic(_sum(operands, tiled), _bytes(instruction.shape.elements[1], tiled))
        case "send" | "outfeed":
            return Traffic(_sum(operands, tiled), 0)
        case "recv":
            return Traffic()
        case "recv-done" | "infeed":
            return Traffic(0, _bytes(instruction.shape, tiled))
    return Traffic(_sum(operands, tiled), _bytes(instruction.shape, tiled))


def touched(computation: Computation, module: Module) -> dict[str, int]:
    """Elements of each value in a fused computation that its outputs need, by instruction name.

    A fusion computes an element only where something asks for it, so a value that is only sliced is read only there. A
    value that is updated in place is not read.
    """
    need = dict.fromkeys((i.name for i in computation.instructions), 0)
    updated = {update.writer.name for update in updates_in_place(computation, module)}
    for root in _outputs(computation.root):
        need[root.name] = root.shape.size
    for user in reversed(computation.instructions):
        asked = need[user.name]
        if not asked:
            continue
        if user.opcode == "fusion":
            inner = module.computations[user.called[0]]
            inside, parameters = touched(inner, module), inner.parameters()
            parts = [inside[parameters[position].name] for position in range(len(user.operands))]
        else:
            parts = [_asked(user, position, asked, user.name in updated) for position in range(len(user.operands))]
        asked_of: dict[str, int] = {}
        for operand, part in zip(user.operands, parts, strict=True):
            asked_of[operand.name] = max(part, asked_of.get(operand.name, 0))
        for operand in _distinct(user):
            need[operand.name] = min(operand.shape.size, need[operand.name] + asked_of[operand.name])
    return need


def _asked(user: Instruction, position: int, asked: int, in_place: bool) -> int:
    """Elements of operand ``position`` that ``asked`` elements of the user need, at most."""
    operand = user.operands[position]
    match user.opcode:
        case "slice" | "dynamic-slice" | "gather":
            return asked if position == 0 else operand.shape.size
        case "dynamic-update-slice" | "scatter":
            if position == 0:
                return 0 if in_place else asked
            return operand.shape.size
        case "concatenate":
            return -(-operand.shape.size * asked // max(1, user.shape.size))
        case opcode if opcode in _WHOLE_INPUT:
            return operand.shape.size
    return asked


@dataclass(frozen=True, slots=True)
class Update:
    """An output that writes a region into the buffer of a parameter."""

    writer: Instruction
    """The dynamic-update-slice or scatter, or the inner fusion that holds it."""
    region: Shape
    accumulates: bool
    """Whether the region is read too, as a scatter does."""
    buffer: Instruction
    """The parameter of the computation."""


def updates_in_place(computation: Computation, module: Module) -> list[Update]:
    found = (_update(output, module) for output in _outputs(computation.root))
    return [update for update in found if update is not None]


def _update(output: Instruction, module: Module) -> Update | None:
    writer = _through(output)
    match writer.opcode:
        case "dynamic-update-slice":
            region, buffer = writer.operands[1].shape, _through(writer.operands[0])
        case "scatter":
            region, buffer = writer.operands[-1].shape, _through(writer.operands[0])
        case "fusion":
            inner = _update(module.computations[writer.called[0]].root, module)
            if inner is None or inner.buffer.parameter is None:
                return None
            region, buffer = inner.region, _through(writer.operands[inner.buffer.parameter])
        case _:
            return None
    if buffer.opcode != "parameter":
        return None
    return Update(writer, region, writer.opcode == "scatter", buffer)


def _fusion(fusion: Instruction, computation: Computation, module: Module, tiled: bool) -> Traffic:
    need = touched(computation, module)
    updates = {update.writer.name: update for update in updates_in_place(computation, module)}
    read = written = 0
    for number, parameter in computation.parameters().items():
        # An async call may hand its operands over later, in an async-update: the parameter then says where they lie.
        operand = fusion.operands[number] if number < len(fusion.operands) else parameter
        whole = _bytes(operand.shape, tiled)
        size = parameter.shape.size
        read += whole * need[parameter.name] // size if size else whole
    for output in _outputs(computation.root):
        update = updates.get(_through(output).name)
        region = output.shape if update is None else _like(update.region, output.shape)
        written += _bytes(region, tiled)
        if update is not None and update.accumulates:
            read += _bytes(region, tiled)
    return Traffic(read, written)


def _outputs(root: Instruction) -> tuple[Instruction, ...]:
    return root.operands if root.opcode == "tuple" else (root,)


def _through(instruction: Instruction) -> Instruction:
    """The instruction behind bitcasts."""
    while instruction.opcode == "bitcast":
        instruction = instruction.operands[0]
    return instruction


def _distinct(instruction: Instruction) -> list[Instruction]:
    """Operands, each once: x * x reads x once."""
    return list({operand.name: operand for operand in instruction.operands}.values())


def _like(part: Shape, whole: Shape) -> Shape:
    """A region of ``whole`` with the sizes of ``part``: it lies where the whole lies."""
    return Shape(
        part.dtype, part.dims, whole.layout if len(part.dims) == len(whole.dims) else part.layout, part.elements
    )


def _sum(operands: list[Instruction] | tuple[Instruction, ...], tiled: bool) -> int:
    return sum(_bytes(operand.shape, tiled) for operand in operands)


def _bytes(shape: Shape, tiled: bool) -> int:
    """Bytes in HBM, tile padding included."""
    return sum(leaf.padded_bytes for leaf in shape.leaves() if in_hbm(leaf, tiled=tiled))


def in_hbm(leaf: Shape, *, tiled: bool) -> bool:
    """Whether an array lies in HBM. On GPU memory space 1 is HBM too, set apart for collectives; 5 is host memory."""
    space = leaf.layout.memory_space
    return space == _HBM or (space == _ON_CHIP and not tiled)
