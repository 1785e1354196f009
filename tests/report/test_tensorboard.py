"""XProf itself reads what is written, and finds the numbers that the report shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from jaxprof.proto.xplane import XSpace
from jaxprof.report.report import Report
from jaxprof.report.tensorboard import hlo_expressions, tensorboard_command, write_xspace
from jaxprof.trace.timeline import Timeline

convert = pytest.importorskip("xprof.convert.raw_to_tool_data", reason="XProf is not installed")
MODULE = "jit_step(1)"
Tool = Callable[..., Any]


@pytest.fixture(scope="module")
def log_directory(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report.save(tmp_path_factory.mktemp("runs") / "toy")


@pytest.fixture(scope="module")
def tool(log_directory: Path) -> Tool:
    """One page's data as XProf's own converter makes it."""
    [path] = log_directory.glob("plugins/profile/*/*.xplane.pb")
    names = convert.xspace_to_tool_names([str(path)])  # what TensorBoard asks first: it unpacks the HLO modules
    assert {"memory_viewer", "graph_viewer"} <= set(names)

    def data(name: str, **parameters: Any) -> Any:
        found, _ = convert.xspace_to_tool_data([str(path)], name, parameters)
        assert found, f"{name} is empty"
        return found

    return data


def rows_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    """A chart table as a list of dicts."""
    columns = [column["id"] for column in table["cols"]]
    return [dict(zip(columns, (cell["v"] for cell in row["c"]), strict=True)) for row in table["rows"]]


def table(tables: str | bytes, column: str) -> dict[str, Any]:
    """The first of a page's tables that has ``column``."""
    found = json.loads(tables)
    found = found if isinstance(found, list) else [found]
    return next(one for one in found if column in [head["id"] for head in one.get("cols", [])])


def per_device_and_step(report: Report) -> int:
    assert report.timeline is not None
    return report.timeline.steps.height


def test_hlo_stats_has_our_self_times_and_executions(tool: Tool, report: Report) -> None:
    theirs = {row["hlo_op_name"]: row for row in rows_of(table(tool("hlo_stats"), "hlo_op_name"))}
    assert theirs.keys() == set(report.ops["op"])
    runs = per_device_and_step(report)
    for ours in report.ops.iter_rows(named=True):
        row = theirs[ours["op"]]
        assert row["total_self_time"] / runs == pytest.approx(ours["measured_time"] * 1e6, rel=0.01)
        assert row["occurrences"] == ours["executions"] * runs


def test_an_interrupted_loop_is_one_execution_with_its_self_time(tool: Tool, report: Report) -> None:
    """The loop has two rows a step in the timeline, and gaps that belong to nobody between its body's ops."""
    [loop, *_] = [
        row for row in rows_of(table(tool("hlo_stats"), "hlo_op_name")) if row["hlo_op_name"].startswith("while")
    ]
    assert loop["occurrences"] == per_device_and_step(report)
    assert loop["avg_self_time"] == pytest.approx(1.75 + 2 * 0.01 * 3.5, rel=1e-6)  # µs: both rows, mean device


def test_hlo_stats_has_our_flops_and_bytes(tool: Tool, report: Report) -> None:
    theirs = {row["hlo_op_name"]: row for row in rows_of(table(tool("hlo_stats"), "hlo_op_name"))}
    dot = report.ops.filter(pl.col("flops") > 0).row(0, named=True)
    row = theirs[dot["op"]]
    seconds = dot["measured_time"]
    assert row["model_flop_rate"] == pytest.approx(dot["flops"] / seconds / 1e9, rel=0.01)
    moved = dot["hbm_bytes_read"] + dot["hbm_bytes_written"]
    assert row["hbm_bw"] == pytest.approx(moved / seconds / 2**30, rel=0.01)
    assert " = " in row["hlo_op_expression"] and "f32[" in row["hlo_op_expression"]


def test_step_time_is_that_of_the_slowest_device(tool: Tool, report: Report) -> None:
    """XProf shows two decimals of a millisecond, so the per-step table is compared."""
    assert report.timeline is not None
    lengths = pl.col("end_ps") - pl.col("start_ps")
    slowest = report.timeline.steps.group_by("step").agg(lengths.max().alias("ps")).sort("step")["ps"].to_list()
    table_of_steps = table(tool("overview_page"), "stepnum")
    theirs = [row["tcComputeTimeMs"] + row["tcIdleTimeMs"] for row in rows_of(table_of_steps)]
    assert theirs == pytest.approx([ps / 1e9 for ps in slowest], rel=0.01)
    assert float(table_of_steps["p"]["steptime_ms_average"]) == pytest.approx(sum(slowest) / 3e9, abs=0.0051)


def test_overview_names_the_target(tool: Tool) -> None:
    assert b"cpu-mesh:8" in tool("overview_page")


def test_op_profile_groups_by_category_and_keeps_all_time(tool: Tool, report: Report) -> None:
    profile = json.loads(tool("op_profile"))["byProgramExcludeIdle"]
    total = report.ops["measured_time"].sum() * per_device_and_step(report)
    assert profile["metrics"]["rawTime"] / 1e12 == pytest.approx(total, rel=0.01)
    [program] = profile["children"]
    assert program["name"] == MODULE
    assert {child["name"] for child in program["children"]} >= {"matmul", "elementwise", "all-reduce", "all-gather"}


def test_roofline_has_our_peaks_and_every_op(tool: Tool, report: Report) -> None:
    page = table(tool("roofline_model"), "hbm_operational_intensity")
    assert float(page["p"]["peak_flop_rate"]) == pytest.approx(40.0)
    assert float(page["p"]["peak_hbm_bw"]) == pytest.approx(2.5e9 / 2**30, rel=1e-3)
    assert {row["operation"] for row in rows_of(page)} >= set(report.ops["op"])


