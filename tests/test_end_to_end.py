"""The main job once, whole: a tiny train step and a decode loop on eight simulated devices."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from jaxprof.config.load import load_run
from jaxprof.profiling import profile
from jaxprof.report.directory import load_run_directory
from jaxprof.report.report import Report

FEW = ("measure.warmup_steps=1", "measure.timed_steps=2", "measure.traced_steps=2", "measure.windows=1")


@pytest.fixture(
    scope="module", params=["llama3-tiny-train", "gpt2-tiny-train", "llama3-tiny-decode", "mistral-tiny-prefill"]
)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAXPROF_CACHE_DIR", str(cache))
        return profile(load_run(request.param, FEW))


def test_breakdown_of_every_step_and_device_closes(report: Report) -> None:
    parts = ["compute_s", "hbm_s", "transfer_s", "wait_s", "host_s", "idle_s"]
    rows = report.analysis.breakdown
    assert rows.height == 8 * 2
    off = rows.select((pl.sum_horizontal(parts) - pl.col("wall_s")).abs() / pl.col("wall_s")).to_series()
    assert off.max() <= 0.005


def test_waterfall_ends_at_the_step_time(report: Report) -> None:
    bars = report.summary["waterfall_s"]
    assert bars[0]["cause"] == "ideal"
    assert math.isclose(sum(bar["seconds"] for bar in bars), report.summary["step_time_s"], rel_tol=1e-9)


def test_memory_parts_sum_to_the_compilers_peak(report: Report) -> None:
    stats, memory = report.program.memory, report.summary["memory"]
    assert None not in (stats.argument_bytes, stats.output_bytes, stats.alias_bytes, stats.temp_bytes)
    peak = stats.argument_bytes + stats.output_bytes - stats.alias_bytes + stats.temp_bytes  # type: ignore[operator]
    assert math.isclose(sum(memory["by_owner"].values()), peak, rel_tol=0.01)


def test_executed_flops_equal_compiled_flops(report: Report) -> None:
    flops = report.summary["flops"]
    assert flops["executed"] == flops["compiled"]
    assert flops["model_causal"] < flops["model_full"] <= flops["compiled"]


def test_every_executed_op_is_priced_by_the_module(report: Report) -> None:
    assert report.ops.filter(pl.col("opcode").is_null()).height == 0
    ran = report.ops.filter(pl.col("measured_time").is_not_null())
    different = ran.filter(pl.col("executions") != pl.col("compiled_executions"))
    assert different.height == 0, different.select("op", "executions", "compiled_executions")


def test_collectives_name_their_mesh_axes(report: Report) -> None:
    collectives = report.ops.filter(pl.col("collective").is_not_null() & (pl.col("group_size") > 1))
    assert collectives.height > 0
    assert collectives.filter(pl.col("mesh_axes") == "").height == 0


def test_saved_run_is_whole_and_equal(report: Report, tmp_path: Path) -> None:
    saved = load_run_directory(report.save(tmp_path / "run"))
    assert saved.summary == json.loads(json.dumps(report.summary))
    assert saved.ops.equals(report.ops)


def test_xprof_finds_the_same_times_in_the_written_profile(report: Report, tmp_path: Path) -> None:
    convert = pytest.importorskip("xprof.convert.raw_to_tool_data", reason="XProf is not installed")
    [profile_path] = report.save(tmp_path / "run").glob("plugins/profile/*/*.xplane.pb")

    def page(tool: str) -> list[dict[str, Any]]:
        found = json.loads(convert.xspace_to_tool_data([str(profile_path)], tool, {})[0])
        return found if isinstance(found, list) else [found]

    assert page("overview_page") and page("op_profile") and page("roofline_model")
    [stats] = [table for table in page("hlo_stats") if table.get("cols")]
    columns = [column["id"] for column in stats["cols"]]
    rows = [dict(zip(columns, (cell and cell["v"] for cell in row["c"]), strict=True)) for row in stats["rows"]]
    theirs = {row["hlo_op_name"]: row["total_self_time"] for row in rows}
    timed = report.ops.filter(pl.col("measured_time") > 0)
    assert timed.height == len(theirs)
    windows = 8 * 2  # devices times steps
    for op, seconds in timed.select("op", "measured_time").iter_rows():
        assert theirs[op] / windows == pytest.approx(seconds * 1e6, rel=0.01)
