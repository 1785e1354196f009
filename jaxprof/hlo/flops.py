"""FLOPs of matmuls, convolutions and factorisations, as closed forms of their shapes.

Matmuls count 2mnk (8mnk for complex operands: four real products and their sums), convolutions count only the positions
where a kernel element meets an input element that is neither padding nor a hole.
"""

from __future__ import annotations

import math

from jaxprof.hlo.module import Instruction, WindowDim
from jaxprof.hlo.shapes import Shape, dtype_bits, is_complex


def complex_factor(shape: Shape) -> int:
    return 4 if is_complex(shape.dtype) else 1


def operand_dtype(instruction: Instruction) -> str:
    """The dtype that decides the peak: that of the wider operand, as it stands in the HLO."""
    return max((shape.dtype for shape in instruction.operand_shapes[:2]), key=dtype_bits)


def dot_flops(instruction: Instruction) -> int:
    """2mnk, batch included."""
    lhs = instruction.operand_shapes[0]
    depth = math.prod(lhs.dims[axis] for axis in instruction.dot.lhs_contracting) if instruction.dot else 1
    return 2 * instruction.shape.size * depth * complex_factor(lhs)


def ragged_dot_flops(instruction: Instruction) -> int:
    """2mnk with each row counted once, with the one group that it meets: the useful work."""
    lhs, rhs, sizes = instruction.operand_shapes[:3]
    if instruction.dot is None:
        return 0
    gone = {*instruction.dot.rhs_contracting, *instruction.dot.rhs_batch}
    columns = math.prod(size for axis, size in enumerate(rhs.dims) if axis not in gone)
    has_group_axis = len(rhs.dims) > len(gone) + 1
    return 2 * lhs.size * (columns // sizes.dims[-1] if has_group_axis else columns) * complex_factor(lhs)


def convolution_flops(instruction: Instruction, lhs: Shape, rhs: Shape, output: Shape) -> int:
    """2 x positions x batch x input features of a group x output features.

    The shapes are named apart from the instruction, because library calls for gradients swap their roles.
    """
    dims = instruction.conv
    if dims is None:
        return 0
    positions = math.prod(
        window_positions(lhs.dims[base], output.dims[result], window)
        for base, result, window in zip(dims.input_spatial, dims.output_spatial, instruction.window, strict=True)
    )
    batch = lhs.dims[dims.input_batch] // instruction.batch_groups
    features = rhs.dims[dims.kernel_input_feature] * output.dims[dims.output_feature]
    return 2 * positions * batch * features * complex_factor(lhs)


def window_positions(base: int, outputs: int, window: WindowDim) -> int:
    """Pairs of an output and a kernel element, along one dimension, that meet one of the ``base`` input elements."""
    dilated = (base - 1) * window.base_dilation + 1 if base else 0
    period = window.base_dilation // math.gcd(window.stride, window.base_dilation)
    pairs = 0
    for element in range(window.size):
        shift = element * window.window_dilation - window.padding_low
        first = max(0, -(shift // window.stride))
        last = min(outputs - 1, (dilated - 1 - shift) // window.stride)
        for output in range(first, min(first + period, last + 1)):
            if (output * window.stride + shift) % window.base_dilation == 0:
                pairs += (last - output) // period + 1
                break
    return pairs


def attention_flops(
    scores: tuple[int, ...], depth: int, value_depth: int, *, causal: bool, backward: bool = False
) -> int:
    """QK^T and PV, or the five products of the backward pass, for scores of [..., queries, keys].

    A causal mask leaves for each query the keys up to its own position.
    """
    *rows, queries, keys = scores
    attended = sum(min(query + 1, keys) for query in range(queries)) if causal else queries * keys
    return 2 * math.prod(rows) * attended * ((3 * depth + 2 * value_depth) if backward else (depth + value_depth))


def cholesky_flops(shape: Shape) -> int:
    """n^3/3 for each matrix (Golub and Van Loan, section 4.2)."""
    return math.prod(shape.dims[:-2]) * shape.dims[-1] ** 3 * complex_factor(shape) // 3


def triangular_solve_flops(triangle: Shape, sides: Shape) -> int:
    """n^2 for each right-hand side (Golub and Van Loan, section 3.1)."""
    return sides.size * triangle.dims[-1] * complex_factor(triangle)


def qr_flops(shape: Shape) -> int:
    """2n^2(m - n/3) of Householder QR on each m x n matrix, m >= n (Golub and Van Loan, section 5.2)."""
    *batch, rows, columns = shape.dims
    rows, columns = max(rows, columns), min(rows, columns)
    return math.prod(batch) * 2 * columns * columns * (3 * rows - columns) * complex_factor(shape) // 3


def form_q_flops(shape: Shape, reflectors: int) -> int:
    """4mnk - 2(m + n)k^2 + 4k^3/3 to form m x n of Q from k reflectors (LAPACK working note 41, ORGQR)."""
    *batch, rows, columns = shape.dims
    thrice = 12 * rows * columns * reflectors - 6 * (rows + columns) * reflectors**2 + 4 * reflectors**3
    return math.prod(batch) * thrice * complex_factor(shape) // 3


def lu_flops(shape: Shape) -> int:
    """n^2(m - n/3) of LU with pivoting on each m x n matrix, m >= n (Golub and Van Loan, section 3.2)."""
    return qr_flops(shape) // 2


def fft_flops(length: int, transforms: int) -> int:
    """5 n log2 n for each complex transform, the figure by which FFTs are compared (fftw.org/speed)."""
    return int(5 * transforms * length * math.log2(length)) if length > 1 else 0
