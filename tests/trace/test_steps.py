"""Which runs make a step."""

from __future__ import annotations

import polars as pl
import pytest

from jaxprof.errors import UserError
from jaxprof.hlo.op_cost import Executions, ModuleCosts, OpCost
from jaxprof.trace.read import read_timeline


def _annotation(number: int, start_us: float, duration_us: float, name: str = "step"):
    return name, start_us, duration_us, {"step_num": number}


def _launch(run: int, start_us: float, module: str = "jit_step"):
    return f"Client::Execute ({module})", start_us, 1, {"run_id": run, "name": module}


def _costs(executions: int) -> ModuleCosts:
    """One op, k, that runs so often."""
    exact = Executions(low=executions, high=executions)
    cost = OpCost(op="k", computation="c", opcode="fusion", category="elementwise", executions=exact)
    return ModuleCosts(module="jit_step", ops=(cost,))


def _walls_us(timeline) -> list[tuple[int, float]]:
    return timeline.steps.select("step", (pl.col("end_ps") - pl.col("start_ps")) / 1e6).rows()


def test_e19_without_annotations_each_run_of_the_main_module_is_a_step(xspace, op):
    """Five runs of 10 ms, back to back: 5 x 10 ms, marked as inferred."""
    events = [op("dot", 1 + 10_000 * run, 10_000, run=run) for run in range(5)]
    timeline = read_timeline(xspace({"/host:CPU": {"t": events}}), {})
    assert _walls_us(timeline) == [(step, 10_000) for step in range(5)]
    assert any(note.startswith("steps inferred: each run of jit_step is one") for note in timeline.notes)


def test_e19_a_helper_that_runs_before_each_step_belongs_to_it_and_set_up_to_none(xspace, op):
    """Set-up runs once before three steps of helper and main."""
    ops = [op("init", 1, 5, module="jit_init", program=1)]
    for step in range(3):
        ops.append(op("prep", 10 + 40 * step, 5, module="jit_prep", program=2, run=10 + step))
        ops.append(op("dot", 15 + 40 * step, 30, run=20 + step))
    timeline = read_timeline(xspace({"/host:CPU": {"t": ops}}), {})
    assert _walls_us(timeline) == [(0, 40), (1, 40), (2, 35)]
    assert "1 runs of other programs before the first step left out" in timeline.notes


def test_a_step_is_what_was_launched_inside_its_annotation_however_late_it_ran(xspace, op):
    """Both steps are dispatched before the first op begins; run ids may be negative."""
    python = [_annotation(0, 1, 10), _launch(-9, 2), _annotation(1, 12, 10), _launch(-8, 13)]
    ops = [op("dot", 100, 30, run=-9), op("dot", 150, 20, run=-8)]
    timeline = read_timeline(xspace({"/host:CPU": {"python": python, "t": ops}}), {})
    assert _walls_us(timeline) == [(0, 50), (1, 20)]
    assert timeline.steps["busy_end_ps"].to_list() == [30_000_000, 70_000_000]
    assert timeline.notes == ()


def test_runs_outside_the_annotations_are_warm_up(xspace, op):
    python = [_launch(1, 1), _annotation(0, 50, 10), _launch(2, 52), _annotation(1, 62, 10), _launch(3, 63)]
    ops = [op("dot", 2, 40, run=1), op("dot", 60, 10, run=2), op("dot", 80, 10, run=3)]
    timeline = read_timeline(xspace({"/host:CPU": {"python": python, "t": ops}}), {})
    assert _walls_us(timeline) == [(0, 20), (1, 10)]
    assert timeline.notes == ("1 runs outside the annotated steps left out (warm-up)",)


def test_a_run_launched_before_the_trace_began_is_warm_up(xspace, op):
    """It still ran when the first step was annotated."""
    python = [_annotation(0, 1, 4), _launch(2, 2)]
    ops = [op("dot", 3, 10, run=1), op("dot", 20, 10, run=2)]
    timeline = read_timeline(xspace({"/host:CPU": {"python": python, "t": ops}}), {})
    assert _walls_us(timeline) == [(0, 10)]
    assert timeline.notes == ("1 runs outside the annotated steps left out (warm-up)",)


def test_several_programs_may_run_in_one_step(xspace, op):
    """Two runs of one program and one of another, each step; launches of single-device programs carry no run id."""
    helper = ("Client::ExecuteHelperOnSingleDevice", 1, 1, {})
    python = [_annotation(0, 0, 10), helper, _annotation(1, 10, 10), ("Client::ExecuteHelperOnSingleDevice", 11, 1, {})]
    runs = [
        ("jit_grad", 1, 20),
        ("jit_grad", 2, 40),
        ("jit_update", 7, 60),
        ("jit_grad", 3, 80),
        ("jit_grad", 4, 100),
        ("jit_update", 8, 120),
    ]
    ops = [op("dot", at, 10, run=run, module=m, program=5 if m == "jit_grad" else 6) for m, run, at in runs]
    timeline = read_timeline(xspace({"/host:CPU": {"python": python, "t": ops}}), {})
    counted = timeline.intervals.group_by("step", "program").len().sort("step", "program").rows()
    assert counted == [(0, "jit_grad", 2), (0, "jit_update", 1), (1, "jit_grad", 2), (1, "jit_update", 1)]
    assert _walls_us(timeline) == [(0, 60), (1, 50)]


