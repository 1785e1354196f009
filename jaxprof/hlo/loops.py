"""How often each computation runs in one call of a module: trip counts of loops, branches, calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from jaxprof.hlo.module import Computation, Instruction, Module
from jaxprof.hlo.op_cost import Executions

_ONCE = Executions(low=1, high=1)
_TRANSPARENT = ("copy", "bitcast", "convert", "reshape", "copy-start", "copy-done", "broadcast", "opt-barrier")


@dataclass(frozen=True, slots=True)
class Linear:
    """An integer known at compile time, or an element of a loop's carried tuple plus such an integer."""

    offset: int
    element: int | None = None


class _Scope:
    """What the parameters of a computation stand for where it is called."""

    __slots__ = ("carried", "module", "operands", "outer")

    def __init__(
        self,
        module: Module,
        operands: tuple[Instruction, ...] = (),
        outer: _Scope | None = None,
        carried: Instruction | None = None,
    ) -> None:
        self.module = module
        self.operands = operands
        self.outer = outer
        self.carried = carried
        """The while instruction whose body or condition this is."""

    def value(self, instruction: Instruction, *, symbolic: bool) -> Linear | None:
        """The integer that an instruction yields; None where it depends on data.

        ``symbolic`` lets elements of this loop's carried tuple stay unknown, to find steps; otherwise only elements
        that the loop never changes have a value.
        """
        match instruction.opcode:
            case "constant":
                return Linear(instruction.value) if instruction.value is not None else None
            case "get-tuple-element":
                source, index = instruction.operands[0], instruction.tuple_index
                return self._element(source, index if index is not None else -1, symbolic=symbolic)
            case "parameter":
                return self._outside(instruction, symbolic=symbolic)
            case "add" | "subtract":
                left, right = (self.value(operand, symbolic=symbolic) for operand in instruction.operands)
                return _combine(left, right, 1 if instruction.opcode == "add" else -1)
            case "fusion" | "call":
                inner = _Scope(self.module, instruction.operands, self)
                return inner.value(self.module.computations[instruction.called[0]].root, symbolic=symbolic)
            case opcode if opcode in _TRANSPARENT and instruction.operands:
                return self.value(instruction.operands[0], symbolic=symbolic)
        return None

    def _outside(self, parameter: Instruction, *, symbolic: bool) -> Linear | None:
        if self.carried is not None or self.outer is None or parameter.parameter is None:
            return None
        return self.outer.value(self.operands[parameter.parameter], symbolic=symbolic)

    def _element(self, source: Instruction, index: int, *, symbolic: bool) -> Linear | None:
        """Element ``index`` of a tuple."""
        match source.opcode:
            case "tuple":
                return self.value(source.operands[index], symbolic=symbolic)
            case "opt-barrier" | "copy":
                return self._element(source.operands[0], index, symbolic=symbolic)
            case "call" | "fusion":
                inner = _Scope(self.module, source.operands, self)
                return inner._element(self.module.computations[source.called[0]].root, index, symbolic=symbolic)
            case "while":
                return self._after(source, index, symbolic=symbolic)
            case "parameter" if self.carried is not None:
                if symbolic:
                    return Linear(0, index)
                if self.outer is None or not self._keeps(self.carried, index):
                    return None
                return self.outer._element(self.carried.operands[0], index, symbolic=False)
            case "parameter" if self.outer is not None and source.parameter is not None:
                return self.outer._element(self.operands[source.parameter], index, symbolic=symbolic)
        return None

    def _after(self, loop: Instruction, index: int, *, symbolic: bool) -> Linear | None:
        """Element ``index`` when a loop has ended: unchanged, or its start and all its steps."""
        step = self.step(loop, index)
        if step == Linear(0, index):
            return self._element(loop.operands[0], index, symbolic=symbolic)
        if step is None or step.element != index:
            return None
        start, trips = self.start(loop, index), _trip_count(loop, self)
        return Linear(start + trips * step.offset) if start is not None and trips is not None else None

    def _keeps(self, loop: Instruction, index: int) -> bool:
        """Whether the loop's body hands element ``index`` on as it came."""
        return self.step(loop, index) == Linear(0, index)

    def step(self, loop: Instruction, index: int) -> Linear | None:
        """Element ``index`` after one iteration of a loop in this scope, in terms of the elements before it."""
        body = _Scope(self.module, outer=self, carried=loop)
        return body._element(self.module.computations[loop.called[0]].root, index, symbolic=True)

    def start(self, loop: Instruction, index: int) -> int | None:
        value = self._element(loop.operands[0], index, symbolic=False)
        return value.offset if value is not None and value.element is None else None


def _combine(left: Linear | None, right: Linear | None, sign: int) -> Linear | None:
    if left is None or right is None or (right.element is not None and (sign < 0 or left.element is not None)):
        return None
    return Linear(left.offset + sign * right.offset, left.element if left.element is not None else right.element)


