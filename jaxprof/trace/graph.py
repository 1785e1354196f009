"""What a program's HLO says about its ops in a trace: which ops run others, and which ops use an op's result."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from jaxprof.errors import UserError
from jaxprof.hlo.module import Computation, Module, parse_module
from jaxprof.trace.xspace import Space

_CONTROL = ("while", "call", "conditional")


@dataclass(frozen=True, slots=True)
class OpGraph:
    """The graph among the ops of one program that have events."""

    inside: Mapping[str, frozenset[str]]
    """For each while, call and conditional: every instruction that it runs, at any depth."""
    users: Mapping[str, frozenset[str]]
    """For each op: the ops with events that cannot start before it has ended."""


def embedded_modules(space: Space, programs: Collection[int]) -> tuple[dict[int, Module], tuple[str, ...]]:
    """The HLO modules that the trace carries in its ``/host:metadata`` plane, by program id, and notes."""
    plane = space.plane("/host:metadata")
    modules: dict[int, Module] = {}
    notes: list[str] = []
    for item in plane.metadata.values() if plane else ():
        program, proto = item.stats.get("program_id"), item.stats.get("Hlo Proto")
        if isinstance(program, int) and program in programs and isinstance(proto, bytes):
            try:
                modules[program] = parse_module(proto)
            except UserError as error:
                notes.append(f"the trace's HLO of {item.name} was not used: {error.message}")
    return modules, tuple(notes)


def op_graph(module: Module, ops: Collection[str]) -> OpGraph:
    """The graph of ``module`` reduced to ``ops``, the names that have events."""
    seen = frozenset(ops)
    return OpGraph(
        inside={
            i.name: _reached(i.called, module) for i in module.instructions() if i.opcode in _CONTROL and i.name in seen
        },
        users={
            name: users
            for computation in module.computations.values()
            for name, users in _users(computation, seen).items()
        },
    )


def _reached(computations: tuple[str, ...], module: Module) -> frozenset[str]:
    names: set[str] = set()
    pending = list(computations)
    while pending:
        for instruction in module.computations[pending.pop()].instructions:
            names.add(instruction.name)
            pending += instruction.called
    return frozenset(names)


def _users(computation: Computation, seen: frozenset[str]) -> dict[str, frozenset[str]]:
    """Users with events; those without (tuples, bitcasts) stand for their own users."""
    direct = computation.users()
    found: dict[str, frozenset[str]] = {}
    for instruction in reversed(computation.instructions):
        users: set[str] = set()
        for user in direct[instruction.name]:
            users |= {user.name} if user.name in seen else found.get(user.name, frozenset())
        found[instruction.name] = frozenset(users)
    return {name: users for name, users in found.items() if name in seen}
