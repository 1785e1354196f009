"""Modules of the real TPU and GPU compilers (tests/data/hlo/make_*.py) and, where it is at hand, of a measured run."""

from __future__ import annotations

import gzip
import lzma
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from jaxprof.hlo.costs import DeclaredCost, module_costs
from jaxprof.hlo.loops import executions
from jaxprof.hlo.module import Module, parse_module
from jaxprof.hlo.op_cost import Bounds
from jaxprof.hlo.program import MeshAxes

DATA = Path(__file__).parents[1] / "data" / "hlo"
H100 = Path(__file__).parents[3] / "shared" / "traces" / "h100x4_maxtext_nsys" / "nsys_h100x4_maxtext_fsdp4.zip"
MATMUL = 2 * 8 * 2048 * 1024 * 4096
"""One matmul of the train steps in make_tpu.py over all devices."""
STEP = 4 * 7 * MATMUL // 8
"""Four layers: two matmuls forward, one recomputed (the second's output is not needed), four backward; 8 devices."""


def module(name: str) -> Module:
    return parse_module(gzip.decompress((DATA / f"{name}.pb.gz").read_bytes()))


def test_trip_counts_without_the_compilers_word():
    """TPU modules carry no known_trip_count: 4 layers, read from the loops' conditions."""
    step = module("fsdp_tensor_v5e")
    assert not any("known_trip_count" in i.backend_config for i in step.instructions())
    assert set(executions(step).trips.values()) == {4}
    assert module_costs(step).flops == Bounds(STEP, STEP)


def test_windowed_einsums_nest_and_step_by_two():
    """Collective matmuls over 8 devices: each inner loop runs twice, two steps of a pair of directions a time."""
    step = module("windowed_fsdp_v5e")
    assert Counter(executions(step).trips.values()) == {4: 2, 2: 5}
    costs = module_costs(step, MeshAxes(("fsdp",), (8,)))
    assert costs.flops == Bounds(STEP, STEP)
    permutes = [op for op in costs.ops if op.collective == "collective-permute"]
    assert {(op.mesh_axes, op.group_size) for op in permutes} == {(("fsdp",), 8)}
    assert {op.executions.exact for op in permutes} == {4, 8}


def test_an_async_collective_fusion_counts_its_collective_once():
    """The all-gather of channel 31 stands in a start, two steps and a done; it runs once a layer."""
    costs = module_costs(module("fsdp_tensor_v5e"), MeshAxes(("fsdp", "tensor"), (4, 2)))
    gathers = [op for op in costs.ops if op.collective == "all-gather"]
    assert [(op.mesh_axes, op.payload_bytes, op.executions.exact) for op in gathers] == [
        (("fsdp",), 2048 * 1024 * 2, 4),
        (("fsdp",), 2048 * 1024 * 2, 4),
    ]
    assert all(op.op.startswith("async-collective-start") for op in gathers)
    done = [op for op in costs.ops if op.op.startswith("async-collective-done")]
    assert done
    assert all(op.category == "collective" and op.collective is None for op in done)
    reduced = [op for op in costs.ops if op.collective == "all-reduce" and op.mesh_axes == ("tensor",)]
    assert [op.payload_bytes for op in reduced] == [2 * 2048 * 1024 * 2] * 2


def test_collectives_on_the_sparse_core_are_async_calls():
    """call-start without operands, call-update that hands them over, call-done: one collective, on the start."""
    costs = module_costs(module("fsdp_tensor_tpu7x"), MeshAxes(("fsdp", "tensor"), (4, 2)))
    assert costs.flops == Bounds(STEP, STEP)
    found = Counter(
        (op.collective, op.mesh_axes, op.payload_bytes, op.executions.exact) for op in costs.ops if op.collective
    )
    weight, activations = 2048 * 1024 * 2, 2 * 2048 * 1024 * 2
    assert found == {
        ("all-gather", ("fsdp",), weight, 4): 4,
        ("reduce-scatter", ("fsdp",), weight, 4): 2,
        ("all-reduce", ("tensor",), activations, 4): 2,
        ("all-reduce", ("fsdp",), 4, 1): 1,
    }
    halves = [op for op in costs.ops if "call-" in op.op]
    assert len(halves) == 3 * 8
    assert {op.category for op in halves} == {"collective"}


