"""What a person would want to change about a compiled program: one line each, with bytes and source."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from jaxprof.hlo.metadata import source_of
from jaxprof.hlo.module import Computation, Instruction, Module
from jaxprof.hlo.op_cost import ModuleCosts
from jaxprof.hlo.program import Argument, Program
from jaxprof.hlo.shapes import Shape

_BIG_CONSTANT_BYTES = 1 << 20
_REPLICATED_SHARE = 0.01
"""Norm scales and biases stand whole on every device everywhere; below this share of the parameters nobody minds."""
_REMATERIALISED = re.compile(
    r"Involuntary full rematerialization\. The compiler cannot go from sharding (?P<old>\{.*?\}) to (?P<new>\{.*?\}) "
    r"efficiently for HLO operation (?P<op>%\S+) = (?P<shape>\w+\[[\d,]*\])(?:.*?op_name=\"(?P<name>.*?)\")?"
)


def findings(program: Program, module: Module, costs: ModuleCosts) -> tuple[str, ...]:
    """One line for each thing found. What the costs alone tell stands in ``costs.warnings``, not here."""
    return (
        *_refused_donations(program, module),
        *_missing_donations(program, module),
        *_dropped(program),
        *_big_constants(module),
        *_replicated_parameters(program),
        *_rematerialised(program, module, costs),
        *_uneven(program, module),
        *_doubled_cache(program, module),
    )


def _refused_donations(program: Program, module: Module) -> Iterator[str]:
    reused = {alias.operand for alias in module.aliases}
    shapes = _parameters(module)
    outputs = [_array(leaf) for leaf in module.entry.root.shape.leaves()]
    for argument in program.arguments:
        if not argument.donated or argument.parameter is None or argument.parameter in reused:
            continue
        shape = shapes[argument.parameter]
        reason = "no output of the same shape"
        if _array(shape) in outputs:
            reason = "every output of its shape has another argument's buffer, or another layout"
        elif program.num_devices > 1:
            reason += f" on a device ({shape} there)"
        yield f"donated argument {argument.path} ({argument.device_bytes:,} B) not reused: {reason}"


def _missing_donations(program: Program, module: Module) -> Iterator[str]:
    """State that comes back with its shape unchanged and is held twice because nobody donated it."""
    shapes = _parameters(module)
    reused = {alias.output_index for alias in module.aliases}
    root = module.entry.root.shape
    leaves = [(index, leaf) for index, leaf in _indexed(root) if index not in reused]
    free = [_array(leaf) for _, leaf in leaves]
    held: list[Argument] = []
    for argument in program.arguments:
        is_state = argument.owner in ("parameters", "optimizer state", "kv cache")
        if not is_state or argument.donated or argument.parameter is None:
            continue
        array = _array(shapes[argument.parameter])
        if math.prod(array[1]) > 1 and array in free:
            free.remove(array)
            held.append(argument)
    if held:
        size = sum(argument.device_bytes for argument in held)
        yield (
            f"{_these(held)} not donated, though outputs have the same shapes: "
            f"donating would save {size:,} B on each device"
        )


def _dropped(program: Program) -> Iterator[str]:
    dropped = [argument for argument in program.arguments if argument.parameter is None]
    if dropped:
        size = sum(argument.device_bytes for argument in dropped)
        plural = "s" if len(dropped) > 1 else ""
        yield (
            f"{len(dropped)} argument{plural} dropped ({size:,} B): {_names(dropped)} unused by the program, "
            f"while the caller still holds the memory"
        )


def _big_constants(module: Module) -> Iterator[str]:
    for computation in module.computations.values():
        for constant in computation.instructions:
            if constant.opcode == "constant" and constant.shape.bytes >= _BIG_CONSTANT_BYTES:
                user = next((i for i in computation.instructions if constant in i.operands), constant)
                yield (
                    f"constant {constant.name} {constant.shape} ({constant.shape.bytes:,} B) is baked into the program"
                    f"{_place(user, module)}: pass it as an argument"
                )


def _replicated_parameters(program: Program) -> Iterator[str]:
    """Parameters of which every device holds the whole; the share is of all parameters' bytes, each counted once."""
    sizes = {
        a: a.device_bytes * program.num_devices // a.replicas for a in program.arguments if a.owner == "parameters"
    }
    whole = [argument for argument in sizes if argument.replicas == program.num_devices]
    total, size = sum(sizes.values()), sum(sizes[argument] for argument in whole)
    if program.num_devices > 1 and total and size / total >= _REPLICATED_SHARE:
        whole.sort(key=lambda argument: -sizes[argument])
        yield (
            f"{100 * size / total:.0f} % of parameter bytes replicated "
            f"({_names(whole)}, {size:,} B on each of {program.num_devices})"
        )


