"""The sweep: random timelines close exactly, and timelines written out by hand give what one reads off them."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import polars as pl
import pytest

from jaxprof.attribution.breakdown import ACTIVITIES, BREAKDOWN, PARTS, mean_step, sweep
from jaxprof.attribution.measures import measure_ops
from jaxprof.attribution.roofline import price
from jaxprof.trace.timeline import STEPS

CODES = (*ACTIVITIES, None)


def random_timeline(seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Overlapping, nested, empty and stray intervals of every activity over contiguous steps of three devices."""
    random = np.random.default_rng(seed)
    intervals, steps = [], []
    for device in range(3):
        clock = int(random.integers(0, 50))
        for step in range(4):
            length = int(random.integers(1, 400))
            busy = clock + int(random.integers(0, length + 1))
            steps.append((device, step, clock, clock + length, busy))
            clock += length
        for _ in range(int(random.integers(0, 60))):
            start = int(random.integers(-20, clock + 20))
            length = int(random.integers(0, 80))
            wait = int(random.integers(0, length + 1)) if random.random() < 0.3 else 0
            intervals.append((device, start, start + length, wait, CODES[random.integers(len(CODES))]))
    schema = {"device": pl.Int32, "start_ps": pl.Int64, "end_ps": pl.Int64, "wait_ps": pl.Int64, "activity": pl.String}
    return pl.DataFrame(intervals, schema=schema, orient="row"), pl.DataFrame(steps, schema=STEPS, orient="row")


def slow_breakdown(intervals: pl.DataFrame, device: int, start: int, end: int, busy_end: int) -> dict[str, int]:
    """The same by looking at every picosecond on its own."""
    rows = [row for row in intervals.iter_rows(named=True) if row["device"] == device and row["activity"]]
    spent = dict.fromkeys((*PARTS, "unexplained", "overlapped_collective"), 0)
    for now in range(start, end):
        active = set()
        for row in rows:
            if row["start_ps"] <= now < row["start_ps"] + row["wait_ps"]:
                active.add("wait")
            elif row["start_ps"] <= now < row["end_ps"]:
                active.add(row["activity"])
        owner = next((name for name in ACTIVITIES if name in active), "host" if now >= busy_end else "idle")
        spent["unexplained" if owner == "unknown" else owner] += 1
        computes = owner in ("compute", "hbm", "unknown")
        spent["overlapped_collective"] += computes and bool(active & {"transfer", "wait"})
    return spent


@pytest.mark.parametrize("seed", range(40))
def test_random_timelines_close_exactly_and_equal_a_look_at_every_picosecond(seed: int) -> None:
    intervals, steps = random_timeline(seed)
    swept = sweep(intervals, steps)
    assert swept.steps.height == steps.height
    for row, window in zip(swept.steps.iter_rows(named=True), steps.iter_rows(named=True), strict=True):
        assert sum(row[part] for part in PARTS) + row["unexplained"] == row["wall"]
        expected = slow_breakdown(
            intervals, window["device"], window["start_ps"], window["end_ps"], window["busy_end_ps"]
        )
        assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize("seed", range(40, 60))
def test_the_time_that_is_each_intervals_own_sums_to_the_parts(seed: int) -> None:
    intervals, steps = random_timeline(seed)
    swept = sweep(intervals, steps)
    own = dict(swept.intervals.group_by("activity").agg(pl.col("main_ps").sum()).iter_rows())
    names = {"compute": "compute", "hbm": "hbm", "unknown": "unexplained", "transfer": "transfer"}
    for activity, part in names.items():
        assert own.get(activity, 0) == pytest.approx(swept.steps[part].sum(), abs=1e-6)
    waiting = swept.intervals["waiting_ps"].sum() + own.get("wait", 0)
    assert waiting == pytest.approx(swept.steps["wait"].sum(), abs=1e-6)