def test_transfers_between_slices_are_collectives():
    """Across two slices gradients go by send and recv through the hosts; the loop is peeled to 3 of its 4 layers."""
    step = module("two_slices_v5e")
    costs = module_costs(step, MeshAxes(("data", "fsdp"), (2, 8)))
    assert 3 in executions(step).trips.values()
    assert costs.flops == Bounds(STEP // 2, STEP // 2)
    sends = [op for op in costs.ops if op.collective == "send"]
    assert {op.category for op in costs.ops if op.opcode.startswith(("send", "recv"))} == {"collective"}
    shard = 1024 * 4096 * 2 // 8
    assert sum(op.payload_bytes * op.executions.low for op in sends if op.payload_bytes == shard) == 4 * 2 * shard
    assert {op.mesh_axes for op in costs.ops if op.collective in ("all-gather", "reduce-scatter")} == {("fsdp",)}


def test_a_tpu_step_knows_parts_phases_and_dtypes():
    costs = module_costs(module("fsdp_tensor_v5e"))
    flops = Counter()
    for op in costs.ops:
        assert set(op.flops) <= {"bf16"}
        flops[op.phase] += sum(op.flops.values()) * op.executions.low
        assert not op.flops or op.category == "matmul"
    share = STEP // 7
    assert +flops == {"forward": 2 * share, "recompute": share, "backward": 4 * share}


def test_d6_a_reduce_scatter_fusion_is_a_reduce_scatter():
    costs = module_costs(module("reduce_scatter_v5e"), MeshAxes(("fsdp",), (4,)))
    gather, scatter = (op for op in costs.ops if op.collective)
    assert (gather.collective, gather.mesh_axes, gather.payload_bytes) == ("all-gather", ("fsdp",), 512 * 512 * 2)
    assert (scatter.collective, scatter.mesh_axes, scatter.group_size) == ("reduce-scatter", ("fsdp",), 4)
    assert (scatter.payload_bytes, scatter.wire_bytes) == (512 * 512 * 4, 512 * 512 * 4 * 3 // 4)
    assert costs.warnings == ()


def test_a7_kernels_with_and_without_an_estimate():
    costs = module_costs(module("pallas_v5e"))
    assert costs.flops == Bounds(33_554_432, 33_554_432)
    (warning,) = costs.warnings
    assert "tpu_custom_call plain_matmul" in warning
    declared = module_costs(module("pallas_v5e"), declared={"plain_matmul": DeclaredCost(flops=33_554_432)})
    assert declared.flops == Bounds(67_108_864, 67_108_864)
    assert declared.warnings == ()


def test_a_gpu_step_counts_library_calls_and_collective_kernels():
    """Matmuls are cuBLAS calls; all-reduces over tensor hide in Triton fusions behind fusion-start."""
    costs = module_costs(module("fsdp_tensor_h100"), MeshAxes(("fsdp", "tensor"), (4, 2)))
    assert costs.flops == Bounds(STEP, STEP)
    assert costs.warnings == ()
    matmuls = [op for op in costs.ops if op.flops]
    assert {(op.opcode, op.category) for op in matmuls} == {("custom-call", "matmul")}
    weights, activations = 2 * 1024 * 4096 * 2 // 2, 2 * 2048 * 1024 * 2
    found = {
        (op.opcode, op.collective, op.mesh_axes, op.payload_bytes)
        for op in costs.ops
        if op.collective and op.executions.exact == 4
    }
    assert found == {
        ("all-gather", "all-gather", ("fsdp",), weights),
        ("reduce-scatter", "reduce-scatter", ("fsdp",), weights),
        ("async-start", "all-reduce", ("tensor",), activations),
    }


def test_a_gpu_convolution_and_its_gradients_cost_three_times_one():
    costs = module_costs(module("convolution_h100"))
    one = 2 * 62 * 62 * 3 * 3 * 16 * 32
    assert costs.flops == Bounds(3 * one, 3 * one)
    assert [op.category for op in costs.ops if op.flops] == ["convolution"] * 3


@pytest.mark.skipif(not H100.exists(), reason="the shared trace archive is not here")
def test_a_measured_h100_step_costs_the_same_before_and_after_the_compiler():
    """MaxText on 4 H100: the whole program's FLOPs before optimization are four times a device's after it.

    Before, two loops of 8 layers; after, cuBLAS calls in peeled and unrolled loops of 3 and 2 iterations.
    """
    with zipfile.ZipFile(H100) as archive:
        names = [name for name in archive.namelist() if "0016.jit_train_step" in name and name.endswith(".hlo.pb.xz")]
        before, after = (
            parse_module(lzma.decompress(archive.read(next(name for name in names if stage in name))))
            for stage in ("before_optimizations", "after_optimizations")
        )
    assert set(executions(before).trips.values()) == {8}
    assert set(executions(after).trips.values()) == {2, 3}
    whole, device = module_costs(before).flops, module_costs(after, MeshAxes(("fsdp",), (4,)))
    assert device.flops is not None
    assert whole == Bounds(4 * device.flops.low, 4 * device.flops.low)
    assert {op.mesh_axes for op in device.ops if op.collective} == {("fsdp",)}
    assert not any(op.unknown for op in device.ops)
    assert device.warnings == ()
