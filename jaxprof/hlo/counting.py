"""FLOPs of any one instruction, a fusion's contents included."""

from __future__ import annotations

import math
from collections.abc import Mapping

from jaxprof.hlo import flops
from jaxprof.hlo.custom_calls import custom_call_work
from jaxprof.hlo.module import Instruction, Module
from jaxprof.hlo.op_cost import DeclaredCost
from jaxprof.hlo.shapes import Shape, is_complex, is_floating
from jaxprof.hlo.work import Work

ARITHMETIC = frozenset({
    "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "abs", "negate", "sign", "power",
    "sqrt", "rsqrt", "cbrt", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh", "tan",
    "sine", "cosine", "atan2", "erf", "floor", "ceil", "round-nearest-afz", "round-nearest-even", "clamp",
})  # fmt: skip
"""Opcodes that compute on each element. Comparisons, selections and conversions move bits and count nothing."""


def instruction_work(instruction: Instruction, module: Module, declared: Mapping[str, DeclaredCost]) -> Work:
    """What one execution computes on one device, with all that a fusion or an async wrapper holds.

    Loops, branches and calls yield nothing: the instructions of their computations have rows of their own.
    """
    shapes = instruction.operand_shapes
    match instruction.opcode:
        case "fusion" | "async-start":
            inside = (inner for inner, _ in module.held(instruction) if inner.opcode != "fusion")
            return sum((instruction_work(inner, module, declared) for inner in inside), Work())
        case "dot":
            return Work({flops.operand_dtype(instruction): flops.dot_flops(instruction)})
        case "ragged-dot":
            return Work({flops.operand_dtype(instruction): flops.ragged_dot_flops(instruction)})
        case "convolution":
            count = flops.convolution_flops(instruction, shapes[0], shapes[1], instruction.shape)
            return Work({flops.operand_dtype(instruction): count})
        case "custom-call":
            return custom_call_work(instruction, declared)
        case "cholesky":
            return Work({instruction.shape.dtype: flops.cholesky_flops(instruction.shape)})
        case "triangular-solve":
            return Work({shapes[0].dtype: flops.triangular_solve_flops(shapes[0], shapes[1])})
        case "reduce" | "reduce-window" | "select-and-scatter" | "scatter" | "map":
            return Work(other=_applications(instruction) * _scalar_flops(instruction, module))
        case "all-reduce" | "all-reduce-start" | "reduce-scatter":
            return Work(other=sum(leaf.size for leaf in instruction.shape.leaves()))
        case "fft":
            length = math.prod(instruction.fft_length)
            transforms = max(instruction.shape.size, shapes[0].size) // max(1, length)
            return Work(other=flops.fft_flops(length, transforms))
        case opcode if opcode in ARITHMETIC:
            return Work(other=_elementwise(opcode, instruction.shape))
    return Work()


def _elementwise(opcode: str, shape: Shape) -> int:
    """One a floating-point element; a complex multiply is six real operations, a sum two."""
    if not is_floating(shape.dtype):
        return 0
    return shape.size * ({"multiply": 6, "divide": 11}.get(opcode, 2) if is_complex(shape.dtype) else 1)


def _applications(instruction: Instruction) -> int:
    """How often the scalar computation of a reduction, scatter or map runs."""
    shapes = instruction.operand_shapes
    result = next(instruction.shape.leaves()).size
    match instruction.opcode:
        case "reduce":
            return max(0, shapes[0].size - result)
        case "reduce-window":
            return result * max(0, math.prod(dim.size for dim in instruction.window) - 1)
        case "select-and-scatter":
            return shapes[0].size + shapes[1].size
        case "scatter":
            return shapes[-1].size
    return result


def _scalar_flops(instruction: Instruction, module: Module) -> int:
    """FLOPs of one run of the scalar computation that an instruction applies."""
    return sum(
        _elementwise(inner.opcode, inner.shape)
        for name in instruction.called
        for inner in module.computations[name].instructions
        if inner.opcode in ARITHMETIC
    )
