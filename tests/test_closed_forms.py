"""Compiled matmul FLOPs of the shipped models equal closed forms that are written out here."""

from __future__ import annotations

import pytest

from jaxprof.compile.live import compile_workload
from jaxprof.config.load import load_run
from jaxprof.config.schema import RunConfig
from jaxprof.hlo.costs import module_costs
from jaxprof.hlo.module import parse_module
from jaxprof.workloads.build import build_workload
from jaxprof.workloads.mesh import build_mesh

SMALL = (
    "model.d_model=32",
    "model.heads=4",
    "model.kv_heads=2",
    "model.head_dim=8",
    "model.d_ff=48",
    "model.layers=3",
    "model.vocab=128",
)
ONE = ("mesh.data=1", "mesh.fsdp=1", "mesh.tensor=1")
EIGHT = ("mesh.data=2", "mesh.fsdp=2", "mesh.tensor=2")


def compiled_flops(config: RunConfig) -> int:
    """Matmul FLOPs of one step over all devices, from the optimized HLO."""
    mesh = build_mesh(config.mesh)
    program = compile_workload(build_workload(config, mesh)).program
    costs = module_costs(parse_module(program.hlo_module), program.mesh, step=config.step.kind)
    total = 0
    for op in costs.ops:
        assert op.unknown is None, op
        if op.flops:
            assert op.executions.exact is not None, op
            total += sum(op.flops.values()) * op.executions.exact
    return total * program.num_devices


def forward_flops(config: RunConfig, *, queries: int, keys: int, tokens: int) -> tuple[int, int, int]:
    """(layers, unembed, the last matmul of the MLP over all layers) of one forward pass; 2mnk for each matmul.

    ``queries`` and ``keys`` are per sequence; ``tokens`` are over the batch.
    """
    model, batch = config.model, config.step.batch
    d, hd = model.d_model, model.head_dim
    projections = 2 * tokens * d * hd * (model.heads + 2 * model.kv_heads + model.heads)
    core = 2 * 2 * batch * model.heads * queries * keys * hd
    mlp_matmul = 2 * tokens * d * model.d_ff
    mlp = mlp_matmul * (3 if model.mlp == "swiglu" else 2)
    return (
        model.layers * (projections + core + mlp),
        2 * tokens * d * model.vocab,
        model.layers * mlp_matmul,
    )


@pytest.mark.parametrize("mesh", [ONE, EIGHT], ids=["one device", "eight devices"])
@pytest.mark.parametrize("scan", ["true", "false"], ids=["scanned", "unrolled"])
@pytest.mark.parametrize("family", ["llama3", "gpt2"])
def test_train_step_is_three_forward_passes(family: str, scan: str, mesh: tuple[str, ...]) -> None:
    config = load_run(
        f"{family}-tiny-train",
        [*SMALL, *mesh, f"model.scan_layers={scan}", "model.remat=none", "step.batch=8", "step.seq_len=16"],
    )
    layers, unembed, _ = forward_flops(config, queries=16, keys=16, tokens=8 * 16)
    assert compiled_flops(config) == 3 * (layers + unembed)


@pytest.mark.parametrize("mesh", [ONE, EIGHT], ids=["one device", "eight devices"])
def test_full_remat_runs_the_layers_once_more_except_for_the_last_matmul(mesh: tuple[str, ...]) -> None:
    """The backward pass needs the inputs of the MLP's last matmul, not its output, so that one is not recomputed."""
    config = load_run("llama3-tiny-train", [*SMALL, *mesh, "model.remat=full", "step.batch=8", "step.seq_len=16"])
    layers, unembed, last = forward_flops(config, queries=16, keys=16, tokens=8 * 16)
    assert compiled_flops(config) == 4 * layers - last + 3 * unembed


@pytest.mark.parametrize("mesh", [ONE, EIGHT], ids=["one device", "eight devices"])
@pytest.mark.parametrize("scan", ["true", "false"], ids=["scanned", "unrolled"])
def test_prefill_makes_the_last_logits_only(scan: str, mesh: tuple[str, ...]) -> None:
    config = load_run(
        "llama3-tiny-prefill", [*SMALL, *mesh, f"model.scan_layers={scan}", "step.batch=8", "step.seq_len=16"]
    )
    layers, _, _ = forward_flops(config, queries=16, keys=16, tokens=8 * 16)
    assert compiled_flops(config) == layers + 2 * 8 * config.model.d_model * config.model.vocab


@pytest.mark.parametrize("mesh", [ONE, EIGHT], ids=["one device", "eight devices"])
@pytest.mark.parametrize(("loop", "tokens"), [("token", 1), ("device", 6)])
def test_decode_attends_to_the_whole_cache_for_every_token(loop: str, tokens: int, mesh: tuple[str, ...]) -> None:
    config = load_run(
        "llama3-tiny-decode",
        [*SMALL, *mesh, f"step.loop={loop}", f"step.new_tokens={tokens}", "step.batch=8", "step.context=32"],
    )
    layers, unembed, _ = forward_flops(config, queries=1, keys=32, tokens=8)
    assert compiled_flops(config) == tokens * (layers + unembed)


def test_a_scan_of_layers_costs_its_length_times_one() -> None:
    def layers_only(count: int) -> int:
        config = load_run(
            "llama3-tiny-train", [*SMALL, *ONE, f"model.layers={count}", "step.batch=2", "step.seq_len=16"]
        )
        return compiled_flops(config)

    one, two, five = layers_only(1), layers_only(2), layers_only(5)
    assert five - one == 4 * (two - one)
