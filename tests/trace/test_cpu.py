"""What the events of a CPU mesh mean, on traces written by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import polars as pl
import pytest

from jaxprof.hlo.op_cost import Executions, ModuleCosts, OpCost
from jaxprof.proto.hlo import HloProto
from jaxprof.proto.xplane import XSpace
from jaxprof.trace.read import read_timeline

_ONCE = Executions(low=1, high=1)


def _collective(op: str, kind: str, groups) -> OpCost:
    return OpCost(
        op=op, computation="main", opcode=kind, category="collective", executions=_ONCE, collective=kind, groups=groups
    )


def _with_hlo(data: bytes, modules: dict[int, bytes]) -> bytes:
    """The trace with HLO modules in ``/host:metadata``, as the profiler writes them."""
    space = XSpace.FromString(data)
    plane = space.planes.add(name="/host:metadata")
    for key, name in ((1, "program_id"), (2, "Hlo Proto")):
        plane.stat_metadata[key].id = key
        plane.stat_metadata[key].name = name
    for program, module in modules.items():
        proto = HloProto()
        proto.hlo_module.ParseFromString(module)
        item = plane.event_metadata[program]
        item.name = f"{proto.hlo_module.name}({program})"
        item.stats.add(metadata_id=1, int64_value=program)
        item.stats.add(metadata_id=2, bytes_value=proto.SerializeToString())
    return space.SerializeToString()


def _module(text: str) -> bytes:
    from jaxlib._hlo import hlo_module_from_text

    return hlo_module_from_text(text).as_serialized_hlo_module_proto()


def test_device_and_run_come_from_the_op_and_end_events_do_not_count(xspace, op):
    """Two devices, whose ops change threads half way."""
    end = ("end: dot", 12, 0.1, {"_c": 1})
    lines = {
        "tf_XLAEigen/1": [op("dot", 1, 10, device=0), end, op("add", 30, 5, device=1)],
        "tf_XLAEigen/2": [op("dot", 2, 10, device=1), end, op("add", 20, 5, device=0)],
    }
    timeline = read_timeline(xspace({"/host:CPU": lines}), {})
    assert timeline.intervals.select("device", "op", pl.col("start_ps") / 1e6, pl.col("end_ps") / 1e6).rows() == [
        (0, "dot", 0, 10),
        (0, "add", 19, 24),
        (1, "dot", 1, 11),
        (1, "add", 29, 34),
    ]


def test_e10_one_op_name_in_two_modules_is_two_ops_and_ids_are_64_bit(xspace, op):
    """fusion.1 of program 7 takes 10 us, that of program 2**32 + 7 takes 90; their module names are equal."""
    ops = [op("fusion.1", 1, 10, program=7, run=1), op("fusion.1", 20, 90, program=2**32 + 7, run=2)]
    timeline = read_timeline(xspace({"/host:CPU": {"t": ops}}), {})
    times = timeline.intervals.group_by("program").agg((pl.col("end_ps") - pl.col("start_ps")).sum() / 1e6)
    assert sorted(times.rows()) == [("jit_step", 10), ("jit_step(4294967303)", 90)]


def test_the_programs_whose_costs_are_known_keeps_the_bare_name(xspace, op):
    ops = [op("fusion.1", 1, 10, program=7, run=1), op("dot.9", 20, 90, program=8, run=2)]
    cost = OpCost(op="dot.9", computation="c", opcode="dot", category="matmul", executions=_ONCE)
    costs = ModuleCosts(module="jit_step", ops=(cost,))
    timeline = read_timeline(xspace({"/host:CPU": {"t": ops}}), {"jit_step": costs})
    assert set(timeline.intervals.select("program", "op").rows()) == {
        ("jit_step(7)", "fusion.1"),
        ("jit_step", "dot.9"),
    }


def test_a_device_is_its_position_in_the_programs_mesh(xspace, op):
    """The program's partition 0 runs on device 5."""
    stats = {"name": "jit_step", "replica": 0}
    lines = {
        "client": [
            ("[0] Execute", 1, 1, {**stats, "partition": 0, "global_device_id": 5}),
            ("[1] Execute", 1, 1, {**stats, "partition": 1, "global_device_id": 4}),
        ],
        "t": [op("a", 2, 1, device=4), op("b", 2, 1, device=5)],
    }
    timeline = read_timeline(xspace({"/host:CPU": lines}), {})
    assert timeline.intervals.select("device", "op").rows() == [(0, "b"), (1, "a")]


