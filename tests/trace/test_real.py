"""Real traces of 8 simulated devices against the compiled program and the clock."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxprof.hlo.costs import module_costs
from jaxprof.hlo.module import parse_module
from jaxprof.hlo.op_cost import ModuleCosts
from jaxprof.measure.capture import trace
from jaxprof.trace.read import read_timeline
from jaxprof.trace.timeline import Timeline

_STEPS = 3


@dataclass(frozen=True)
class Traced:
    timeline: Timeline
    costs: ModuleCosts


def _costs(compiled) -> ModuleCosts:
    return module_costs(parse_module(compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()))


def _trace(compiled, state, *rest, steps=_STEPS, donated=True) -> bytes:
    for _ in range(2):
        state_next = compiled(state, *rest)
        state = state_next if donated else state
    jax.block_until_ready(state)
    with trace() as capture:
        for number in range(steps):
            with jax.profiler.StepTraceAnnotation("step", step_num=number):
                outputs = compiled(state, *rest)
                state = outputs if donated else state
        jax.block_until_ready(outputs)
    return capture.xspace


@pytest.fixture(scope="module")
def traced() -> Traced:
    """Gradient steps of four scanned layers on a data x fsdp x tensor mesh."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 2, 2), ("data", "fsdp", "tensor"))

    def step(w, x):
        def loss(w):
            y, _ = jax.lax.scan(lambda c, layer: (jnp.tanh(c @ layer), None), x, w)
            return (y**2).sum()

        return w - 0.1 * jax.grad(loss)(w)

    w = jax.device_put(jnp.ones((4, 256, 256)), NamedSharding(mesh, P(None, "fsdp", "tensor")))
    x = jax.device_put(jnp.ones((64, 256)), NamedSharding(mesh, P(("data", "fsdp"), None)))
    compiled = jax.jit(step, donate_argnums=0).lower(w, x).compile()
    costs = _costs(compiled)
    data = _trace(compiled, w, x)
    return Traced(read_timeline(data, {costs.module: costs}, num_devices=8), costs)


def test_each_op_ran_as_often_as_the_compiled_program_says(traced):
    """On every device in every step. A loop's own event and the conditions that XLA folds away have none."""
    counted = traced.timeline.intervals.group_by("device", "step", "op").agg(pl.col("occurrence").n_unique())
    expected = {c.op: c.executions.exact for c in traced.costs.ops}
    assert counted.select("device", "step").unique().height == 8 * _STEPS
    assert {(op, n) for _, _, op, n in counted.rows()} <= set(expected.items())
    assert counted.height == 8 * _STEPS * counted["op"].n_unique()
    silent = {c.op for c in traced.costs.ops} - set(counted["op"])
    assert all(c.opcode == "while" or "compare" in c.op for c in traced.costs.ops if c.op in silent), silent
    collectives = {c.op for c in traced.costs.ops if c.collective}
    assert len(collectives) >= 4 and collectives <= set(counted["op"])


def test_ops_and_gaps_close_to_the_wall_time_of_every_step(traced):
    """Ops of a stream never share an instant and never leave their step, so they and the gaps sum to it exactly."""
    for (device, step), rows in traced.timeline.intervals.filter(stream="ops").group_by("device", "step"):
        window = traced.timeline.steps.filter(device=device, step=step).row(0, named=True)
        edges = rows.sort("start_ps").select("start_ps", "end_ps").to_numpy()
        assert (edges[1:, 0] >= edges[:-1, 1]).all()
        assert window["start_ps"] == edges[0, 0] and edges[-1, 1] <= window["end_ps"]
        assert window["busy_end_ps"] <= window["end_ps"]


def test_steps_follow_each_other_without_a_hole(traced):
    for _, rows in traced.timeline.steps.group_by("device"):
        rows = rows.sort("step")
        assert rows["step"].to_list() == list(range(_STEPS))
        assert rows["end_ps"].to_list()[:-1] == rows["start_ps"].to_list()[1:]
    assert traced.timeline.notes == ()