def _rematerialised(program: Program, module: Module, costs: ModuleCosts) -> Iterator[str]:
    """Arrays that the partitioner gathered whole because it knew no better way from one sharding to another."""
    for line in program.diagnostics:
        match = _REMATERIALISED.search(line)
        if match is None:
            continue
        name = match["name"] or match["op"]
        gathers = [
            instruction
            for cost in costs.ops
            if cost.collective == "all-gather"
            for instruction in module.computations[cost.computation].instructions
            if instruction.name == cost.op and _made_from(instruction, match["op"].lstrip("%"))
        ]
        whole = max(gathers, key=lambda instruction: instruction.shape.bytes, default=None)
        what = f"{whole.shape} ({whole.shape.bytes:,} B) on each device" if whole else f"from {match['shape']} a device"
        user = _first_user(whole, module) if whole else None
        yield (
            f"full rematerialisation of {name}: the partitioner gathers it whole, {what}, to go from sharding "
            f"{match['old']} to {match['new']}{_place(user, module) if user else ''}"
        )


def _made_from(instruction: Instruction, name: str) -> bool:
    """Whether a value is made from the instruction of that name, each step having one operand."""
    while instruction.name != name and len(instruction.operands) == 1:
        instruction = instruction.operands[0]
    return instruction.name == name


def _uneven(program: Program, module: Module) -> Iterator[str]:
    """Arrays that the partitioner padded to cut them evenly: a pad of which each device takes its slice."""
    for computation in module.computations.values():
        users = computation.users()
        for pad in computation.instructions:
            cut = next((user for user in users[pad.name] if user.opcode == "dynamic-slice"), None)
            if pad.opcode != "pad" or cut is None:
                continue
            whole, padded = pad.operands[0].shape, pad.shape
            parts = padded.size // max(1, cut.shape.size)
            added = padded.size - whole.size
            evened = (-(-size // parts) * parts for size in whole.dims) if parts else ()
            is_ours = all(new in (old, even) for new, old, even in zip(padded.dims, whole.dims, evened, strict=False))
            if added and parts > 1 and program.num_devices % parts == 0 and is_ours:
                yield (
                    f"uneven sharding: {whole} is padded to {padded} to be cut in {parts} ({cut.shape} each), "
                    f"{added:,} elements ({100 * added / whole.size:.3f} %) of padding{_place(pad, module)}"
                )


def _doubled_cache(program: Program, module: Module) -> Iterator[str]:
    """A donated KV cache that stands in memory twice all the same: a whole new one is made beside the argument."""
    shapes = _parameters(module)
    caches = {
        _array(shapes[argument.parameter]): argument
        for argument in program.arguments
        if argument.owner == "kv cache" and argument.donated and argument.parameter is not None and argument.shape
    }
    seen: set[tuple[str, tuple[int, ...]]] = set()
    for computation in _scheduled(module):
        for made in computation.instructions:
            array = _array(made.shape)
            if array not in caches or array in seen or not _makes_whole(made, module):
                continue
            seen.add(array)
            argument = caches[array]
            yield (
                f"KV cache in {argument.path} ({argument.device_bytes:,} B) is held twice: {made.name} makes a whole "
                f"one beside it{_place(made, module)}; carry it whole through the loop and update it in place"
            )


def _makes_whole(instruction: Instruction, module: Module) -> bool:
    """Whether an instruction writes a new array where one was not: a copy, or zeros to be filled."""
    if instruction.opcode in ("copy", "broadcast"):
        return True
    if instruction.opcode != "fusion":
        return False
    root = module.computations[instruction.called[0]].root
    while root.opcode in ("bitcast", "convert") and root.operands:
        root = root.operands[0]
    return root.opcode in ("copy", "broadcast")


def _scheduled(module: Module) -> Iterator[Computation]:
    """Computations whose instructions have memory of their own."""
    fused = {name for i in module.instructions() if i.opcode == "fusion" for name in i.called}
    yield from (computation for name, computation in module.computations.items() if name not in fused)


def _first_user(instruction: Instruction, module: Module) -> Instruction | None:
    """The first instruction that computes with a value and says where it comes from."""
    for computation in module.computations.values():
        if instruction in computation.instructions:
            for user in computation.users()[instruction.name]:
                return user if user.frame or user.source_file else _first_user(user, module)
    return None


def _place(instruction: Instruction, module: Module) -> str:
    source = source_of(instruction, module)
    for inner, _ in () if source else module.held(instruction):
        source = source or source_of(inner, module)
    return f" at {source}" if source else ""


def _parameters(module: Module) -> list[Shape]:
    parameters = module.entry.parameters()
    return [leaf for number in sorted(parameters) for leaf in parameters[number].shape.leaves()]


def _indexed(shape: Shape) -> Iterator[tuple[tuple[int, ...], Shape]]:
    if shape.dtype != "tuple":
        yield (), shape
    for position, element in enumerate(shape.elements):
        yield from (((position, *index), leaf) for index, leaf in _indexed(element))


def _array(shape: Shape) -> tuple[str, tuple[int, ...]]:
    return shape.dtype, shape.dims


def _names(arguments: list[Argument], most: int = 3) -> str:
    names = ", ".join(argument.path for argument in arguments[:most])
    return names if len(arguments) <= most else f"{names} and {len(arguments) - most} more"


def _these(arguments: list[Argument]) -> str:
    size = sum(argument.device_bytes for argument in arguments)
    noun = "argument" if len(arguments) == 1 else f"{len(arguments)} arguments:"
    return f"{noun} {_names(arguments)} ({size:,} B)"