def test_wait_lasts_until_the_last_of_the_replica_group_arrives(xspace, op):
    """Groups {0, 2} and {1, 3}; arrivals at 0, 10, 40, 15 us; all leave at 50 us."""
    ops = [op("all-reduce", 100 + at, 50 - at, device=device) for device, at in enumerate((0, 10, 40, 15))]
    costs = ModuleCosts(module="jit_step", ops=(_collective("all-reduce", "all-reduce", ((0, 2), (1, 3))),))
    timeline = read_timeline(xspace({"/host:CPU": {"t": ops}}), {"jit_step": costs})
    assert (timeline.intervals["wait_ps"] / 1e6).to_list() == [40, 5, 0, 0]


def test_arrivals_are_matched_by_run_and_occurrence(xspace, op):
    times = {(0, 1): [(1, 9), (20, 10)], (1, 1): [(5, 5), (21, 9)], (0, 2): [(40, 10)], (1, 2): [(47, 3)]}
    ops = [op("ag", at, long, device=d, run=run) for (d, run), rows in times.items() for at, long in rows]
    twice = Executions(low=1, high=2)
    cost = OpCost(
        op="ag",
        computation="c",
        opcode="all-gather",
        category="collective",
        executions=twice,
        collective="all-gather",
        groups=((0, 1),),
    )
    timeline = read_timeline(
        xspace({"/host:CPU": {"t": ops}}), {"jit_step": ModuleCosts(module="jit_step", ops=(cost,))}
    )
    assert (timeline.intervals["wait_ps"] / 1e6).to_list() == [4, 1, 7, 0, 0, 0]


def test_a_permute_on_the_cpu_waits_for_every_device(xspace, op):
    ops = [op("cp", 1 + device, 20 - device, device=device) for device in range(4)]
    costs = ModuleCosts(
        module="jit_step", ops=(_collective("cp", "collective-permute", ((0, 1), (1, 0), (2, 3), (3, 2))),)
    )
    timeline = read_timeline(xspace({"/host:CPU": {"t": ops}}), {"jit_step": costs})
    assert (timeline.intervals["wait_ps"] / 1e6).to_list() == [3, 2, 1, 0]


def test_a_collective_beside_compute_stands_on_the_async_stream(xspace, op):
    ops = [op("all-reduce", 1, 30), op("dot", 11, 10), op("add", 40, 5)]
    costs = ModuleCosts(module="jit_step", ops=(_collective("all-reduce", "all-reduce", ((0,),)),))
    timeline = read_timeline(xspace({"/host:CPU": {"t": ops}}), {"jit_step": costs})
    assert timeline.intervals.select("op", "stream", pl.col("start_ps") / 1e6, pl.col("end_ps") / 1e6).rows() == [
        ("all-reduce", "async", 0, 30),
        ("dot", "ops", 10, 20),
        ("add", "ops", 39, 44),
    ]


_LOOP = """HloModule jit_step
body {
  c = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  x = f32[8] get-tuple-element(c), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[8] tanh(x)
  ROOT t = (s32[], f32[8]) tuple(next, y)
}
cond {
  c = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  n = s32[] constant(3)
  ROOT lt = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[8] parameter(0)
  z = s32[] constant(0)
  slow = f32[8] sine(x)
  t0 = (s32[], f32[8]) tuple(z, slow)
  loop.7.clone = (s32[], f32[8]) while(t0), condition=cond, body=body
  r = f32[8] get-tuple-element(loop.7.clone), index=1
  ROOT out = f32[8] negate(r)
}
"""


def test_a_loop_whose_body_has_events_is_no_op_of_its_own(xspace, op):
    """Its event neither encloses its body in time nor is named after its opcode: the HLO in the trace tells."""
    ops = [op("loop.7.clone", 1, 3)] + [op("y", 2 + 10 * i, 5) for i in range(3)]
    data = _with_hlo(xspace({"/host:CPU": {"t": ops}}), {7: _module(_LOOP)})
    assert read_timeline(data, {}).intervals["op"].to_list() == ["y"] * 3


def test_a_loop_compiled_into_one_kernel_keeps_its_time(xspace, op):
    data = _with_hlo(xspace({"/host:CPU": {"t": [op("loop.7.clone", 1, 3), op("out", 5, 1)]}}), {7: _module(_LOOP)})
    assert read_timeline(data, {}).intervals["op"].to_list() == ["loop.7.clone", "out"]


