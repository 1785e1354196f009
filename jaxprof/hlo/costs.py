"""Costs of a whole module: one row for every instruction that a step executes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from jaxprof.hlo import collectives, remarks
from jaxprof.hlo.bytes import instruction_traffic
from jaxprof.hlo.categories import category_of
from jaxprof.hlo.counting import instruction_work
from jaxprof.hlo.custom_calls import declared_cost
from jaxprof.hlo.groups import MalformedGroups
from jaxprof.hlo.loops import Schedule, executions
from jaxprof.hlo.metadata import Origins
from jaxprof.hlo.module import Computation, Instruction, Module
from jaxprof.hlo.op_cost import Bounds, DeclaredCost, ModuleCosts, OpCost
from jaxprof.hlo.program import MeshAxes
from jaxprof.hlo.work import Work

__all__ = ["DeclaredCost", "module_costs"]

_NOT_EXECUTED = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "add-dependency", "opt-barrier",
    "domain",
})  # fmt: skip
_NONE: Mapping[str, Any] = MappingProxyType({})


def module_costs(
    module: Module,
    mesh: MeshAxes | None = None,
    *,
    declared: Mapping[str, DeclaredCost] = _NONE,
    trip_counts: Mapping[str, int] = _NONE,
    step: str | None = None,
) -> ModuleCosts:
    """FLOPs, HBM bytes, collectives, executions and origin of every instruction that one call of the module executes.

    ``mesh`` names the axes of collectives. ``declared`` gives costs of kernels by custom-call target, kernel,
    instruction or scope name; ``trip_counts`` iterations by the name of a while instruction; ``step`` ("prefill",
    "decode") the phase of all rows where the step has only one.
    """
    schedule = executions(module, trip_counts)
    works = {i.name: instruction_work(i, module, declared) for i in module.instructions()}
    tiled = module.tiled
    rows: list[OpCost] = []
    malformed: dict[str, str] = {}

    def weigh(instruction: Instruction) -> tuple[int, int]:
        return works[instruction.name].total, instruction.shape.bytes

    for name, runs in schedule.executions.items():
        computation = module.computations[name]
        origins = Origins(computation, module, step, weigh)
        counted: set[tuple[str, int]] = set()
        for instruction in computation.instructions:
            if instruction.opcode in _NOT_EXECUTED:
                continue
            work = works[instruction.name]
            traffic = instruction_traffic(instruction, module, tiled=tiled)
            read, written = traffic.read, traffic.written
            if (cost := declared_cost(instruction, declared)) is not None and cost.bytes is not None:
                read, written = cost.bytes - min(written, cost.bytes), min(written, cost.bytes)
            origin = origins.of(instruction)
            rows.append(
                OpCost(
                    op=instruction.name,
                    computation=name,
                    opcode=instruction.opcode,
                    category=category_of(instruction, module, work),
                    executions=runs,
                    flops=work.flops,
                    other_flops=work.other,
                    hbm_bytes_read=read,
                    hbm_bytes_written=written,
                    scope=origin.scope,
                    part=origin.part,
                    phase=origin.phase,
                    source=origin.source,
                    contains=tuple(_contained(instruction, module)),
                    unknown=work.unknown,
                    **_collective_fields(instruction, computation, module, mesh, counted, malformed),
                )
            )
    ops = tuple(rows)
    return ModuleCosts(
        module=module.name,
        ops=ops,
        warnings=remarks.warnings(module, ops, schedule, malformed, works),
        flops=flops_bounds(module.entry, module, schedule, works),
    )


def flops_bounds(computation: Computation, module: Module, schedule: Schedule, works: Mapping[str, Work]) -> Bounds:
    """Matmul FLOPs of one run of a computation with all that it calls."""
    low, high = 0, 0
    for instruction in computation.instructions:
        inner = [flops_bounds(module.computations[n], module, schedule, works) for n in _calls(instruction)]
        own = works[instruction.name].total
        match instruction.opcode:
            case "while":
                trips = schedule.trips.get(instruction.name)
                least = inner[0].low * (1 if trips is None else trips)
                most = _times(inner[0].high, trips)
            case "conditional":
                least = min((branch.low for branch in inner), default=0)
                most = None if any(b.high is None for b in inner) else max((b.high or 0 for b in inner), default=0)
            case _:
                least = own + sum(call.low for call in inner)
                most = None if any(call.high is None for call in inner) else own + sum(call.high or 0 for call in inner)
        low += least
        high = None if high is None or most is None else high + most
    return Bounds(low, high)


def _times(high: int | None, trips: int | None) -> int | None:
    """The most that a loop does: nothing is unknown about a body without FLOPs."""
    if high == 0:
        return 0
    return None if high is None or trips is None else high * trips


def _calls(instruction: Instruction) -> tuple[str, ...]:
    """Computations whose instructions have rows of their own."""
    return instruction.called if instruction.opcode in ("while", "conditional", "call") else ()


def _collective_fields(
    instruction: Instruction,
    computation: Computation,
    module: Module,
    mesh: MeshAxes | None,
    counted: set[tuple[str, int]],
    malformed: dict[str, str],
) -> dict[str, Any]:
    """The collective of a row: its own, or the first inside it.

    The TPU compiler cuts one asynchronous collective into steps inside several fusions, each repeating it with the same
    channel; only the first in a computation counts. Channels of other collectives may repeat and say nothing.
    """
    if collectives.kind_of(instruction):
        found = [(instruction, computation)]
    else:
        found = list(collectives.inner_collectives(instruction, module))
    described = []
    for inner, holder in found:
        key = (collectives.kind_of(inner) or "", inner.channel or 0)
        if inner is not instruction and inner.channel:
            if key in counted:
                continue
            counted.add(key)
        try:
            described.append(collectives.describe(inner, holder, module, mesh))
        except MalformedGroups as error:
            malformed[inner.name] = str(error)
            kind = collectives.kind_within(inner, holder)
            return {"collective": kind, "payload_bytes": collectives.payload_bytes(kind, inner)}
    if not described:
        return {}
    first = described[0]
    same = [one for one in described if one.kind == first.kind and one.groups == first.groups]
    return {
        "collective": first.kind,
        "payload_bytes": sum(one.payload_bytes for one in same),
        "wire_bytes": sum(one.wire_bytes for one in same),
        "group_size": first.group_size,
        "groups": first.groups,
        "mesh_axes": first.axes,
        "promoted_from": first.promoted_from,
    }


def _contained(instruction: Instruction, module: Module) -> Iterator[str]:
    """Names inside a fusion or async wrapper, and the plain name that traces give a ``-start``."""
    if (
        instruction.opcode.endswith("-start")
        and (plain := re.sub(r"-start(?=\.|$)", "", instruction.name)) != instruction.name
    ):
        yield plain
    yield from (inner.name for inner, _ in module.held(instruction) if inner.opcode not in ("parameter", "constant"))