def test_two_devices_a_wait_an_overlapped_collective_and_a_host_gap(build: ModuleType) -> None:
    """Device 0 arrives at the all-reduce 30 µs before device 1; an async one runs beside the next matmul for 15 of its
    25 µs; after 100 µs of ops the host takes 20 µs until the next step."""
    costs = build.costs(
        build.matmul("dot.1", 1_000_000),
        build.op("add.1", hbm_bytes_read=1000),
        build.all_reduce("all-reduce.1", 100),
        build.matmul("dot.2", 1_000_000),
        build.all_reduce("all-reduce-start.2", 100),
    )
    rows = []
    for step, t in ((0, 0), (1, 120)):
        for device, late in ((0, 0), (1, 30)):
            rows += [
                (device, step, "dot.1", t, t + 10 + late),
                (device, step, "all-reduce.1", t + 10 + late, t + 50, {"wait": 30 - late}),
                (device, step, "all-reduce-start.2", t + 50, t + 75, {"stream": "async"}),
                (device, step, "dot.2", t + 50, t + 65),
                (device, step, "add.1", t + 80, t + 100),
            ]
    steps = [(d, s, 120 * s, 120 * s + (120 if s == 0 else 100), 120 * s + 100) for d in (0, 1) for s in (0, 1)]
    prices = {cost.op: price(cost, build.SPEC, platform="tpu", num_devices=2) for cost in costs.ops}
    found = measure_ops(build.timeline(rows, steps), costs, prices)

    assert found.breakdown.schema == BREAKDOWN
    whole = found.breakdown.filter(pl.col("step") == 0).sort("device").drop("device", "step")
    names = ("wall_s", "compute_s", "hbm_s", "transfer_s", "wait_s", "host_s", "idle_s", "overlapped_collective_s",
             "unexplained_s")  # fmt: skip
    first = dict(zip(names, (120, 25, 20, 20, 30, 20, 5, 15, 0), strict=True))
    first["transfer_s"] = 10 + 10  # after the last arrival, and what sticks out behind the second matmul
    second = {**first, "compute_s": 55, "wait_s": 0}
    for row, expected in zip(whole.iter_rows(named=True), (first, second), strict=True):
        assert row == pytest.approx({name: value * 1e-6 for name, value in expected.items()})

    mean = mean_step(found.breakdown)
    assert mean is not None
    assert mean.wall_s == pytest.approx(120e-6)  # the last step's dispatch gap is unknown, so it is left out
    assert mean.parts_s["wait"] == pytest.approx(15e-6)
    collective = found.ops[build.MODULE, "all-reduce-start.2"]
    assert collective.time_s == pytest.approx(25e-6)
    assert collective.own_s == pytest.approx(10e-6)
    waited = found.ops[build.MODULE, "all-reduce.1"]
    assert (waited.time_s, waited.time_max_s) == pytest.approx((25e-6, 40e-6))
    assert (waited.wait_s, waited.exposed_wait_s, waited.own_s) == pytest.approx((15e-6, 15e-6, 10e-6))


def test_an_async_collective_beside_a_running_op_is_not_exposed(build: ModuleType) -> None:
    costs = build.costs(build.op("add.1", hbm_bytes_read=10), build.all_reduce("all-reduce-start.1", 10))
    rows = [(0, 0, "add.1", 0, 10), (0, 0, "all-reduce-start.1", 2, 9, {"stream": "async", "wait": 3})]
    prices = {cost.op: price(cost, None, platform="cpu", num_devices=2) for cost in costs.ops}
    found = measure_ops(build.timeline(rows, [(0, 0, 0, 10, 10)]), costs, prices)
    row = found.breakdown.row(0, named=True)
    assert (row["hbm_s"], row["transfer_s"], row["wait_s"]) == pytest.approx((10e-6, 0, 0))
    assert row["overlapped_collective_s"] == pytest.approx(7e-6)
    measure = found.ops[build.MODULE, "all-reduce-start.1"]
    assert (measure.own_s, measure.wait_s, measure.exposed_wait_s) == pytest.approx((0, 3e-6, 0))


def test_f9_time_between_calls_is_dispatch_and_time_between_ops_is_idle(build: ModuleType) -> None:
    """Four calls, each 10 µs of ops with a 5 µs hole in it, then 35 µs until the next call."""
    costs = build.costs(build.matmul("dot.1", 100))
    prices = {cost.op: price(cost, None, platform="cpu", num_devices=1) for cost in costs.ops}
    rows, steps = [], []
    for step in range(4):
        t = 50 * step
        rows += [(0, step, "dot.1", t, t + 4), (0, step, "dot.1", t + 9, t + 15, {"occurrence": 1})]
        steps.append((0, step, t, t + (50 if step < 3 else 15), t + 15))
    mean = mean_step(measure_ops(build.timeline(rows, steps), costs, prices).breakdown)
    assert mean is not None
    expected = {"compute": 10, "hbm": 0, "transfer": 0, "wait": 0, "host": 35, "idle": 5}
    assert mean.parts_s == pytest.approx({part: us * 1e-6 for part, us in expected.items()})
    assert mean.wall_s == pytest.approx(50e-6)


def test_busy_time_is_the_union_of_an_ops_intervals(build: ModuleType) -> None:
    """Two executions on two threads of one device overlap by 5 µs."""
    costs = build.costs(build.matmul("dot.1", 100, runs=2))
    prices = {cost.op: price(cost, None, platform="cpu", num_devices=1) for cost in costs.ops}
    rows = [(0, 0, "dot.1", 0, 10), (0, 0, "dot.1", 5, 15, {"occurrence": 1})]
    found = measure_ops(build.timeline(rows, [(0, 0, 0, 15, 15)]), costs, prices)
    measure = found.ops[build.MODULE, "dot.1"]
    assert measure.time_s == pytest.approx(15e-6)
    assert measure.executions == 2
    assert found.breakdown["compute_s"].item() == pytest.approx(15e-6)


def test_what_runs_outside_of_all_steps_is_said(build: ModuleType) -> None:
    intervals = pl.DataFrame(
        {"device": [0, 0], "start_ps": [0, 95], "end_ps": [10, 130], "wait_ps": [0, 0], "activity": ["compute", "hbm"]}
    ).cast({"device": pl.Int32})
    steps = pl.DataFrame([(0, 0, 5, 100, 100)], schema=STEPS, orient="row")
    swept = sweep(intervals, steps)
    assert swept.outside_ps == 5 + 30
    assert swept.steps.select("wall", "compute", "hbm", "idle").row(0) == (95, 5, 5, 85)
