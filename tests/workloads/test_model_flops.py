"""The architecture's FLOPs equal what the compiled program's matmuls execute, whatever the family, step and mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jaxprof.config.schema import MeshConfig, RunConfig
from jaxprof.hlo.costs import module_costs
from jaxprof.hlo.module import parse_module
from jaxprof.workloads.build import build_workload
from jaxprof.workloads.mesh import build_mesh
from jaxprof.workloads.workload import Workload

MakeConfig = Callable[..., RunConfig]
Compile = Callable[[Workload], Any]


def executed_flops(config: RunConfig, compiled: Compile) -> tuple[int, Workload]:
    """Matmul FLOPs of one call over all devices, from the optimized HLO."""
    workload = build_workload(config, build_mesh(config.mesh))
    (module,) = compiled(workload).runtime_executable().hlo_modules()
    costs = module_costs(parse_module(module.as_serialized_hlo_module_proto()), step=config.step.kind)
    assert costs.flops is not None
    assert costs.flops.low == costs.flops.high
    devices = config.mesh.data * config.mesh.fsdp * config.mesh.tensor
    return costs.flops.low * devices, workload


@pytest.mark.parametrize(
    ("kind", "family", "mesh"),
    [
        ("train", "mistral", MeshConfig()),
        ("train", "gpt2", MeshConfig(data=2, fsdp=2, tensor=2)),
        ("prefill", "mistral", MeshConfig(data=2, fsdp=2, tensor=2)),
        ("prefill", "gpt2", MeshConfig(tensor=8)),
        ("decode", "mistral", MeshConfig(data=2, fsdp=2, tensor=2)),
        ("decode", "gpt2", MeshConfig(fsdp=8)),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.data}x{value.fsdp}x{value.tensor}",
)
def test_full_model_flops_are_what_runs(
    kind: str, family: str, mesh: MeshConfig, make_config: MakeConfig, compiled: Compile
) -> None:
    """128 tokens need no padding and 8 key/value heads no replication, so nothing else runs."""
    config = make_config(kind, family, mesh=mesh, model={"vocab": 128})
    executed, workload = executed_flops(config, compiled)
    assert workload.facts.model is not None
    assert executed == workload.facts.model.flops_full
    assert sum(workload.facts.model.flops_parts.values()) == executed


def test_what_runs_besides_the_model_is_padding_replication_and_recompute(
    make_config: MakeConfig, compiled: Compile
) -> None:
    """8 tensor shards: 130 tokens become 256 and 2 key/value heads 8; chunks make the logits once more."""
    config = make_config("train", mesh=MeshConfig(tensor=8), loss_chunks=2)
    executed, workload = executed_flops(config, compiled)
    tokens, D, C, layers = 8 * 16, 32, 8, 2
    logits_row, head = 2 * tokens * D, 2 * tokens * D * C
    extra = 3 * (256 - 130) * logits_row + 256 * logits_row + 3 * layers * 2 * (8 - 2) * head
    assert workload.facts.model is not None
    assert executed == workload.facts.model.flops_full + extra
    assert len(workload.facts.notes) == 3