def _trip_count(loop: Instruction, scope: _Scope) -> int | None:
    """Iterations of a loop: as the compiler wrote them down, else from the loop's own condition; None if unknown."""
    if '"known_trip_count"' in loop.backend_config:
        try:
            return int(json.loads(loop.backend_config)["known_trip_count"]["n"])
        except (ValueError, KeyError, TypeError):
            pass
    condition = _Scope(scope.module, outer=scope, carried=loop)
    compared = _compare(scope.module.computations[loop.called[1]].root, condition)
    if compared is None:
        return None
    direction, left, right = compared
    if left.element is None:
        left, right, direction = right, left, _MIRRORED[direction]
    if left.element is None:
        return None
    step, start = scope.step(loop, left.element), scope.start(loop, left.element)
    bound = right.offset if right.element is None else None
    if right.element is not None and scope.step(loop, right.element) == Linear(0, right.element):
        fixed = scope.start(loop, right.element)
        bound = fixed + right.offset if fixed is not None else None
    if step is None or step.element != left.element or start is None or bound is None:
        return None
    return count_iterations(direction, start + left.offset, bound, step.offset)


_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE", "EQ": "EQ"}


def _compare(root: Instruction, scope: _Scope) -> tuple[str, Linear, Linear] | None:
    """Direction and sides of the comparison that ends a condition, also inside a fusion or a call."""
    if root.opcode in ("fusion", "call"):
        inner = _Scope(scope.module, root.operands, scope)
        return _compare(scope.module.computations[root.called[0]].root, inner)
    if root.opcode in ("copy", "bitcast"):
        return _compare(root.operands[0], scope)
    if root.opcode != "compare":
        return None
    left, right = (scope.value(operand, symbolic=True) for operand in root.operands)
    return (root.direction, left, right) if left is not None and right is not None else None


def count_iterations(direction: str, start: int, bound: int, step: int) -> int | None:
    """How often ``while (i DIRECTION bound) i += step`` runs from ``i = start``; None where it never ends."""
    holds = {
        "LT": start < bound, "LE": start <= bound, "GT": start > bound, "GE": start >= bound, "NE": start != bound,
        "EQ": start == bound,
    }[direction]  # fmt: skip
    if not holds:
        return 0
    if step == 0:
        return None
    match direction:
        case "LT" | "LE" if step > 0:
            return -(-(bound + (direction == "LE") - start) // step)
        case "GT" | "GE" if step < 0:
            return -(-(start + (direction == "GE") - bound) // -step)
        case "NE" if (bound - start) % step == 0 and (bound - start) // step > 0:
            return (bound - start) // step
        case "EQ":
            return 1
    return None


@dataclass(frozen=True, slots=True)
class Schedule:
    """Every computation that a module runs, with its executions in one call of the module."""

    executions: dict[str, Executions]
    """By computation; what fusions, reductions and async wrappers call belongs to their instruction and is not here."""
    trips: dict[str, int | None]
    """By while instruction: iterations each time it is reached; None where unknown."""


def executions(module: Module, trip_counts: Mapping[str, int] | None = None) -> Schedule:
    """Executions of each computation.

    A loop whose trip count cannot be known counts once in ``low`` and has no ``high``, with the loop's name in ``why``,
    so that ``low`` is the work of one iteration; ``trip_counts`` gives counts by the name of the while instruction. A
    branch runs between never and always.
    """
    given = trip_counts or {}
    runs: dict[str, Executions] = {}
    trips: dict[str, int | None] = {}

    def visit(computation: Computation, times: Executions, scope: _Scope) -> None:
        runs[computation.name] = plus(runs[computation.name], times) if computation.name in runs else times
        for instruction in computation.instructions:
            called = [module.computations[name] for name in instruction.called]
            match instruction.opcode:
                case "while":
                    count = given.get(instruction.name, _trip_count(instruction, scope))
                    trips[instruction.name] = count
                    repeated = times_trips(times, count, instruction.name)
                    body, condition = called
                    inner = _Scope(module, outer=scope, carried=instruction)
                    visit(body, repeated, inner)
                    visit(condition, plus(repeated, times), inner)
                case "conditional":
                    maybe = Executions(low=0, high=times.high, why=times.why or f"branches of {instruction.name}")
                    for branch, operand in zip(called, instruction.operands[1:], strict=True):
                        visit(branch, maybe if len(called) > 1 else times, _Scope(module, (operand,), scope))
                case "call":
                    visit(called[0], times, _Scope(module, instruction.operands, scope))

    visit(module.entry, _ONCE, _Scope(module))
    return Schedule(runs, trips)


def plus(left: Executions, right: Executions) -> Executions:
    high = None if left.high is None or right.high is None else left.high + right.high
    return Executions(low=left.low + right.low, high=high, why=left.why or right.why)


def times_trips(times: Executions, count: int | None, loop: str) -> Executions:
    if count is None:
        return Executions(low=times.low, high=None, why=f"trip count of {loop} unknown")
    return Executions(low=times.low * count, high=None if times.high is None else times.high * count, why=times.why)
