"""Whole programs: FLOPs equal closed forms on 1 and 8 devices, scanned and unrolled, with and without remat."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest
from jax import ShapeDtypeStruct as Abstract
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxprof.hlo.costs import module_costs
from jaxprof.hlo.op_cost import Bounds
from jaxprof.hlo.program import MeshAxes


@dataclass(frozen=True)
class Sizes:
    """Letters of the scaling book: batch, sequence, layers, model, hidden, heads, head size, vocabulary."""

    B: int = 8
    S: int = 32
    L: int = 3
    D: int = 64
    F: int = 128
    N: int = 4
    H: int = 16
    V: int = 96

    def forward_layer(self) -> dict[str, int]:
        tokens = self.B * self.S
        return {
            "attention.qkv": 3 * 2 * tokens * self.D * self.N * self.H,
            "attention.core": 2 * 2 * self.B * self.N * self.S * self.S * self.H,
            "attention.out": 2 * tokens * self.N * self.H * self.D,
            "mlp": 2 * 2 * tokens * self.D * self.F,
        }

    def train(self, remat: bool) -> int:
        """Backward costs twice forward. Full remat repeats a layer but for its last matmul, which nobody needs."""
        layer = sum(self.forward_layer().values())
        repeated = layer - 2 * self.B * self.S * self.F * self.D if remat else 0
        return self.L * (3 * layer + repeated) + 3 * 2 * self.B * self.S * self.D * self.V


SIZES = Sizes()


def shapes(z: Sizes) -> dict[str, tuple[tuple[int, ...], P]]:
    return {
        "q": ((z.L, z.D, z.N, z.H), P(None, "fsdp", "tensor")),
        "k": ((z.L, z.D, z.N, z.H), P(None, "fsdp", "tensor")),
        "v": ((z.L, z.D, z.N, z.H), P(None, "fsdp", "tensor")),
        "out": ((z.L, z.N, z.H, z.D), P(None, "tensor", None, "fsdp")),
        "up": ((z.L, z.D, z.F), P(None, "fsdp", "tensor")),
        "down": ((z.L, z.F, z.D), P(None, "tensor", "fsdp")),
        "embed": ((z.V, z.D), P("tensor", "fsdp")),
        "unembed": ((z.D, z.V), P("fsdp", "tensor")),
    }


def train_step(mesh, *, scan: bool, remat: bool, z: Sizes = SIZES):
    """A jitted step of a small causal transformer and its abstract arguments, sharded where there is a mesh."""

    def constrain(x, *spec):
        return lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec))) if mesh else x

    batch = ("data", "fsdp")

    def layer(x, w):
        x = constrain(x, batch)
        with jax.named_scope("attention.qkv"):
            q, k, v = (jnp.einsum("bsd,dnh->bsnh", x, w[name]) for name in "qkv")
        with jax.named_scope("attention.core"):
            scores = jnp.einsum("bqnh,bknh->bnqk", q, k)
            scores = jnp.where(jnp.tril(jnp.ones((z.S, z.S), bool)), scores, -1e9)
            mixed = jnp.einsum("bnqk,bknh->bqnh", jax.nn.softmax(scores), v)
        with jax.named_scope("attention.out"):
            x = x + jnp.einsum("bsnh,nhd->bsd", mixed, w["out"])
        x = constrain(x, batch)
        with jax.named_scope("mlp"):
            x = x + jax.nn.gelu(x @ w["up"]) @ w["down"]
        return constrain(x, batch), None

    def loss(params, tokens):
        stacked = {name: value for name, value in params.items() if "embed" not in name}
        body = jax.checkpoint(layer) if remat else layer
        with jax.named_scope("embed"):
            x = params["embed"][tokens]
        if scan:
            x, _ = lax.scan(body, x, stacked)
        else:
            for i in range(z.L):
                x, _ = body(x, jax.tree.map(lambda w, i=i: w[i], stacked))
        with jax.named_scope("unembed"):
            logits = constrain(x @ params["unembed"], batch, None, "tensor")
        with jax.named_scope("loss"):
            picked = jax.nn.log_softmax(logits) * jax.nn.one_hot(tokens, z.V)
            return -jnp.sum(picked)

    def step(params, tokens):
        gradients = jax.grad(loss)(params, tokens)
        with jax.named_scope("optimizer"):
            return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)

    def abstract(dims, spec, dtype=jnp.float32):
        return Abstract(dims, dtype, sharding=NamedSharding(mesh, spec) if mesh else None)

    params = {name: abstract(*described) for name, described in shapes(z).items()}
    tokens = abstract((z.B, z.S), P(batch), jnp.int32)
    outputs = {name: value.sharding for name, value in params.items()} if mesh else None
    return step, (params, tokens), outputs


def matmul_flops_by(costs, key) -> Counter:
    counted: Counter = Counter()
    for op in costs.ops:
        counted[key(op)] += sum(op.flops.values()) * op.executions.low
    return +counted


@pytest.mark.parametrize("remat", [False, True])
@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("devices", [1, 8])
def test_train_step_equals_the_closed_form(compile_module, make_mesh, devices: int, scan: bool, remat: bool):
    mesh = make_mesh(data=2, fsdp=2, tensor=2) if devices == 8 else None
    step, arguments, outputs = train_step(mesh, scan=scan, remat=remat)
    module = compile_module(step, *arguments, donate_argnums=0, out_shardings=outputs)
    costs = module_costs(module, MeshAxes(("data", "fsdp", "tensor"), (2, 2, 2)) if mesh else None)
    assert costs.flops == Bounds(SIZES.train(remat) // devices, SIZES.train(remat) // devices)


def test_every_matmul_lands_in_its_part(compile_module):
    step, arguments, _ = train_step(None, scan=True, remat=True)
    costs = module_costs(compile_module(step, *arguments))
    forward = {part: SIZES.L * flops for part, flops in SIZES.forward_layer().items()}
    forward["unembed"] = 2 * SIZES.B * SIZES.S * SIZES.D * SIZES.V
    by_part = matmul_flops_by(costs, lambda op: (op.part, op.phase))
    assert {part: by_part[part, "forward"] for part in forward} == forward
    assert {part: by_part[part, "backward"] for part in forward} == {p: 2 * f for p, f in forward.items()}
    down = SIZES.L * 2 * SIZES.B * SIZES.S * SIZES.F * SIZES.D
    repeated = {part: flops for part, flops in forward.items() if part != "unembed"}
    repeated["mlp"] -= down
    assert {part: by_part[part, "recompute"] for part in repeated} == repeated


def test_a_scan_of_l_layers_costs_l_times_one(compile_module):
    def costs_of(layers: int) -> int:
        step, arguments, _ = train_step(None, scan=True, remat=True, z=Sizes(L=layers))
        flops = module_costs(compile_module(step, *arguments)).flops
        assert flops is not None
        assert flops.high == flops.low
        return flops.low

    head = 3 * 2 * SIZES.B * SIZES.S * SIZES.D * SIZES.V
    one = costs_of(2) - head
    assert costs_of(6) - head == 3 * one
    assert costs_of(12) - head == 6 * one


def test_collectives_of_a_train_step_name_their_axes(compile_module, make_mesh):
    """fsdp gathers every weight; tensor reduces activations; data and fsdp reduce gradients."""
    mesh = make_mesh(data=2, fsdp=2, tensor=2)
    step, arguments, outputs = train_step(mesh, scan=True, remat=False)
    module = compile_module(step, *arguments, donate_argnums=0, out_shardings=outputs)
    costs = module_costs(module, MeshAxes(("data", "fsdp", "tensor"), (2, 2, 2)))
    found = {(op.collective, op.mesh_axes) for op in costs.ops if op.collective}
    assert ("all-gather", ("fsdp",)) in found
    assert ("all-reduce", ("tensor",)) in found
    assert ("all-reduce", ("data", "fsdp")) in found or ("all-reduce", ("data",)) in found
    assert all(op.mesh_axes and op.group_size > 1 for op in costs.ops if op.collective)
    layers = [op for op in costs.ops if op.collective == "all-gather" and op.part == "mlp"]
    assert {op.executions.exact for op in layers} == {SIZES.L}
    assert {op.payload_bytes for op in layers} == {SIZES.D * SIZES.F // 2 * 4}, "a layer's weight, its tensor shard"


def test_rows_are_the_instructions_that_run(compile_module):
    """Names are those of the module, each with the computation that holds it; what fusions hold is in ``contains``."""
    step, arguments, _ = train_step(None, scan=True, remat=False)
    module = compile_module(step, *arguments)
    costs = module_costs(module)
    assert len({op.op for op in costs.ops}) == len(costs.ops)
    for op in costs.ops:
        names = {i.name for i in module.computations[op.computation].instructions}
        assert op.op in names
    contained = {name for op in costs.ops for name in op.contains}
    dots = {i.name for i in module.instructions() if i.opcode == "dot"}
    assert dots <= contained | {op.op for op in costs.ops}
    assert not contained & {op.op for op in costs.ops}