def test_without_hlo_a_loop_is_known_by_its_name(xspace, op):
    ops = [op("while.2", 1, 20), op("y", 2, 5), op("y", 8, 5), op("call", 40, 5), op("call_fusion", 50, 5)]
    timeline = read_timeline(xspace({"/host:CPU": {"t": ops}}), {})
    assert timeline.intervals["op"].to_list() == ["y", "y", "call", "call_fusion"]


def test_a_kernel_on_the_thread_pool_lasts_until_its_result_is_used(xspace, op):
    """``slow`` returns after 1 us, its user (through a tuple and a loop) begins at 51, its end event comes at 90."""
    ops = [op("slow", 1, 1, flow=3), op("loop.7.clone", 51, 2), op("y", 52, 5)]
    data = xspace({"/host:CPU": {"t": ops, "pool": [("end: slow", 90, 0.1, {"_c": 3})]}})
    timeline = read_timeline(_with_hlo(data, {7: _module(_LOOP)}), {})
    assert timeline.intervals.select("op", pl.col("start_ps", "end_ps") / 1e6).rows() == [
        ("slow", 0, 1),
        ("slow", 1, 50),
        ("y", 51, 56),
    ]
    assert timeline.intervals.filter(op="slow")["occurrence"].to_list() == [0, 0]


def test_without_hlo_a_kernel_on_the_thread_pool_has_the_gaps_until_its_end_event(xspace, op):
    ops = [op("dot", 1, 1, flow=3), op("add", 11, 5), op("mul", 60, 5)]
    timeline = read_timeline(xspace({"/host:CPU": {"t": ops, "pool": [("end: dot", 41, 0.1, {"_c": 3})]}}), {})
    assert timeline.intervals.select("op", pl.col("start_ps", "end_ps") / 1e6).rows() == [
        ("dot", 0, 1),
        ("dot", 1, 10),
        ("add", 10, 15),
        ("dot", 15, 40),
        ("mul", 59, 64),
    ]


def test_the_last_kernel_ends_with_its_end_event(xspace, op):
    timeline = read_timeline(
        xspace({"/host:CPU": {"t": [op("dot", 1, 1, flow=3), ("end: dot", 31, 0.1, {"_c": 3})]}}), {}
    )
    assert timeline.steps.select("end_ps", "busy_end_ps").rows() == [(30_000_000, 30_000_000)]


@pytest.mark.parametrize("name", ['<script>alert("x")</script>|\n\x01é "q" \\b'])
def test_e18_odd_names_pass_through_unchanged(xspace, op, name):
    timeline = read_timeline(xspace({"/host:CPU": {"t": [op(name, 1, 5)]}}), {})
    assert timeline.intervals["op"].to_list() == [name]


def test_e4_the_python_tracer_is_reported_when_on(xspace, op):
    lines = {"python": [("$train.py:3 loop", 1, 5, {})], "t": [op("dot", 2, 1)]}
    assert any("Python tracer was on" in note for note in read_timeline(xspace({"/host:CPU": lines}), {}).notes)


def test_a_broken_hlo_in_the_trace_is_said_and_the_times_stand(xspace, op):
    space = XSpace.FromString(_with_hlo(xspace({"/host:CPU": {"t": [op("dot", 1, 5)]}}), {7: _module(_LOOP)}))
    space.planes[1].event_metadata[7].stats[1].bytes_value = b"\xff\xff"
    timeline = read_timeline(space.SerializeToString(), {})
    assert timeline.intervals["op"].to_list() == ["dot"]
    assert any(note.startswith("the trace's HLO of jit_step(7) was not used") for note in timeline.notes)


def test_the_modules_that_a_real_trace_embeds_name_its_ops():
    """What the rules about loops and users rest on."""
    from jaxprof.measure.capture import trace
    from jaxprof.trace.graph import embedded_modules
    from jaxprof.trace.xspace import read_space

    function = jax.jit(lambda a: jax.lax.scan(lambda c, _: (jnp.tanh(c @ a), None), a, length=4)[0])
    a = jnp.ones((128, 128))
    function(a).block_until_ready()
    with trace() as capture:
        function(a).block_until_ready()
    space = read_space(capture.xspace, {"hlo_op": pl.String, "program_id": pl.Int64})
    plane = space.plane("/host:CPU")
    assert plane is not None
    ops = plane.events.drop_nulls("hlo_op")
    modules, notes = embedded_modules(space, ops["program_id"].unique().to_list())
    names = {i.name for module in modules.values() for i in module.instructions()}
    assert set(ops["hlo_op"]) <= names and notes == ()
