"""What people should know about a module's costs: one line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from jaxprof.hlo.bytes import touched
from jaxprof.hlo.loops import Schedule
from jaxprof.hlo.module import Computation, Instruction, Module
from jaxprof.hlo.op_cost import OpCost
from jaxprof.hlo.work import Work


def warnings(
    module: Module, ops: tuple[OpCost, ...], schedule: Schedule, malformed: Mapping[str, str], works: Mapping[str, Work]
) -> tuple[str, ...]:
    """One line for each thing that a reader of the costs could take wrongly."""
    return (
        *(f"{name}: {problem}; its group and mesh axes are unknown" for name, problem in malformed.items()),
        *_loops(module, schedule, works),
        *_branches(module, schedule, works),
        *_unpriced(ops),
        *_promoted(ops),
        *_would_scatter(module, ops),
    )


def _loops(module: Module, schedule: Schedule, works: Mapping[str, Work]) -> Iterator[str]:
    for loop in _executed(module, schedule, "while"):
        if schedule.trips.get(loop.name) is None:
            flops = _reachable_flops(module.computations[loop.called[0]], module, works)
            yield (
                f"{loop.name}: per iteration {flops:,} FLOPs; trip count unknown, counted as one iteration "
                f"(a lower bound); give it as trip_counts={{'{loop.name}': ...}}"
            )


def _branches(module: Module, schedule: Schedule, works: Mapping[str, Work]) -> Iterator[str]:
    for branching in _executed(module, schedule, "conditional"):
        flops = [_reachable_flops(module.computations[name], module, works) for name in branching.called]
        if len(set(flops)) > 1:
            yield (
                f"{branching.name}: which branch runs depends on data; "
                f"{min(flops):,} to {max(flops):,} FLOPs each time it is reached"
            )


def _unpriced(ops: tuple[OpCost, ...]) -> Iterator[str]:
    kinds = Counter(op.unknown for op in ops if op.unknown)
    for kind, count in kinds.items():
        if kind == "host callback":
            yield f"FLOPs: unknown part: {count} host callback{'s' if count > 1 else ''}"
        else:
            calls = f"{count} calls" if count > 1 else "1 call"
            yield f"FLOPs of {kind} ({calls}) are not counted: its cost is not known; declare it by name"


def _promoted(ops: tuple[OpCost, ...]) -> Iterator[str]:
    widened = Counter((op.collective, op.promoted_from) for op in ops if op.promoted_from)
    for (kind, dtype), count in widened.items():
        yield (
            f"{count} {kind}{'s' if count > 1 else ''} promoted from {dtype} to a wider type by this backend: "
            f"hardware that reduces {dtype} sends half the bytes"
        )


def _would_scatter(module: Module, ops: tuple[OpCost, ...]) -> Iterator[str]:
    """All-reduces of which every device keeps only its own shard."""
    found = 0
    for op in ops:
        if op.opcode not in ("all-reduce", "all-reduce-start") or not op.group_size or op.group_size < 2:
            continue
        computation = module.computations[op.computation]
        reduced = next(i for i in computation.instructions if i.name == op.op)
        users = [i for i in computation.instructions if reduced in i.operands]
        parts = [i for i in users if i.opcode == "get-tuple-element"] if reduced.shape.elements else [reduced]
        found += all(_kept_elements(part, computation, module) * op.group_size <= part.shape.size for part in parts)
    if found:
        yield (
            f"{found} all-reduce{'s' if found > 1 else ''} of which each device keeps only its own shard: where the "
            f"compiler makes a reduce-scatter of it, as the TPU's does, half the bytes cross the wire"
        )


def _kept_elements(value: Instruction, computation: Computation, module: Module) -> int:
    """Elements of a value that its users touch, at most; the whole where any user takes it whole.

    A shard is a dynamic slice, by the device's own number. Static slices take combined values apart, into the whole.
    """
    kept = [0]
    for user in computation.instructions:
        if value not in user.operands:
            continue
        if user.opcode == "dynamic-slice":
            kept.append(user.shape.size)
        elif user.opcode in ("bitcast", "all-reduce-done"):
            kept.append(_kept_elements(user, computation, module))
        elif user.opcode == "fusion":
            inner = module.computations[user.called[0]]
            parameter = inner.parameters()[user.operands.index(value)]
            if any(i.opcode == "slice" and parameter in i.operands for i in inner.instructions):
                return value.shape.size
            kept.append(touched(inner, module)[parameter.name])
        else:
            return value.shape.size
    return max(kept) or value.shape.size


def _executed(module: Module, schedule: Schedule, opcode: str) -> Iterator[Instruction]:
    for name in schedule.executions:
        yield from (i for i in module.computations[name].instructions if i.opcode == opcode)


def _reachable_flops(computation: Computation, module: Module, works: Mapping[str, Work]) -> int:
    """Matmul FLOPs of a computation and all that it calls, each loop once."""
    total = 0
    for instruction in computation.instructions:
        total += works[instruction.name].total
        if instruction.opcode in ("while", "conditional", "call"):
            total += sum(_reachable_flops(module.computations[n], module, works) for n in instruction.called)
    return total
