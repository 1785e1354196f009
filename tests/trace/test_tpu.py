"""What the planes of TPUs mean: by hand, and a real trace of four v6e against XProf's own converter."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from jaxprof.errors import UserError
from jaxprof.trace.read import read_timeline

_LENGTH = pl.col("end_ps") - pl.col("start_ps")
_REAL = Path(__file__).parents[3] / "shared" / "traces" / "tpu_v6e4_inference"


def _module(run: int, start_us: float, duration_us: float, name: str = "jit_step(7)"):
    return name, start_us, duration_us, {"run_id": run}


def _op(name: str, start_us: float, duration_us: float, *, device_us: tuple[float, float] | None = None):
    names = ("device_offset_ps", "device_duration_ps")
    clock = {name: round(time * 1e6) for name, time in zip(names, device_us or (), strict=False)}
    return f"%{name} = f32[8] op(f32[8] %x)", start_us, duration_us, clock


def _rows(timeline) -> list[tuple]:
    return timeline.intervals.select("op", "stream", pl.col("start_ps", "end_ps") / 1e6).rows()


def test_a_loop_keeps_the_time_between_the_ops_of_its_body(xspace):
    ops = [_op("while.1", 10, 30), _op("dot.2", 12, 10), _op("dot.2", 25, 10), _op("add", 45, 5)]
    lines = {"XLA Modules": [_module(1, 9, 50)], "XLA Ops": ops}
    timeline = read_timeline(xspace({"/device:TPU:0": lines}), {})
    assert _rows(timeline) == [
        ("while.1", "ops", 0, 2), ("dot.2", "ops", 2, 12), ("while.1", "ops", 12, 15), ("dot.2", "ops", 15, 25),
        ("while.1", "ops", 25, 30), ("add", "ops", 35, 40),
    ]  # fmt: skip
    assert timeline.intervals.filter(op="dot.2")["occurrence"].to_list() == [0, 1]
    assert timeline.intervals["program"].unique().to_list() == ["jit_step"]


def test_what_runs_beside_has_a_stream_of_its_own(xspace):
    lines = {
        "XLA Modules": [_module(1, 0, 60)],
        "XLA Ops": [_op("copy-start", 1, 1), _op("dot", 2, 20), _op("copy-done", 22, 8)],
        "Async XLA Ops": [_op("copy-start", 1, 29)],
    }
    timeline = read_timeline(xspace({"/device:TPU:0": lines}), {})
    assert sorted(_rows(timeline)) == [
        ("copy-done", "ops", 21, 29),
        ("copy-start", "async", 0, 29),
        ("copy-start", "ops", 0, 1),
        ("dot", "ops", 1, 21),
    ]


def test_durations_are_by_the_devices_own_clock(xspace):
    """On the host's clock the first op looks 80 us long; the device says 20, and the copy ends with the second op."""
    lines = {
        "XLA Modules": [_module(1, 100, 200)],
        "XLA Ops": [_op("a", 101, 80, device_us=(1, 20)), _op("b", 181, 30, device_us=(21, 30))],
        "Async XLA Ops": [_op("copy-start", 101, 110)],
    }
    timeline = read_timeline(xspace({"/device:TPU:0": lines}), {})
    assert sorted(_rows(timeline)) == [("a", "ops", 0, 20), ("b", "ops", 20, 50), ("copy-start", "async", 0, 50)]


@pytest.mark.parametrize("ids", [((5, 6), (5, 6)), ((5, 6), (1, 2))])
def test_devices_that_number_their_runs_for_themselves_are_matched_by_place(xspace, ids):
    planes = {
        f"/device:TPU:{device}": {
            "XLA Modules": [_module(run, 100 * step, 50) for step, run in enumerate(runs)],
            "XLA Ops": [_op("dot", 100 * step + 1, 40) for step in range(2)],
        }
        for device, runs in enumerate(ids)
    }
    timeline = read_timeline(xspace(planes), {}, num_devices=2)
    assert timeline.steps.select("device", "step").rows() == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert timeline.notes == ("steps inferred: each run of jit_step is one, as the trace has no step annotations",)


def test_planes_without_ops_have_no_steps(xspace):
    with pytest.raises(UserError, match="TPU planes hold no ops"):
        read_timeline(xspace({"/device:TPU:0": {"XLA Modules": [_module(1, 0, 5)], "XLA Ops": []}}), {})


@pytest.mark.skipif(not _REAL.exists(), reason="the shared traces are not here")
def test_a_real_trace_has_the_times_that_xprof_says():
    """Every op's total self time and occurrences over four chips; a chip is busy 78.8 s and jit_f takes 784 ms."""
    timeline = read_timeline((_REAL / "plugins/profile/run/host0.xplane.pb").read_bytes(), {}, num_devices=4)
    table = json.loads((_REAL / "xprof_hlo_stats.json").read_text())
    labels = [column["label"] for column in table["cols"]]
    at = {name: labels.index(name) for name in ("HLO op name", "#Occurrences", "Total self time (us)")}
    theirs = {row["c"][at["HLO op name"]]["v"]: [row["c"][at[k]]["v"] for k in list(at)[1:]] for row in table["rows"]}
    ours = (
        timeline.intervals.filter(stream="ops")
        .group_by("op")
        .agg(pl.struct("device", "step", "occurrence").n_unique(), _LENGTH.sum() / 1e6)
    )
    found = {op: (count, total) for op, count, total in ours.rows()}
    # XProf counts the reduction and the broadcast that ran before the first step too
    assert set(theirs) - set(found) == {"all-reduce", "broadcast.2"} and len(theirs) == 17
    for op, (count, total_us) in found.items():
        assert count == theirs[op][0]
        assert total_us == pytest.approx(theirs[op][1], rel=1e-3, abs=0.01)
    walls = timeline.steps.select(_LENGTH / 1e9).to_series()
    assert walls.median() == pytest.approx(784, abs=0.5)
    busy = timeline.intervals.filter(stream="ops").group_by("device").agg(_LENGTH.sum() / 1e12)
    assert (busy["end_ps"] - 78.4).abs().max() < 0.05  # 78.8 s less the 0.37 s before the first step
