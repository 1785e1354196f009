"""FLOPs of calls into libraries and hand-written kernels: from shapes, configuration or a declared cost."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from jaxprof.hlo import flops
from jaxprof.hlo.module import Instruction
from jaxprof.hlo.op_cost import DeclaredCost
from jaxprof.hlo.shapes import Shape
from jaxprof.hlo.work import Work

_NO_FLOPS = re.compile(
    r"AsyncCollective(Start|Done)|X64(Combine|Split(Low|High))|AllocateBuffer|ConcatBitcast|SliceId|Sharding|SPMD\w+|MoveTo(Host|Device)|"
    r"annotate_device_placement|PadToStatic|SliceToDynamic|AssumeGatherIndicesInBound|NopReturnToken|LayoutConstraint|"
    r"TopK|__gpu\$TopK|ApproxTopK|cu_threefry2x32(_ffi)?|__cub\$\w+|ShapeAssertion|global_device_id"
)
"""Targets that move, select or hash data."""


def custom_call_work(call: Instruction, declared: Mapping[str, DeclaredCost]) -> Work:
    """FLOPs of a custom call by operand dtype, or why they are unknown. A declared cost goes before all else."""
    if (cost := declared_cost(call, declared)) is not None and cost.flops is not None:
        return Work({_dtype(call): cost.flops})
    if is_host_callback(call):
        return Work(unknown="host callback")
    if moves_data(call):
        return Work()
    config = backend_config(call)
    if (estimate := _find(config, "cost_estimate")) and "flops" in estimate:
        return Work({_dtype(call): int(estimate["flops"])})
    count = _library_flops(call, config)
    return Work({_dtype(call): count}) if count is not None else Work(unknown=kernel_name(call))


def is_host_callback(call: Instruction) -> bool:
    return "callback" in call.target


def moves_data(call: Instruction) -> bool:
    """Whether a call is known to compute nothing that MFU is about."""
    return _NO_FLOPS.fullmatch(call.target) is not None


def is_attention(call: Instruction) -> bool:
    """Whether a library call or kernel is attention, by the names that such kernels bear."""
    name = f"{call.target} {kernel_name(call)}".lower()
    return any(word in name for word in ("fmha", "attention", "splash", "flash", "mha"))


def kernel_name(call: Instruction) -> str:
    """The name by which people know a custom call: a Pallas kernel's own, otherwise the target."""
    if call.target.startswith(("tpu_custom_call", "__gpu$xla.gpu.triton", "mosaic")):
        return f"{call.target} {_base(call.name)}"
    return call.target


def declared_cost(call: Instruction, declared: Mapping[str, DeclaredCost]) -> DeclaredCost | None:
    """The user's cost for this call, named by instruction, kernel, target or a part of its scope path."""
    for name in (call.name, _base(call.name), call.target, *call.op_name.split("/")):
        if name in declared:
            return declared[name]
    return None


def backend_config(call: Instruction) -> dict[str, Any]:
    """The configuration as an object; empty where a backend keeps something else there."""
    try:
        config = json.loads(call.backend_config)
    except ValueError:
        return {}
    return config if isinstance(config, dict) else {}


def _base(name: str) -> str:
    return re.sub(r"(\.(\d+|clone|remat\d*))+$", "", name)


def _find(config: Any, key: str) -> Any:
    """The first value under ``key`` at any depth; None where there is none."""
    if not isinstance(config, dict):
        return None
    if key in config:
        return config[key]
    return next((found for value in config.values() if (found := _find(value, key)) is not None), None)


def _dtype(call: Instruction) -> str:
    return flops.operand_dtype(call) if call.operands else _result(call).dtype


def _result(call: Instruction) -> Shape:
    """The first array that a call yields; workspaces and status codes stand behind it."""
    return next(call.shape.leaves())


def _library_flops(call: Instruction, config: dict[str, Any]) -> int | None:
    """FLOPs of a library call from its shapes; None where the target is not known."""
    target, shapes = call.target, call.operand_shapes
    if target.startswith(("__cublas$", "__onednn$matmul")):
        return _gemm_flops(call, config)
    if target.startswith("__cudnn$conv"):
        return _convolution_flops(call)
    if target.startswith("__cudnn$fmha"):
        return _attention_flops(call, config)
    if "potrf" in target:
        return flops.cholesky_flops(shapes[0])
    if "trsm" in target:
        return flops.triangular_solve_flops(shapes[0], shapes[1])
    if "geqrf" in target:
        return flops.qr_flops(shapes[0])
    if "orgqr" in target or "ungqr" in target:
        return flops.form_q_flops(_result(call), shapes[1].dims[-1])
    if "getrf" in target:
        return flops.lu_flops(shapes[0])
    return None


def _gemm_flops(call: Instruction, config: dict[str, Any]) -> int | None:
    """2mnk of a matmul call: k from the dimension numbers in its configuration, else the left side's last dimension."""
    lhs = call.operand_shapes[0]
    numbers = _find(config, "dot_dimension_numbers")
    if numbers is not None:
        contracting = [int(axis) for axis in numbers.get("lhs_contracting_dimensions", ())]
    elif call.target.startswith("__onednn$"):
        contracting = [len(lhs.dims) - (2 if _find(config, "transpose_a") else 1)]
    else:
        return None
    depth = math.prod(lhs.dims[axis] for axis in contracting)
    return 2 * _result(call).size * depth * flops.complex_factor(lhs)


def _convolution_flops(call: Instruction) -> int | None:
    """The dimension numbers are the forward convolution's; gradients have its input or kernel as their result."""
    first, second = call.operand_shapes[:2]
    result = _result(call)
    if "BackwardInput" in call.target:
        return flops.convolution_flops(call, result, second, first)
    if "BackwardFilter" in call.target:
        return flops.convolution_flops(call, first, result, second)
    return flops.convolution_flops(call, first, second, result)


def _attention_flops(call: Instruction, config: dict[str, Any]) -> int | None:
    scores = _find(config, "intermediate_tensor_shape")
    if not scores:
        return None
    query, _, value = call.operand_shapes[:3]
    return flops.attention_flops(
        tuple(int(size) for size in scores["dimensions"]),
        query.dims[-1],
        value.dims[-1],
        causal="CAUSAL" in str(_find(config, "mask_type")),
        backward="Backward" in call.target,
    )