def test_the_last_participant_of_a_collective_waits_for_nobody(traced):
    """In every replica group of every execution some device has no wait, and none waits longer than it lasts."""
    rows = traced.timeline.intervals
    assert (rows["wait_ps"] <= rows["end_ps"] - rows["start_ps"]).all() and (rows["wait_ps"] >= 0).all()
    for cost in (c for c in traced.costs.ops if c.collective and c.collective != "collective-permute"):
        mine = rows.filter(op=cost.op)
        for group in cost.groups or ():
            least = (
                mine.filter(pl.col("device").is_in(group)).group_by("step", "occurrence").agg(pl.col("wait_ps").min())
            )
            assert (least["wait_ps"] == 0).all()


def test_e1_a_contraction_sharded_matmul_has_three_by_eight_all_reduces():
    mesh = Mesh(np.array(jax.devices()[:8]), ("x",))
    a = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P(None, "x")))
    b = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("x", None)))
    compiled = jax.jit(lambda a, b: a @ b).lower(a, b).compile()
    costs = _costs(compiled)
    timeline = read_timeline(_trace(compiled, a, b, donated=False), {costs.module: costs})
    (reduce,) = (c.op for c in costs.ops if c.collective == "all-reduce")
    rows = timeline.intervals.filter(op=reduce)
    assert rows.select("device", "step", "occurrence").unique().height == 24


def test_a_permuted_mesh_is_read_by_position():
    """Position 0 of the mesh is the last device; the ring all-gather's costs name positions."""
    mesh = Mesh(np.array(jax.devices()[4:8][::-1]), ("x",))
    a = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("x")))
    compiled = jax.jit(lambda a: (a @ a).sum()).lower(a).compile()
    costs = _costs(compiled)
    timeline = read_timeline(_trace(compiled, a, donated=False), {costs.module: costs}, num_devices=4)
    assert timeline.intervals["device"].unique().sort().to_list() == [0, 1, 2, 3]


def test_e20_a_jitted_loop_runs_ten_times_inside_one_annotation():
    """The annotation inside the loop fires while tracing; the loop's op runs 10 times."""

    @jax.jit
    def loop(c):
        def body(_, c):
            with jax.profiler.StepTraceAnnotation("inner", step_num=0):
                return jnp.tanh(c @ c)

        return jax.lax.fori_loop(0, 10, body, c)

    c = jnp.ones((64, 64))
    with trace() as capture:
        with jax.profiler.StepTraceAnnotation("step", step_num=0):
            out = loop(c)
        out.block_until_ready()
    timeline = read_timeline(capture.xspace, {})
    assert timeline.steps["step"].to_list() == [0]
    assert timeline.intervals.filter(pl.col("program") == "jit_loop")["occurrence"].max() == 9
    assert any(note.startswith("annotation 'inner' holds no execution") for note in timeline.notes)


def test_f9_the_gap_between_calls_is_the_hosts_and_a_loop_on_the_device_has_none():
    """32 calls of tanh(c @ w) against one loop of 32: the same FLOPs, 4,194,304."""
    c, w = jnp.ones((1, 256)), jnp.ones((256, 256)) / 256
    call = jax.jit(lambda c, w: jnp.tanh(c @ w)).lower(c, w).compile()
    loop = jax.jit(lambda c, w: jax.lax.fori_loop(0, 32, lambda _, c: jnp.tanh(c @ w), c)).lower(c, w).compile()
    calls = read_timeline(_trace(call, c, w, steps=32), {})
    once = read_timeline(_trace(loop, c, w, steps=1), {})
    assert sum(32 * sum(o.flops.values()) * o.executions.low for o in _costs(call).ops) == 4_194_304
    assert sum(sum(o.flops.values()) * o.executions.low for o in _costs(loop).ops) == 4_194_304
    gap = pl.col("end_ps") - pl.col("busy_end_ps")
    assert calls.steps.height == 32 and (calls.steps.select(gap).to_series()[:-1] > 0).all()
    assert once.steps.select(gap).to_series().to_list() == [0]
