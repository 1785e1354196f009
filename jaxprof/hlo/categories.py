"""What kind of work an instruction is."""

from __future__ import annotations

from collections.abc import Iterator

from jaxprof.hlo.collectives import inner_collectives, kind_of
from jaxprof.hlo.counting import ARITHMETIC
from jaxprof.hlo.custom_calls import is_attention, is_host_callback, moves_data
from jaxprof.hlo.module import Instruction, Module
from jaxprof.hlo.op_cost import Category
from jaxprof.hlo.work import Work

_CONTROL = ("while", "conditional", "call")
_REDUCTIONS = ("reduce", "reduce-window", "select-and-scatter")
_GATHERS = ("gather", "scatter")
_HOST = ("infeed", "outfeed")
_MOVES = frozenset({
    "copy", "copy-start", "copy-done", "transpose", "reshape", "broadcast", "concatenate", "pad", "slice", "reverse",
    "dynamic-slice", "dynamic-update-slice", "bitcast", "bitcast-convert", "tuple", "get-tuple-element", "parameter",
    "constant", "iota", "partition-id", "replica-id",
})  # fmt: skip
_ELEMENTWISE = ARITHMETIC | {
    "compare", "select", "and", "or", "xor", "not", "convert", "shift-left", "shift-right-logical", "is-finite", "real",
    "shift-right-arithmetic", "complex", "imag", "popcnt", "count-leading-zeros", "reduce-precision", "map", "rng",
    "stochastic-convert", "rng-bit-generator",
}  # fmt: skip
_HOST_MEMORY = 5


def category_of(instruction: Instruction, module: Module, work: Work) -> Category:
    """The kind of work that matters most in an instruction; a fusion is judged by what it holds."""
    opcode = instruction.opcode
    if opcode in _CONTROL:
        return "control"
    if _between_slices(instruction):
        return "collective"
    if opcode in _HOST or instruction.host_transfer or _crosses_to_host(instruction) or instruction.thread == "host":
        return "host"
    if opcode == "custom-call":
        return _library_category(instruction, work)
    if kind_of(_begun_by(instruction)) or (not work.total and _holds_collective(_begun_by(instruction), module)):
        return "collective"
    held = list(_held(instruction, module))
    if work.total:
        return _matmul_or_convolution(held)
    opcodes = {inner.opcode for inner in held if not _is_index(inner)} or {inner.opcode for inner in held}
    if opcodes & set(_GATHERS):
        return "gather/scatter"
    if opcodes & set(_REDUCTIONS):
        return "reduction"
    if opcodes <= _MOVES:
        return "data movement"
    return "elementwise" if opcodes <= _MOVES | _ELEMENTWISE else "other"


def _is_index(instruction: Instruction) -> bool:
    """Whether an instruction works on single numbers only, as the computation of an index does."""
    return all(shape.size == 1 for shape in (instruction.shape, *instruction.operand_shapes))


def _held(instruction: Instruction, module: Module) -> Iterator[Instruction]:
    """The instruction, or all that a fusion or async wrapper holds."""
    if instruction.opcode in ("fusion", "async-start", "async-done", "async-update"):
        yield from (inner for inner, _ in module.held(_begun_by(instruction)) if inner.opcode not in ("fusion", "call"))
    else:
        yield instruction


def _begun_by(instruction: Instruction) -> Instruction:
    """The ``-start`` of an async pair for its other parts; otherwise the instruction itself."""
    while instruction.opcode.endswith(("-done", "-update")) and instruction.operands:
        instruction = instruction.operands[0]
    return instruction


def _holds_collective(instruction: Instruction, module: Module) -> bool:
    return next(inner_collectives(instruction, module), None) is not None


def _between_slices(instruction: Instruction) -> bool:
    """Whether a transfer through the host carries part of a collective to another TPU slice."""
    return any(key.startswith("_xla_megascale") for key in _begun_by(instruction).frontend_attributes)


def _crosses_to_host(instruction: Instruction) -> bool:
    """Whether a copy has exactly one end in host memory."""
    if not instruction.opcode.startswith("copy") or not instruction.operands:
        return False
    start = _begun_by(instruction)
    ends = (*start.operand_shapes, start.shape.elements[0] if start.shape.elements else start.shape)
    return len({leaf.layout.memory_space == _HOST_MEMORY for end in ends for leaf in end.leaves()}) > 1


def _library_category(call: Instruction, work: Work) -> Category:
    if is_host_callback(call):
        return "host"
    if is_attention(call):
        return "attention"
    if "$conv" in call.target:
        return "convolution"
    if call.target.startswith(("__cublas$", "__onednn$matmul")):
        return "matmul"
    if moves_data(call):
        return "data movement"
    return "custom call"


def _matmul_or_convolution(held: list[Instruction]) -> Category:
    """The TPU compiler writes matmuls as convolutions; the program's own name for it tells them apart."""
    convolutions = [i for i in held if i.opcode == "convolution"]
    if any(i.opcode in ("dot", "ragged-dot") for i in held):
        return "matmul"
    if convolutions:
        matmul = all(
            not i.window or ("conv_general_dilated" not in i.op_name and "dot" in i.op_name) for i in convolutions
        )
        return "matmul" if matmul else "convolution"
    calls = [i for i in held if i.opcode == "custom-call"]
    return _library_category(calls[0], Work()) if calls else "other"