def test_memory_viewer_has_the_buffers(tool: Tool) -> None:
    page = json.loads(tool("memory_viewer", module_name=MODULE))
    assert page["moduleName"] == "jit_step"
    assert any(
        buffer.get("opCode") == "parameter" and "f32[4,128,32]" in buffer["shapeString"] for buffer in page["maxHeap"]
    )
    assert page["peakHeapMib"] > 0


def test_graph_viewer_draws_the_module(tool: Tool, report: Report) -> None:
    op = report.ops.filter(pl.col("flops") > 0)["op"][0]
    options = {"module_name": MODULE, "node_name": op, "type": "graph", "format": "dot", "graph_width": 3}
    assert op in tool("graph_viewer", graph_viewer_options=options).decode()


def test_trace_viewer_has_every_device_and_op(tool: Tool, report: Report) -> None:
    events = json.loads(tool("trace_viewer"))["traceEvents"]
    processes = {event["args"]["name"] for event in events if event.get("name") == "process_name"}
    assert processes >= {f"/device:TPU:{device}" for device in range(8)}
    lines = {event["args"]["name"] for event in events if event.get("name") == "thread_name"}
    assert lines >= {"Steps", "XLA Modules", "XLA Ops", "Collective waits"}
    assert {event.get("name") for event in events} >= set(report.ops["op"])


def test_what_is_unknown_is_left_out(report: Report) -> None:
    assert report.timeline is not None
    space = XSpace.FromString(write_xspace(report.program, report.timeline, report.ops, {"target": {"name": "x"}}))
    plane = next(plane for plane in space.planes if plane.name == "/device:TPU:0")
    names = {number: stat.name for number, stat in plane.stat_metadata.items()}
    assert [names[stat.metadata_id] for stat in plane.stats] == ["device_type_string"]
    unknown = report.ops.filter(pl.col("flops").is_null())["op"][0]
    event = next(event for event in plane.event_metadata.values() if event.display_name == unknown)
    stats = {names[stat.metadata_id] for stat in event.stats}
    assert "flops" not in stats and "bytes_accessed" in stats


def test_integers_are_int64_and_no_op_is_the_root(report: Report) -> None:
    """XProf reads nothing else, and leaves symbol 0 out."""
    assert report.timeline is not None
    space = XSpace.FromString(write_xspace(report.program, report.timeline, report.ops, report.summary))
    for plane in space.planes:
        names = {number: stat.name for number, stat in plane.stat_metadata.items()}
        assert "group_id" in names.values()
        for event in plane.event_metadata.values():
            assert all(stat.WhichOneof("value") != "uint64_value" for stat in event.stats)
            symbols = [stat.int64_value for stat in event.stats if names[stat.metadata_id] == "symbol_id"]
            assert symbols != [0] or event.name == "not this op's own"


def test_ops_that_overlap_on_a_device_keep_their_times(report: Report, tmp_path: Path) -> None:
    """On a CPU mesh a collective waits beside other ops, and some ops begin before another one has ended."""
    assert report.timeline is not None
    first, second, third, fourth = report.ops.filter(pl.col("flops").is_not_null())["op"][:4]
    rows = [
        (first, "ops", 0, 0, 40), (first, "ops", 0, 60, 80),  # crosses the second one
        (second, "ops", 0, 40, 60), (second, "ops", 0, 80, 90),
        (third, "async", 0, 10, 95),  # lies over both
        (fourth, "ops", 0, 92, 99), (fourth, "ops", 1, 99, 99),
    ]  # fmt: skip
    frame = pl.DataFrame(
        [
            {"device": 0, "step": 0, "program": "jit_step", "op": op, "start_ps": start * 10**6, "end_ps": end * 10**6,
             "wait_ps": 0, "stream": stream, "occurrence": occurrence}
            for op, stream, occurrence, start, end in rows
        ],
        schema=report.timeline.intervals.schema,
    )  # fmt: skip
    steps = report.timeline.steps.filter((pl.col("device") == 0) & (pl.col("step") == 0))
    timeline = Timeline(evidence="measured", intervals=frame, steps=steps)
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(write_xspace(report.program, timeline, report.ops, report.summary))
    found, _ = convert.xspace_to_tool_data([str(path)], "hlo_stats", {})
    theirs = {row["hlo_op_name"]: row for row in rows_of(table(found, "hlo_op_name"))}
    times = {op: (row["total_self_time"], row["occurrences"]) for op, row in theirs.items()}
    assert times == {first: (60, 1), second: (30, 1), third: (85, 1), fourth: (7, 2)}


def test_expressions_come_from_the_text_by_name(compiled: Any, report: Report) -> None:
    expressions = hlo_expressions(compiled.hlo_text)
    assert set(report.ops["op"]) <= expressions.keys()
    assert not any("metadata=" in expression for expression in expressions.values())


def test_a_timeline_without_ops_still_writes(report: Report, timeline: Timeline) -> None:
    empty = Timeline(evidence="measured", intervals=timeline.intervals.clear(), steps=timeline.steps)
    space = XSpace.FromString(write_xspace(report.program, empty, report.ops, report.summary))
    assert [line.name for line in space.planes[1].lines] == ["Steps"]


def test_view_starts_tensorboard_on_the_run(log_directory: Path) -> None:
    command = tensorboard_command(log_directory)
    assert command[1:3] == ["-m", "tensorboard.main"]
    assert f"--logdir={log_directory}" in command
