"""Which values of a scheduled module are in memory when, and where: a buffer assignment read against the schedule.

A *value* is one array that an instruction defines. Values that must share memory, as the state of a loop does (what
goes in, what the body receives and returns, what comes out), are one *buffer*. Compilers give offsets but seldom a
history of their heap, so the history is made from the schedule: a value lives from its definition to its last use,
loop bodies laid out once, before the loop instruction itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxprof.hlo.dataflow import FORWARDING, Dataflow, Position
from jaxprof.hlo.module import Instruction, Module
from jaxprof.proto.hlo import BufferAssignmentProto, HloModuleProto

_HBM = 0
"""The memory space of an allocation that counts towards the peak; the others are on-chip or on the host."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """One block of device memory."""

    index: int
    bytes: int
    parameter: int | None
    is_constant: bool
    is_output: bool

    @property
    def is_temporary(self) -> bool:
        return self.parameter is None and not self.is_constant and not self.is_output


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A region of an allocation with all that stands in it as one value after another."""

    allocation: Allocation
    offset: int
    bytes: int
    makers: tuple[Instruction, ...]
    """The instructions that write it, in the order of the schedule."""
    users: tuple[Instruction, ...] = field(repr=False)
    """The instructions that compute with it."""
    spans: tuple[tuple[int, int], ...] = field(repr=False)
    """First and last moments of its values."""
    index: tuple[int, ...] = ()
    """Index into the last maker's result where that is a tuple."""

    def alive(self, moment: int) -> bool:
        return any(start <= moment <= end for start, end in self.spans)


class Memory:
    """All buffers of a module, and the moment at which its temporaries take most."""

    def __init__(self, module: Module, hlo_module: bytes, buffer_assignment: bytes) -> None:
        """Lays a serialized BufferAssignmentProto over its module, whose serialized form is ``hlo_module``."""
        assignment = BufferAssignmentProto.FromString(buffer_assignment)
        names = {i.id: i.name for c in HloModuleProto.FromString(hlo_module).computations for i in c.instructions}
        defined = {_position(logical.defined_at, names): logical.id for logical in assignment.logical_buffers}
        self._flow = Dataflow(module, defined)
        leader = _joined(
            defined, [(a.source_buffer_id, _position(a.location, names)) for a in assignment.buffer_aliases]
        )
        definitions = {value: position for position, value in defined.items()}

        allocations, buffers = [], []
        self._of: dict[int, Buffer] = {}
        for proto in assignment.buffer_allocations:
            if proto.is_thread_local or proto.color != _HBM:
                continue
            allocation = _allocation(proto)
            allocations.append(allocation)
            regions: dict[tuple[int, int, int], list[int]] = defaultdict(list)
            for assigned in proto.assigned:
                value = assigned.logical_buffer_id
                regions[assigned.offset, assigned.size, leader[value]].append(value)
            for (offset, size, _), values in regions.items():
                buffer = self._buffer(allocation, offset, size, values, definitions)
                buffers.append(buffer)
                self._of |= dict.fromkeys(values, buffer)
        self.allocations: tuple[Allocation, ...] = tuple(allocations)
        self.buffers: tuple[Buffer, ...] = tuple(buffers)
        self.peak_moment = _peak_moment(self.buffers)

    def at(self, instruction: Instruction, index: tuple[int, ...] = ()) -> Buffer | None:
        """The buffer in which an instruction's result stands."""
        value = self._flow.value(instruction, index)
        return self._of.get(value) if value is not None else None

    def alive_at_peak(self) -> Iterator[Buffer]:
        """Temporaries in memory at the peak, one for each region."""
        taken: set[tuple[int, int]] = set()
        for buffer in self.buffers:
            region = (buffer.allocation.index, buffer.offset)
            if buffer.allocation.is_temporary and region not in taken and buffer.alive(self.peak_moment):
                taken.add(region)
                yield buffer

    def _buffer(
        self, allocation: Allocation, offset: int, size: int, values: Sequence[int], definitions: dict[int, Position]
    ) -> Buffer:
        flow = self._flow
        made = sorted(
            (flow.moment[name], index, name)
            for name, index in map(definitions.__getitem__, values)
            if name in flow.moment and flow.instructions[name].opcode not in FORWARDING
        )
        users = {user.name: user for value in values for user in flow.users[value]}
        return Buffer(
            allocation=allocation,
            offset=offset,
            bytes=size,
            makers=tuple(flow.instructions[name] for _, _, name in made),
            users=tuple(users.values()),
            spans=tuple(_union(flow.span(value, definitions[value]) for value in values)),
            index=made[-1][1] if made else (),
        )


def _position(location: Any, names: dict[int, str]) -> Position:
    return names.get(location.instruction_id) or str(location.instruction_name), tuple(location.shape_index)


def _allocation(proto: Any) -> Allocation:
    parameter = None
    if proto.is_entry_computation_parameter:  # some backends pass all arguments as one tuple
        parameter = proto.parameter_shape_index[0] if proto.parameter_shape_index else proto.parameter_number
    return Allocation(
        index=proto.index,
        bytes=proto.size,
        parameter=parameter,
        is_constant=proto.is_constant,
        is_output=proto.maybe_live_out and parameter is None,
    )


def _joined(defined: dict[Position, int], aliases: Iterable[tuple[int, Position]]) -> dict[int, int]:
    """For every value one value that stands for all that share its memory."""
    leader = {value: value for value in defined.values()}

    def find(value: int) -> int:
        while leader[value] != value:
            value = leader[value]
        return value

    for value, position in aliases:
        if position in defined and value in leader:
            leader[find(defined[position])] = find(value)
    return {value: find(value) for value in leader}


def _peak_moment(buffers: Sequence[Buffer]) -> int:
    spans: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
    for buffer in buffers:
        if buffer.allocation.is_temporary:
            spans[buffer.allocation.index, buffer.offset, buffer.bytes] += buffer.spans
    changes: dict[int, int] = defaultdict(int)
    for (_, _, size), moments in spans.items():
        for start, end in _union(moments):
            changes[start] += size
            changes[end + 1] -= size
    peak, most, held = 0, 0, 0
    for moment in sorted(changes):
        held += changes[moment]
        if held > most:
            peak, most = moment, held
    return peak


def _union(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
