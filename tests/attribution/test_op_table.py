"""The op table: costs and trace joined, whatever names the trace uses."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from jaxprof.attribution.analysis import analyze
from jaxprof.attribution.join import join_names
from jaxprof.attribution.op_table import OP_TABLE
from jaxprof.hlo.op_cost import Executions


def table(build: ModuleType, costs: Any, timeline: Any = None, device: Any = ..., **fields: Any) -> dict[str, Any]:
    device = build.SPEC if device is ... else device
    found = analyze(build.program(**fields), costs, device=device, facts=build.facts(), timeline=timeline).ops
    assert found.schema == OP_TABLE
    return {row["op"]: row for row in found.iter_rows(named=True)}


def test_work_is_per_step_and_device_and_time_follows_the_peaks(build: ModuleType) -> None:
    costs = build.costs(
        build.matmul("dot.1", 2_000_000, runs=3, hbm_bytes_read=800, hbm_bytes_written=200, part="mlp"),
        build.matmul("dot.2", 1_000_000, dtype="f32"),
        build.op("add.1", hbm_bytes_read=5000, other_flops=7),
        build.all_reduce("all-reduce.1", 1000, runs=2),
    )
    rows = table(build, costs)
    dot = rows["dot.1"]
    assert (dot["flops"], dot["flops_dtype"], dot["executions"], dot["compiled_executions"]) == (
        6_000_000,
        "bf16",
        3,
        3,
    )
    assert (dot["hbm_bytes_read"], dot["hbm_bytes_written"]) == (2400, 600)
    assert (dot["compute_time"], dot["hbm_time"]) == pytest.approx((6e-6, 3e-6))
    assert rows["dot.2"]["compute_time"] == pytest.approx(2e-6)  # twice as long at half the peak
    assert rows["add.1"]["hbm_time"] == pytest.approx(5e-6)
    assert (rows["add.1"]["flops"], rows["add.1"]["other_flops"]) == (0, 7)
    assert rows["all-reduce.1"]["link_time"] == pytest.approx(20e-6)
    assert (rows["all-reduce.1"]["link"], rows["all-reduce.1"]["mesh_axes"]) == ("ici", "data")
    assert {name: row["bound"] for name, row in rows.items()} == {
        "dot.1": "compute", "dot.2": "compute", "add.1": "hbm", "all-reduce.1": "collective"
    }  # fmt: skip
    assert all(row["measured_time"] is None and row["roofline_fraction"] is None for row in rows.values())


def test_a_matmul_with_more_bytes_than_flops_is_bound_by_hbm(build: ModuleType) -> None:
    costs = build.costs(build.matmul("dot.1", 1_000_000, hbm_bytes_read=5000))
    timeline = build.timeline([(d, 0, "dot.1", 0, 10) for d in (0, 1)], [(d, 0, 0, 10, 10) for d in (0, 1)])
    row = table(build, costs, timeline)["dot.1"]
    assert (row["bound"], row["roofline_fraction"]) == ("hbm", pytest.approx(0.5))


def test_times_are_means_over_steps_and_devices_beside_the_slowest_device(build: ModuleType) -> None:
    costs = build.costs(build.matmul("dot.1", 1_000_000))
    rows = [(d, s, "dot.1", 100 * s, 100 * s + 10 + 20 * d + 4 * s) for d in (0, 1) for s in (0, 1)]
    steps = [(d, s, 100 * s, 100 * s + 100, 100 * s + 50) for d in (0, 1) for s in (0, 1)]
    row = table(build, costs, build.timeline(rows, steps))["dot.1"]
    assert (row["measured_time"], row["measured_time_max"]) == pytest.approx((22e-6, 32e-6))
    assert row["roofline_fraction"] == pytest.approx(1 / 22)


def test_an_op_cut_by_others_runs_once(build: ModuleType) -> None:
    """Rows hold self time: the loop has one row before its body and one behind it."""
    costs = build.costs(build.op("while.1", opcode="while", category="control"), build.matmul("dot.1", 10))
    rows = [(0, 0, "while.1", 0, 1), (0, 0, "dot.1", 1, 9), (0, 0, "while.1", 9, 10)]
    found = table(build, costs, build.timeline(rows, [(0, 0, 0, 10, 10)]))
    assert found["while.1"]["executions"] == 1
    assert found["while.1"]["measured_time"] == pytest.approx(2e-6)
    assert found["while.1"]["bound"] == "latency"


def test_ops_of_one_side_only_are_kept_and_named(build: ModuleType) -> None:
    costs = build.costs(
        build.matmul("dot.1", 10),
        build.matmul("dot.2", 10, executions=Executions(low=0, high=3, why="a branch of conditional.1")),
        build.op("add.1", hbm_bytes_read=4),
    )
    rows = [
        (0, 0, "dot.1", 0, 10),
        (0, 0, "mystery.1", 10, 30),
        (0, 0, "TransferToDevice", 30, 35, {"stream": "host"}),
        (0, 0, "dot.1", 35, 40, {"program": "jit_other"}),
    ]
    timeline = build.timeline(rows, [(0, 0, 0, 40, 40)])
    ops = analyze(build.program(1), costs, device=build.SPEC, facts=build.facts(), timeline=timeline).ops
    found = {(row["program"], row["op"]): row for row in ops.iter_rows(named=True)}
    mystery = found[build.MODULE, "mystery.1"]
    assert (mystery["opcode"], mystery["flops"], mystery["unknown"]) == (None, None, "not in the compiled module")
    assert mystery["measured_time"] == pytest.approx(20e-6)
    assert found["jit_other", "dot.1"]["flops"] is None  # the same name in another program is another op
    assert found[build.MODULE, "TransferToDevice"]["bound"] == "host"
    unseen = found[build.MODULE, "add.1"]
    assert (unseen["measured_time"], unseen["executions"], unseen["hbm_bytes_read"]) == (None, 1, 4)
    not_taken = found[build.MODULE, "dot.2"]
    assert (not_taken["executions"], not_taken["compiled_executions"], not_taken["flops"]) == (0, None, 0)


def test_time_of_ops_that_the_module_does_not_have_is_unexplained(build: ModuleType) -> None:
    rows = [(0, 0, "dot.1", 0, 10), (0, 0, "mystery.1", 10, 30)]
    timeline = build.timeline(rows, [(0, 0, 0, 40, 40)])
    costs = build.costs(build.matmul("dot.1", 10))
    found = analyze(build.program(1), costs, device=build.SPEC, facts=build.facts(), timeline=timeline)
    assert found.summary["unexplained_s"] == pytest.approx(20e-6)
    assert sum(found.summary["breakdown_s"].values()) == pytest.approx(20e-6)
    assert any("50.0% of the wall time goes to ops that the compiled module does not have" in w for w in found.warnings)


def test_d11_names_of_asynchronous_halves_join(build: ModuleType) -> None:
    """A trace says all-gather.7 where the HLO has all-gather-start.7, and the other way round."""
    ops = [
        build.all_reduce("all-gather-start.7", 0, opcode="all-gather-start"),
        build.op("all-gather-done.7", opcode="all-gather-done"),
        build.all_reduce("all-gather.9", 0, opcode="all-gather"),
    ]
    assert join_names(["all-gather.7", "all-gather-done.7", "all-gather-start.9", "all-gather.8"], ops) == {
        "all-gather.7": "all-gather-start.7",
        "all-gather-done.7": "all-gather-done.7",
        "all-gather-start.9": "all-gather.9",
    }


def test_d11_the_row_keeps_the_traces_name_and_an_integer_collective_counts(build: ModuleType) -> None:
    gather = build.all_reduce(
        "all-gather-start.7", 128, opcode="all-gather-start", collective="all-gather", payload_bytes=256
    )
    timeline = build.timeline([(0, 0, "all-gather.7", 0, 10)], [(0, 0, 0, 10, 10)])
    row = table(build, build.costs(gather), timeline)["all-gather-start.7"]
    assert (row["trace_names"], row["payload_bytes"], row["executions"]) == ("all-gather.7", 256, 1)
    assert row["measured_time"] == pytest.approx(10e-6)


@pytest.mark.parametrize("name", ["fusion-start", "all-reduce.1"])
def test_d10_a_collective_in_an_async_wrapper_counts_once(build: ModuleType, name: str) -> None:
    """Whether the trace names the wrapper or what is in it: one all-reduce of 4,096 bytes."""
    wrapper = build.all_reduce(
        "fusion-start", 4096, opcode="async-start", payload_bytes=4096, contains=("all-reduce.1",)
    )
    done = build.op("fusion-done", opcode="async-done", category="collective")
    rows = [(0, 0, name, 0, 5, {"stream": "async"}), (0, 0, "fusion-done", 5, 10)]
    found = analyze(
        build.program(),
        build.costs(wrapper, done),
        device=build.SPEC,
        facts=build.facts(),
        timeline=build.timeline(rows, [(0, 0, 0, 10, 10)]),
    )
    (collective,) = found.summary["collectives"]
    assert (collective["op"], collective["executions"], collective["payload_bytes"]) == ("all-reduce", 1, 4096)
    assert found.summary["breakdown_s"]["transfer"] == pytest.approx(10e-6)
    assert found.ops["unknown"].null_count() == found.ops.height


def test_several_ops_inside_one_fusion_are_one_execution_of_it(build: ModuleType) -> None:
    fusion = build.op("fusion.1", contains=("add.1", "multiply.1"), hbm_bytes_read=10)
    rows = [(0, 0, "add.1", 0, 4), (0, 0, "multiply.1", 4, 10)]
    row = table(build, build.costs(fusion), build.timeline(rows, [(0, 0, 0, 10, 10)]))["fusion.1"]
    assert (row["executions"], row["trace_names"]) == (1, "add.1,multiply.1")
    assert row["measured_time"] == pytest.approx(10e-6)


def test_a_name_inside_two_fusions_joins_neither(build: ModuleType) -> None:
    fusions = [build.op(name, contains=("add.1",)) for name in ("fusion.1", "fusion.2")]
    assert join_names(["add.1"], fusions) == {}


def test_without_a_device_or_a_peak_times_are_unknown_and_not_zero(build: ModuleType) -> None:
    costs = build.costs(build.matmul("dot.1", 10, dtype="s4"), build.op("add.1", hbm_bytes_read=4))
    rows = table(build, costs)
    assert rows["dot.1"]["compute_time"] is None
    assert rows["dot.1"]["bound"] == "compute"
    rows = table(build, costs, device=None)
    assert [rows["add.1"][name] for name in ("compute_time", "hbm_time", "link_time")] == [None, None, None]


def test_a_kernel_of_unknown_cost_has_no_flops_and_its_reason(build: ModuleType) -> None:
    costs = build.costs(build.op("custom-call.1", opcode="custom-call", category="custom call", unknown="my_kernel"))
    row = table(build, costs)["custom-call.1"]
    assert (row["flops"], row["compute_time"], row["unknown"]) == (None, None, "my_kernel")


def test_a_loop_of_unknown_length_leaves_work_unknown_until_it_is_traced(build: ModuleType) -> None:
    loop = Executions(low=1, high=None, why="trip count of while.1 is unknown")
    costs = build.costs(build.matmul("dot.1", 10, executions=loop))
    row = table(build, costs)["dot.1"]
    assert (row["executions"], row["flops"], row["unknown"]) == (None, None, "trip count of while.1 is unknown")
    rows = [(0, 0, "dot.1", i, i + 1, {"occurrence": i}) for i in range(5)]
    row = table(build, costs, build.timeline(rows, [(0, 0, 0, 5, 5)]))["dot.1"]
    assert (row["executions"], row["flops"], row["unknown"]) == (5, 50, None)


def test_a_short_op_far_below_its_roofline_is_bound_by_latency(build: ModuleType) -> None:
    costs = build.costs(build.matmul("dot.1", 100_000), build.matmul("dot.2", 1_000_000))
    rows = [(0, 0, "dot.1", 0, 4), (0, 0, "dot.2", 4, 60)]
    found = table(build, costs, build.timeline(rows, [(0, 0, 0, 60, 60)]))
    assert (found["dot.1"]["bound"], found["dot.2"]["bound"]) == ("latency", "compute")


def test_a_predicted_timeline_fills_its_own_column(build: ModuleType) -> None:
    costs = build.costs(build.matmul("dot.1", 1_000_000))
    timeline = build.timeline([(0, 0, "dot.1", 0, 2)], [(0, 0, 0, 2, 2)], evidence="predicted")
    row = table(build, costs, timeline)["dot.1"]
    assert (row["predicted_time"], row["measured_time"]) == (pytest.approx(2e-6), None)


@pytest.mark.parametrize(
    ("platform", "devices", "kind", "link"),
    [
        ("tpu", 8, "all-gather", "ici"),
        ("tpu", 8, "send", "dcn"),
        ("gpu", 8, "all-gather", "nvlink"),
        ("gpu", 16, "all-gather", None),
        ("cpu", 8, "all-gather", "shared memory"),
    ],
)
def test_links(build: ModuleType, platform: str, devices: int, kind: str, link: str | None) -> None:
    spec = replace(build.SPEC, link_bytes_per_s={"ici": 1.0, "dcn": 1.0, "nvlink": 2.0, "pcie": 1.0})
    costs = build.costs(build.all_reduce("c.1", 10, collective=kind))
    row = table(build, costs, device=spec, devices=devices, platform=platform)["c.1"]
    assert row["link"] == link


def test_rows_come_longest_first(build: ModuleType) -> None:
    costs = build.costs(build.op("a"), build.op("b"), build.op("c"))
    timeline = build.timeline([(0, 0, "c", 0, 2), (0, 0, "b", 2, 9)], [(0, 0, 0, 9, 9)])
    ops = analyze(build.program(1), costs, device=None, facts=build.facts(), timeline=timeline).ops
    assert ops["op"].to_list() == ["b", "c", "a"]