def test_e20_an_annotation_that_holds_no_execution_marks_tracing(xspace, op):
    python = [_annotation(0, 1, 5, "inner"), _annotation(0, 10, 10), _launch(1, 12)]
    ops = [op("tanh", 30 + 2 * i, 1) for i in range(10)]
    timeline = read_timeline(xspace({"/host:CPU": {"python": python, "t": ops}}), {})
    assert timeline.steps.height == 1
    assert timeline.intervals["occurrence"].to_list() == list(range(10))
    assert "annotation 'inner' holds no execution" in timeline.notes[0]


def test_an_annotation_inside_a_step_makes_no_step_of_its_own(xspace, op):
    python = [
        _annotation(0, 1, 20),
        _annotation(0, 2, 5, "microbatch"),
        _launch(1, 3),
        _annotation(1, 8, 5, "microbatch"),
        _launch(2, 9),
    ]
    timeline = read_timeline(
        xspace({"/host:CPU": {"python": python, "t": [op("a", 30, 5), op("a", 40, 5, run=2)]}}), {}
    )
    assert _walls_us(timeline) == [(0, 15)]


def test_e22_a_step_with_lost_events_is_left_out_and_said(xspace, op):
    """Step 0 has 3 kernels, steps 1 to 4 have 50."""
    ops = [op("k", 1 + 1000 * run + 10 * i, 10, run=run) for run in range(5) for i in range(3 if run == 0 else 50)]
    timeline = read_timeline(xspace({"/host:CPU": {"t": ops}}, warnings=["47 events dropped"]), {})
    assert timeline.steps["step"].to_list() == [1, 2, 3, 4]
    assert set(timeline.intervals["step"]) == {1, 2, 3, 4}
    assert "47 events dropped" in timeline.notes
    assert "incomplete steps left out (step 0: 3 of 50 events of jit_step on device 0)" in timeline.notes


def test_the_compiled_executions_find_one_lost_event(xspace, op):
    costs = _costs(executions=4)
    ops = [op("k", 1 + 100 * run + 10 * i, 10, run=run) for run in range(3) for i in range(3 if run == 1 else 4)]
    timeline = read_timeline(xspace({"/host:CPU": {"t": ops}}), {"jit_step": costs})
    assert timeline.steps.select("step", "start_ps", "end_ps").rows() == [
        (0, 0, 100_000_000),  # ends where the incomplete step begins
        (2, 200_000_000, 240_000_000),
    ]
    assert any("step 1: 3 of 4 events" in note for note in timeline.notes)


def test_a_trace_without_one_whole_step_is_refused(xspace, op):
    """Two devices; each step lost an event on one of them."""
    ops = [op("k", 1 + 100 * run + 10 * i, 5, run=run, device=d) for run in (0, 1) for d in (0, 1) for i in range(2)]
    lost = [ops[0], *ops[2:6], ops[7]]
    with pytest.raises(UserError, match="every step of the trace lost events"):
        read_timeline(xspace({"/host:CPU": {"t": lost}}), {"jit_step": _costs(executions=2)})


def test_costs_of_another_program_are_said_and_drop_nothing(xspace, op):
    costs = _costs(executions=9)
    timeline = read_timeline(xspace({"/host:CPU": {"t": [op("k", 1, 5), op("k", 10, 5, run=2)]}}), {"jit_step": costs})
    assert timeline.steps.height == 2
    assert any("the trace may be of another program" in note for note in timeline.notes)


def test_steps_that_overlap_are_cut_where_the_next_begins(xspace, op):
    python = [_annotation(0, 1, 4), _launch(1, 2), _annotation(1, 5, 4), _launch(2, 6)]
    ops = [op("a", 10, 10, run=1), op("b", 20, 20, run=1), op("a", 30, 10, run=2)]
    timeline = read_timeline(xspace({"/host:CPU": {"python": python, "t": ops}}), {})
    assert _walls_us(timeline) == [(0, 20), (1, 10)]
    assert timeline.intervals.select("step", "op", pl.col("start_ps", "end_ps") / 1e6).rows() == [
        (0, "a", 0, 10),
        (0, "b", 10, 20),
        (1, "a", 20, 30),
    ]
    assert timeline.intervals["occurrence"].to_list() == [0, 0, 0]


def test_an_execution_that_runs_on_into_the_next_step_counts_once(xspace, op):
    """``a`` of step 0 and its ``b`` last into step 1, which has an ``a`` and a ``b`` of its own."""
    python = [_annotation(0, 1, 4), _launch(1, 2), _annotation(1, 5, 4), _launch(2, 6)]
    ops = [op("a", 10, 10), op("b", 20, 20), op("a", 25, 5, run=2), op("b", 45, 5, run=2)]
    timeline = read_timeline(xspace({"/host:CPU": {"python": python, "t": ops}}), {})
    rows = timeline.intervals.select("step", "op", "occurrence", pl.col("start_ps", "end_ps") / 1e6).rows()
    assert rows == [
        (0, "a", 0, 0, 10),
        (0, "b", 0, 10, 15),
        (1, "a", 0, 15, 20),
        (1, "b", 0, 20, 30),
        (1, "b", 0, 35, 40),
    ]
    assert timeline.notes == (
        "steps overlap: 1 ops ran on after the next step had begun, which that step's time holds",
    )


@pytest.mark.parametrize("devices", [8])
def test_missing_devices_are_named(xspace, op, devices):
    ops = [op("a", 1, 5, device=device) for device in range(6)]
    timeline = read_timeline(xspace({"/host:CPU": {"t": ops}}), {}, num_devices=devices)
    assert "no events from devices 6, 7" in timeline.notes
