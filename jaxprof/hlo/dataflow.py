"""Where the values of a scheduled module go: through tuples and loops to the instructions that compute with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from jaxprof.hlo.module import Computation, Instruction, Module
from jaxprof.hlo.shapes import Shape

Position = tuple[str, tuple[int, ...]]
"""Name of an instruction and the index into its result where that is a tuple."""
FORWARDING = frozenset({
    "tuple", "get-tuple-element", "bitcast", "while", "call", "conditional", "opt-barrier", "add-dependency",
    "parameter",
})  # fmt: skip
"""Opcodes that compute nothing: what stands there was made by another instruction."""


class Dataflow:
    """``moment`` numbers the instructions in the order in which they run, each loop body once, before its loop ends."""

    def __init__(self, module: Module, defined: Mapping[Position, int]) -> None:
        """``defined`` gives the number of the value that is defined at a position."""
        self.instructions = {i.name: i for i in module.instructions()}
        self.moment: dict[str, int] = {}
        self.users: dict[int, list[Instruction]] = defaultdict(list)
        """By value; instructions that only forward it are left out."""
        self._module = module
        self._defined = defined
        self._known: dict[Position, int | None] = {}
        self._callers: dict[str, tuple[Instruction, int]] = {}
        self._holders: dict[str, str] = {}
        self._begins: dict[str, int] = {}
        self._last: dict[int, int] = defaultdict(int)
        self._lay_out(module.entry)
        for name in list(self.moment):
            self._note_uses(self.instructions[name])

    def span(self, value: int, position: Position) -> tuple[int, int]:
        """First and last moment of the value defined at ``position``."""
        start = self.moment.get(position[0], 0)
        return start, max(start, self._last[value])

    def value(self, instruction: Instruction, index: tuple[int, ...] = ()) -> int | None:
        """The value that stands at a position; None where nobody defined one."""
        trail: list[Position] = []
        found: int | None = None
        at: tuple[Instruction, tuple[int, ...]] | None = (instruction, index)
        while at is not None:
            position = (at[0].name, at[1])
            if position in self._known:
                found = self._known[position]
                break
            trail.append(position)
            if position in self._defined:
                found = self._defined[position]
                break
            at = self._behind(*at)
        self._known |= dict.fromkeys(trail, found)
        return found

    def _behind(self, instruction: Instruction, index: tuple[int, ...]) -> tuple[Instruction, tuple[int, ...]] | None:
        """The position from which an instruction forwards what stands at ``index`` of its result."""
        operands = instruction.operands
        match instruction.opcode:
            case "get-tuple-element" if instruction.tuple_index is not None:
                return operands[0], (instruction.tuple_index, *index)
            case "tuple" if index:
                return operands[index[0]], index[1:]
            case "bitcast" | "opt-barrier" | "add-dependency" | "while":
                return operands[0], index
            case "call":
                return self._module.computations[instruction.called[0]].root, index
            case "parameter" if (holder := self._holders.get(instruction.name)) in self._callers:
                caller, branch = self._callers[holder]
                return self._argument(caller, branch, instruction.parameter or 0), index
            case opcode if opcode.endswith("-done"):
                # What an asynchronous operation yields is the second element of the tuple that its start makes.
                return operands[0], (1, *index)
        return None

    @staticmethod
    def _argument(caller: Instruction, branch: int, parameter: int) -> Instruction:
        match caller.opcode:
            case "while":
                return caller.operands[0]
            case "conditional":
                return caller.operands[1 + branch]
        return caller.operands[parameter]

    def _lay_out(self, computation: Computation) -> None:
        for instruction in computation.instructions:
            self._holders[instruction.name] = computation.name
            if instruction.opcode in ("while", "call", "conditional"):
                self._begins[instruction.name] = len(self.moment)
                for branch in reversed(range(len(instruction.called))):  # a loop's condition, then its body
                    called = instruction.called[branch]
                    self._callers.setdefault(called, (instruction, branch))
                    self._lay_out(self._module.computations[called])
            self.moment[instruction.name] = len(self.moment)

    def _note_uses(self, instruction: Instruction) -> None:
        moment = self.moment[instruction.name]
        computes = instruction.opcode not in FORWARDING
        if computes or instruction.opcode in ("while", "call", "conditional"):
            for operand in instruction.operands:
                for index in _leaves(operand.shape):
                    value = self.value(operand, index)
                    if value is None:
                        continue
                    changes = instruction.opcode == "while" and self.value(instruction, index) != value
                    # What a loop changes goes in when it begins; from then on the loop's own state is in its place.
                    until = self._begins[instruction.name] if changes else moment
                    self._last[value] = max(self._last[value], until)
                    if computes:
                        self.users[value].append(instruction)
        holder = self._module.computations[self._holders[instruction.name]]
        if holder.root is instruction:
            caller = self._callers.get(holder.name)
            until = self.moment[caller[0].name] if caller else len(self.moment)
            for index in _leaves(instruction.shape):
                value = self.value(instruction, index)
                if value is not None:
                    self._last[value] = max(self._last[value], until)


def _leaves(shape: Shape, index: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Indices of the arrays in a shape."""
    if shape.dtype != "tuple":
        yield index
    for position, element in enumerate(shape.elements):
        yield from _leaves(element, (*index, position))
