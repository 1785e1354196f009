"""Whose a buffer is, from who makes it and who reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jaxprof.hlo.liveness import Allocation, Buffer, Memory
from jaxprof.hlo.metadata import part_of, source_of
from jaxprof.hlo.module import Instruction, Module
from jaxprof.hlo.op_cost import ModuleCosts, OpCost
from jaxprof.hlo.program import Owner, Program
from jaxprof.hlo.shapes import Shape

_MOVES = frozenset({
    "copy", "copy-start", "copy-done", "bitcast", "bitcast-convert", "convert", "reshape", "transpose", "slice",
    "dynamic-slice", "dynamic-update-slice", "concatenate", "pad", "broadcast", "get-tuple-element", "parameter",
    "constant", "tuple", "opt-barrier", "fusion",
})  # fmt: skip
"""Opcodes that move or convert arrays and compute nothing of their own."""
_STEPS_BACK = 16
"""How many moves to look through for the argument that a value is a copy of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBuffer:
    """One buffer in memory at the peak."""

    bytes: int
    owner: str
    op: str = ""
    """The instruction that wrote it last, or the argument's path; empty for padding and unused room."""
    shape: str = ""
    """On one device."""
    scope: str = ""
    source: str = ""


class Owners:
    """Owners of the buffers of one program."""

    def __init__(self, program: Program, module: Module, memory: Memory, costs: ModuleCosts) -> None:
        self._module = module
        self._memory = memory
        self._rows: Mapping[str, OpCost] = {op.op: op for op in costs.ops}
        self._arguments = {a.parameter: a for a in program.arguments if a.parameter is not None}
        entry = module.entry.parameters()
        self._parameter_shapes = [leaf for number in sorted(entry) for leaf in entry[number].shape.leaves()]
        self._caches = {
            _array(self._parameter_shapes[number])
            for number, argument in self._arguments.items()
            if argument.owner == "kv cache" and len(argument.shape) > 1
        }
        self._is_gradient: dict[Buffer, bool] = {}

    def parts(self) -> Iterator[LiveBuffer]:
        """All that is in memory at the peak; the parts sum to the sizes of all allocations."""
        occupied = 0
        for buffer in self._memory.alive_at_peak():
            occupied += buffer.bytes
            yield from self._described(buffer, self._owner(buffer))
        largest: dict[Allocation, Buffer] = {}
        for buffer in self._memory.buffers:
            known = largest.setdefault(buffer.allocation, buffer)
            if buffer.bytes > known.bytes or (buffer.bytes == known.bytes and not known.makers):
                largest[buffer.allocation] = buffer
        for allocation in self._memory.allocations:
            if allocation.parameter is not None:
                yield from self._argument(allocation, allocation.parameter)
            elif not allocation.is_temporary:
                owner = "constants" if allocation.is_constant else "outputs"
                if allocation in largest:
                    yield from self._described(largest[allocation], owner, allocation.bytes)
                else:
                    yield LiveBuffer(bytes=allocation.bytes, owner=owner)
        room = sum(allocation.bytes for allocation in self._memory.allocations if allocation.is_temporary)
        yield LiveBuffer(bytes=room - occupied, owner="unused")

    def _argument(self, allocation: Allocation, parameter: int) -> Iterator[LiveBuffer]:
        argument, shape = self._arguments.get(parameter), self._parameter_shapes[parameter]
        padding = allocation.bytes - argument.device_bytes if argument else 0
        yield LiveBuffer(
            bytes=allocation.bytes - max(0, padding),
            owner=argument.owner if argument else "other arguments",
            op=argument.path if argument else f"parameter {parameter}",
            shape=str(shape),
        )
        if padding > 0:
            yield LiveBuffer(bytes=padding, owner="padding")

    def _described(self, buffer: Buffer, owner: str, size: int | None = None) -> Iterator[LiveBuffer]:
        size = buffer.bytes if size is None else size
        if not buffer.makers:
            yield LiveBuffer(bytes=size, owner=owner)
            return
        maker = buffer.makers[-1]
        shape = _element(maker.shape, buffer.index)
        padding = max(0, min(size, shape.padded_bytes - shape.bytes))
        origin, row = self._origin(maker), self._rows.get(maker.name)
        yield LiveBuffer(
            bytes=size - padding,
            owner=owner,
            op=maker.name,
            shape=str(shape),
            scope=origin.op_name or (row.scope if row else ""),
            source=source_of(origin, self._module) or (row.source if row else ""),
        )
        if padding:
            yield LiveBuffer(bytes=padding, owner="padding")

    def _owner(self, buffer: Buffer) -> str:
        rows = [self._rows[maker.name] for maker in buffer.makers if maker.name in self._rows]
        if not rows:
            return "temporaries"
        row = rows[-1]
        if self._gradient(buffer):
            return "gradients"
        if _array(_element(buffer.makers[-1].shape, buffer.index)) in self._caches:
            return "kv cache"
        copied = self._copied_argument(buffer.makers[-1])
        if copied == "kv cache":
            return copied
        if copied == "parameters":
            return "parameter copies"
        if any(self._phase(user) in ("backward", "recompute") for user in buffer.users):
            if row.phase == "forward":
                part = part_of(self._origin(buffer.makers[-1]).op_name)
                return f"activations ({part if part != 'other' else row.part})"
            if row.phase == "recompute":
                return "recomputed activations"
        return "collective temporaries" if row.collective else "temporaries"

    def _phase(self, instruction: Instruction) -> str | None:
        row = self._rows.get(instruction.name)
        return row.phase if row else None

    def _gradient(self, buffer: Buffer) -> bool:
        """Whether the backward pass makes it and the optimizer reads it, directly or after moves and collectives."""
        if buffer in self._is_gradient:
            return self._is_gradient[buffer]
        self._is_gradient[buffer] = False  # loops lead back here
        if any(self._phase(maker) == "backward" for maker in buffer.makers):
            self._is_gradient[buffer] = any(self._leads_to_optimizer(user) for user in buffer.users)
        return self._is_gradient[buffer]

    def _leads_to_optimizer(self, user: Instruction) -> bool:
        row = self._rows.get(user.name)
        if row is not None and row.phase == "optimizer":
            return True
        if not (self._moves(user) or (row is not None and row.collective)):
            return False
        made = self._memory.at(user)
        return made is not None and self._gradient(made)

    def _moves(self, instruction: Instruction) -> bool:
        return instruction.opcode not in ("constant", "parameter", "broadcast") and not self._computing(instruction)

    def _computing(self, instruction: Instruction) -> list[Instruction]:
        """What computes in an instruction, or in the fusion that it is; scalars only say where to move what."""
        inside = [inner for inner, _ in self._module.held(instruction)] or [instruction]
        return [inner for inner in inside if inner.opcode not in _MOVES and inner.shape.size > 1]

    def _behind(self, instruction: Instruction) -> Iterator[Buffer]:
        """The buffers of which a value is a moved, converted or gathered copy, the nearest first."""
        for _ in range(_STEPS_BACK):
            row = self._rows.get(instruction.name)
            if not (self._moves(instruction) or (row is not None and row.collective == "all-gather")):
                return
            own = self._memory.at(instruction)  # where a slice is written in place, what counts is the slice
            read = [buffer for o in instruction.operands if (buffer := self._memory.at(o)) is not None]
            others = [buffer for buffer in read if buffer is not own]
            if not others:
                return
            nearest = max(others, key=lambda buffer: buffer.bytes)
            yield nearest
            if len(nearest.makers) != 1:
                return
            instruction = nearest.makers[0]

    def _copied_argument(self, instruction: Instruction) -> Owner | None:
        for standing in self._behind(instruction):
            if standing.allocation.parameter is not None:
                argument = self._arguments.get(standing.allocation.parameter)
                return argument.owner if argument else "other arguments"
        return None

    def _origin(self, instruction: Instruction) -> Instruction:
        """The instruction that computed a value, before it was moved to where it stands."""
        for maker in (instruction, *(b.makers[0] for b in self._behind(instruction) if len(b.makers) == 1)):
            named = [inner for inner in self._computing(maker) if "/" in inner.op_name]
            if named:
                return named[-1]
        return instruction


def _element(shape: Shape, index: tuple[int, ...]) -> Shape:
    for position in index:
        shape = shape.elements[position]
    return shape


def _array(shape: Shape) -> tuple[str, tuple[int, ...]]:
    return shape.dtype, shape.dims
