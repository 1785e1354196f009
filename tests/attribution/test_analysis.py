"""Summary figures of whole steps: utilisation, reconciliation, waterfall, provenance, the verdict."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from jaxprof.attribution.analysis import Analysis, analyze
from jaxprof.attribution.facts import Timing
from jaxprof.hardware.device import DeviceSpec
from jaxprof.hlo.op_cost import Bounds, Executions
from jaxprof.hlo.program import Argument, MemoryStats

KEYS = {
    "schema", "name", "evidence", "step", "model", "target", "mesh", "global_batch", "seq_len", "steps_measured",
    "step_time_s", "step_time_bounds_s", "tokens_per_s_per_device", "error_bar", "flops", "mfu", "hfu",
    "mfu_convention", "hbm_bytes", "breakdown_s", "overlapped_collective_s", "unexplained_s", "waterfall_s",
    "collectives", "memory", "environment", "warnings",
}  # fmt: skip
"""run.json, as design.md has it."""


def one_op_step(build: ModuleType, us: float, **fields: Any) -> Any:
    """Both devices run dot.1 for ``us`` microseconds."""
    return build.timeline([(d, 0, "dot.1", 0, us) for d in (0, 1)], [(d, 0, 0, us, us) for d in (0, 1)], **fields)


def bars(found: Analysis) -> dict[str, float]:
    return {bar["cause"]: bar["seconds"] for bar in found.summary["waterfall_s"]}


def test_every_key_is_there_and_json_able_with_and_without_a_timeline(build: ModuleType) -> None:
    costs = build.costs(build.matmul("dot.1", 1000), build.all_reduce("all-reduce.1", 10))
    for device in (build.SPEC, None):
        for timeline in (None, one_op_step(build, 10)):
            for model in (None, build.model(2000, 3000)):
                found = analyze(
                    build.program(), costs, device=device, facts=build.facts(model), timeline=timeline
                ).summary
                assert found.keys() >= KEYS
                assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_what_is_unknown_is_null_and_not_zero(build: ModuleType) -> None:
    costs = build.costs(build.matmul("dot.1", 1000), build.all_reduce("all-reduce.1", 10))
    found = analyze(build.program(), costs, device=None, facts=build.facts()).summary
    unknown = ("step_time_s", "step_time_bounds_s", "mfu", "hfu", "tokens_per_s_per_device", "unexplained_s",
               "overlapped_collective_s", "error_bar", "steps_measured", "mfu_convention")  # fmt: skip
    assert {key: found[key] for key in unknown} == dict.fromkeys(unknown)
    assert set(found["breakdown_s"].values()) == {None}
    assert found["flops"]["executed"] is None
    assert found["memory"]["peak_bytes"] is None
    assert found["collectives"][0]["time_s"] is None
    assert found["evidence"] == "compiled"


def test_b3_mixed_dtypes_are_weighed_by_time_beside_the_figure_for_each_peak(build: ModuleType) -> None:
    """3.0 TFLOP in fp8 and 1.0 in bf16 on H100 SXM in 5.0 ms: 1.516 + 1.011 ms ideal, so 50.5 %."""
    h100 = DeviceSpec(
        name="h100-sxm", peak_flops_per_s={"f8e4m3fn": 1979e12, "bf16": 989.5e12}, hbm_bytes_per_s=3.35e12
    )
    costs = build.costs(
        build.matmul("dot.1", 3_000_000_000_000, dtype="f8e4m3fn"), build.matmul("dot.2", 1_000_000_000_000)
    )
    timeline = build.timeline([(0, 0, "dot.1", 0, 3000), (0, 0, "dot.2", 3000, 5000)], [(0, 0, 0, 5000, 5000)])
    facts = build.facts(build.model(4_000_000_000_000))
    found = analyze(build.program(1), costs, device=h100, facts=facts, timeline=timeline).summary
    assert found["waterfall_s"][0]["seconds"] == pytest.approx(2.527e-3, abs=1e-6)
    assert found["mfu"] == pytest.approx(0.505, abs=5e-4)
    assert found["hfu"] == pytest.approx(0.505, abs=5e-4)
    assert found["hfu_by_peak"] == pytest.approx({"bf16": 0.808, "f8e4m3fn": 0.404}, abs=5e-4)


@pytest.mark.parametrize("figure", ["mfu", "hfu"])
def test_b14_more_than_the_peak_is_warned_of(build: ModuleType, figure: str) -> None:
    """B4's wrong row of the hardware book, which says 144 %, would be noticed too."""
    costs = build.costs(build.matmul("dot.1", 1_000_000))
    facts = build.facts(build.model(2_000_000))
    found = analyze(build.program(), costs, device=build.SPEC, facts=facts, timeline=one_op_step(build, 0.5))
    assert found.summary[figure] == pytest.approx(2.0)
    assert any(
        w.startswith(f"{figure.upper()} is 200%") and "did not wait" in w and "peak is wrong" in w
        for w in found.warnings
    )


def test_b13_the_first_call_stands_apart_from_the_steady_state(build: ModuleType) -> None:
    """Steps of [21.5, 0.10, 0.10, 0.10, 0.10] s: 0.10 s is the step, not the mean of 4.38 s."""
    timing = Timing(
        first_call_s=21.5, untraced_step_s=(21.5, 0.1, 0.1, 0.1, 0.1), traced_step_s=(0.1,), steps_per_window=1
    )
    costs = build.costs(build.matmul("dot.1", 10_000_000_000))
    facts = build.facts(build.model(20_000_000_000), tokens=100)
    program = build.program(compile_s=21.4)
    found = analyze(program, costs, device=build.SPEC, facts=facts, timing=timing).summary
    assert found["step_time_s"] == 0.1
    assert found["mfu"] == pytest.approx(0.1)
    assert found["tokens_per_s_per_device"] == pytest.approx(500)
    assert found["timing"]["first_call_s"] == 21.5
    assert found["compile"] == {"seconds": 21.4, "cached": False}


def test_b13_a_traced_step_that_takes_far_longer_is_named(build: ModuleType) -> None:
    costs = build.costs(build.matmul("dot.1", 1000))
    starts = [0, 21_500, 21_600, 21_700, 21_800]
    rows = [(0, s, "dot.1", t, t + 90) for s, t in enumerate(starts)]
    steps = [(0, s, t, (starts[s + 1] if s < 4 else t + 90), t + 90) for s, t in enumerate(starts)]
    found = analyze(
        build.program(1), costs, device=build.SPEC, facts=build.facts(), timeline=build.timeline(rows, steps)
    )
    assert found.summary["step_time_s"] == pytest.approx(100e-6)
    assert any(w.startswith("step 0 took 0.0215 s against a median of 0.0001 s") for w in found.warnings)


def test_b15_remat_raises_hfu_and_leaves_mfu(build: ModuleType) -> None:
    """Four layers, six dots each; with checkpoint two more are run again. FLOPs of the case, over one device."""
    one = 1_048_576
    times = build.timeline(
        [(0, 0, f"dot.{i}", 10 * i, 10 * i + 10, {"occurrence": n}) for i in range(8) for n in range(4)],
        [(0, 0, 0, 80, 80)],
    )

    def found(dots: int) -> dict[str, Any]:
        ops = [build.matmul(f"dot.{i}", one, runs=4, phase="recompute" if i >= 6 else "backward") for i in range(dots)]
        facts = build.facts(build.model(25_165_824))
        spec = replace(build.SPEC, peak_flops_per_s={"bf16": 1e15})
        return analyze(build.program(1), build.costs(*ops), device=spec, facts=facts, timeline=times).summary

    without, remat = found(6), found(8)
    assert without["flops"]["compiled"] == without["flops"]["executed"] == 25_165_824
    assert remat["flops"]["compiled"] == remat["flops"]["executed"] == 33_554_432
    assert without["mfu"] == remat["mfu"] == pytest.approx(25_165_824 / 1e15 / 80e-6)
    assert remat["hfu"] == pytest.approx(33_554_432 / 1e15 / 80e-6)
    assert without["hfu"] == pytest.approx(without["mfu"])
    assert remat["flops"]["differences_flops"] == {"recompute": 8_388_608}


def test_b11_all_micro_batches_are_in_the_step(build: ModuleType) -> None:
    """A scan over four micro-batches, two dots of 262,144 each."""
    costs = build.costs(*(build.matmul(f"dot.{i}", 262_144, runs=4) for i in (1, 2)))
    found = analyze(build.program(1), costs, device=build.SPEC, facts=build.facts(build.model(2_097_152)))
    assert found.summary["flops"]["compiled"] == 2_097_152
    assert found.summary["flops"]["differences"] == []


def test_a13_both_conventions_of_causal_attention_stand_side_by_side(build: ModuleType) -> None:
    """B=2, S=128, H=4, hd=64: the HLO runs the full square, the model counts attended pairs."""
    causal, full = 16_908_288, 33_554_432
    costs = build.costs(*(build.matmul(f"dot.{i}", full // 2, part="attention.core", dtype="f32") for i in (1, 2)))
    model = build.model(causal, full, **{"attention.core": full})
    timeline = build.timeline([(0, 0, "dot.1", 0, 1000), (0, 0, "dot.2", 1000, 2000)], [(0, 0, 0, 2000, 2000)])
    found = analyze(build.program(1), costs, device=build.SPEC, facts=build.facts(model), timeline=timeline).summary
    flops = found["flops"]
    assert (flops["model_causal"], flops["model_full"], flops["executed"]) == (causal, full, full)
    assert flops["differences_flops"] == {"masked attention": full - causal}
    assert found["mfu_convention"] == "causal"
    assert found["mfu"] == pytest.approx(causal / 5e11 / 2e-3)
    assert found["mfu_full"] == pytest.approx(full / 5e11 / 2e-3)
    assert bars(analyze(build.program(1), costs, device=build.SPEC, facts=build.facts(model), timeline=timeline))[
        "FLOPs that are not the model's"
    ] == pytest.approx((full - causal) / 5e11)


def test_a13_a_kernel_that_skips_masked_positions_is_named_as_such(build: ModuleType) -> None:
    costs = build.costs(build.matmul("dot.1", 60, part="attention.core"), build.matmul("dot.2", 40, part="mlp"))
    model = build.model(100, 160, **{"attention.core": 120, "mlp": 40})
    flops = analyze(build.program(1), costs, device=None, facts=build.facts(model)).summary["flops"]
    assert flops["differences_flops"] == {
        "masked attention": 60, "attention: masked positions that the kernel skips": -60
    }  # fmt: skip


def test_a14_useful_and_executed_experts(build: ModuleType) -> None:
    """A ragged dot of 8 groups made dense: 524,288 useful FLOPs, 8 times as many run."""
    costs = build.costs(build.matmul("dot.1", 4_194_304, part="moe.experts"))
    model = build.model(524_288, 524_288, **{"moe.experts": 524_288})
    timeline = build.timeline([(0, 0, "dot.1", 0, 100)], [(0, 0, 0, 100, 100)])
    found = analyze(build.program(1), costs, device=build.SPEC, facts=build.facts(model), timeline=timeline).summary
    assert found["flops"]["differences_flops"] == {"experts: capacity and padding": 7 * 524_288}
    assert found["hfu"] / found["mfu"] == pytest.approx(8)


def test_a16_flops_are_the_jobs_and_table_rows_one_devices(build: ModuleType) -> None:
    """Rows sharded over 8 devices: 33,554,432 FLOPs each, 268,435,456 for the job."""
    sharded = Argument(path="x", dtype="f32", shape=(1024, 512), device_bytes=262_144, owner="batch", parameter=0)
    whole = replace(sharded, path="w", replicas=8, parameter=1)
    found = analyze(
        build.program(8, arguments=(sharded, whole)),
        build.costs(build.matmul("dot.1", 33_554_432, dtype="f32")),
        device=build.SPEC,
        facts=build.facts(),
    )
    assert found.summary["flops"]["compiled"] == 268_435_456
    assert found.ops["flops"].item() == 33_554_432
    assert not any("replicated compute" in warning for warning in found.warnings)


def test_a16_the_same_work_on_every_device_is_warned_of(build: ModuleType) -> None:
    whole = Argument(
        path="x", dtype="f32", shape=(1024, 512), device_bytes=2_097_152, owner="batch", parameter=0, replicas=8
    )
    costs = build.costs(build.matmul("dot.1", 268_435_456, dtype="f32"))
    found = analyze(build.program(8, arguments=(whole,)), costs, device=build.SPEC, facts=build.facts())
    assert found.summary["flops"]["compiled"] == 2_147_483_648
    assert any("replicated compute" in warning and "(8x)" in warning for warning in found.warnings)


def test_a3_branches_give_a_range_and_the_trace_what_ran(build: ModuleType) -> None:
    """cond(x@w, x@w@w@w) on f32[64,64]: 524,288 to 1,572,864; the trace shows the longer branch."""
    branch = Executions(low=0, high=1, why="a branch of conditional.1")
    ops = [build.matmul(f"dot.{i}", 524_288, executions=branch, dtype="f32") for i in range(4)]
    costs = replace(build.costs(*ops), flops=Bounds(524_288, 1_572_864))
    rows = [(0, 0, f"dot.{i}", i, i + 1) for i in (1, 2, 3)]
    timeline = build.timeline(rows, [(0, 0, 0, 5, 5)])
    flops = analyze(build.program(1), costs, device=None, facts=build.facts(), timeline=timeline).summary["flops"]
    assert (flops["compiled"], flops["compiled_range"]) == (None, [524_288, 1_572_864])
    assert flops["executed"] == 1_572_864


def test_a2_a_loop_of_unknown_length_is_never_a_bare_number(build: ModuleType) -> None:
    loop = Executions(low=1, high=None, why="trip count of while.1 is unknown")
    costs = build.costs(build.matmul("dot.1", 524_288, executions=loop, dtype="f32"))
    found = analyze(build.program(1), costs, device=build.SPEC, facts=build.facts()).summary
    assert (found["flops"]["compiled"], found["flops"]["compiled_range"]) == (None, [524_288, None])


def test_a5_unknown_kernels_are_listed_and_the_rest_counts(build: ModuleType) -> None:
    callback = build.op("custom-call.1", opcode="custom-call", category="host", unknown="host callback")
    costs = build.costs(build.matmul("dot.1", 100), callback)
    program = build.program(1, xla_cost={"flops": -1.0})
    found = analyze(program, costs, device=None, facts=build.facts()).summary
    assert (found["flops"]["compiled"], found["flops"]["unknown_kernels"]) == (100, ["host callback"])
    xla = found["xla"][0]
    assert (xla["xla"], xla["ours"]) == (None, 100)
    assert "-1" in xla["reason"] and "host callback" in xla["reason"]


def test_the_differences_lead_from_the_model_to_what_ran(build: ModuleType) -> None:
    costs = build.costs(
        build.matmul("dot.1", 50, part="attention.qkv"),
        build.matmul("dot.2", 30, part="unembed"),
        build.matmul("dot.3", 20, part="mlp", phase="recompute"),
        build.matmul("dot.4", 40, part="mlp"),
        build.matmul("dot.5", 7),
        build.matmul("dot.6", 10, part="mlp", executions=Executions(low=0, high=1, why="branch")),
    )
    model = build.model(150, 180, **{"attention.qkv": 90, "unembed": 50, "mlp": 40})
    rows = [(d, 0, f"dot.{i}", i, i + 1) for d in (0, 1) for i in range(1, 7)]
    timeline = build.timeline(rows, [(d, 0, 0, 10, 10) for d in (0, 1)])
    flops = analyze(build.program(), costs, device=None, facts=build.facts(model), timeline=timeline).summary["flops"]
    assert flops["model_causal"] + sum(flops["differences_flops"].values()) == flops["executed"] == 314
    assert flops["differences_flops"] == {
        "masked attention": 30,
        "recompute": 40,
        "attention: heads replicated or padded": 10,
        "MLP: replicated or padded": 40,
        "output layer: vocabulary padding, or tokens whose logits are not needed": 10,
        "other matmuls that are not the model's": 14,
        "branches and loops beyond their least": 20,
    }


def test_matmuls_that_the_trace_lacks_are_warned_of(build: ModuleType) -> None:
    costs = build.costs(build.matmul("dot.1", 100), build.matmul("dot.2", 50))
    found = analyze(build.program(), costs, device=None, facts=build.facts(), timeline=one_op_step(build, 10))
    assert (found.summary["flops"]["compiled"], found.summary["flops"]["executed"]) == (300, 200)
    assert "100 FLOPs are not in the trace" in found.warnings


def test_the_waterfall_by_hand(build: ModuleType) -> None:
    """Two devices of 1e12 FLOP/s and 1e9 B/s; a step of 100 µs, the last 25 of them until the next call."""
    costs = build.costs(
        build.matmul("dot.1", 20_000_000),
        build.matmul("dot.2", 5_000_000, phase="recompute"),
        build.op("add.1", hbm_bytes_read=8000),
        build.op("kernel.1", category="custom call", opcode="custom-call", unknown="kernel"),
        build.all_reduce("all-reduce.1", 100),
    )
    rows = []
    for device in (0, 1):
        rows += [
            (device, 0, "dot.1", 0, 30),
            (device, 0, "dot.2", 30, 36),
            (device, 0, "add.1", 36, 46),
            (device, 0, "kernel.1", 46, 50),
            (device, 0, "all-reduce.1", 50, 65, {"wait": 5}),
            (device, 0, "all-reduce.1", 70, 75, {"occurrence": 1}),
        ]
    found = analyze(
        build.program(), costs, device=build.SPEC, facts=build.facts(build.model(32_000_000)),
        timeline=build.timeline(rows, [(d, 0, 0, 100, 75) for d in (0, 1)]),
    )  # fmt: skip
    expected = {
        "ideal": 16, "recompute": 5, "FLOPs that are not the model's": 25 - 16 - 5, "time bound by HBM": 8,
        "kernels of unknown cost": 4, "kernels below their roofline": 50 - 25 - 8 - 4, "exposed transfer": 15,
        "wait": 5, "host": 25, "idle": 5,
    }  # fmt: skip
    assert bars(found) == pytest.approx({cause: us * 1e-6 for cause, us in expected.items()})
    assert found.summary["step_time_s"] == pytest.approx(100e-6)


@pytest.mark.parametrize("seed", range(25))
def test_random_waterfalls_end_at_the_untraced_step_time(build: ModuleType, seed: int) -> None:
    draw = random.Random(seed)
    ops = [
        build.matmul("dot.1", draw.randrange(1, 10**8)),
        build.matmul("dot.2", draw.randrange(1, 10**8), phase="recompute", hbm_bytes_read=draw.randrange(10**5)),
        build.op("add.1", hbm_bytes_read=draw.randrange(10**5)),
        build.op("kernel.1", unknown="kernel"),
        build.all_reduce("all-reduce.1", 10),
    ]
    names = [*(op.op for op in ops), "mystery.1"]
    rows = []
    for device in range(2):
        for i in range(30):
            start, length = draw.uniform(0, 150), draw.uniform(0, 30)
            more = {"wait": draw.uniform(0, length), "stream": "async"} if draw.random() < 0.3 else {}
            name = "all-reduce.1" if more else draw.choice(names)
            rows.append((device, 0, name, start, start + length, {"occurrence": i, **more}))
    timeline = build.timeline(rows, [(d, 0, 0, 200, 180) for d in (0, 1)])
    timing = Timing(first_call_s=1, untraced_step_s=(190e-6,), traced_step_s=(200e-6,), steps_per_window=1)
    model = build.model(draw.randrange(1, 10**9)) if seed % 2 else None
    found = analyze(
        build.program(),
        build.costs(*ops),
        device=build.SPEC,
        facts=build.facts(model),
        timeline=timeline,
        timing=timing,
    )
    assert found.summary["step_time_s"] == 190e-6
    total = math.fsum(bar["seconds"] for bar in found.summary["waterfall_s"])
    assert total == pytest.approx(190e-6, rel=1e-12)
    parts = math.fsum(found.summary["breakdown_s"].values()) + found.summary["unexplained_s"]
    assert parts == pytest.approx(190e-6, rel=1e-12)


def test_a_negative_bar_says_what_was_gained(build: ModuleType) -> None:
    """Half of the model's FLOPs did not run, and the matmul was faster than its bytes allow."""
    costs = build.costs(build.matmul("dot.1", 1_000_000, hbm_bytes_read=9000))
    found = analyze(
        build.program(), costs, device=build.SPEC, facts=build.facts(build.model(4_000_000)),
        timeline=one_op_step(build, 5),
    )  # fmt: skip
    shown = {cause: seconds for cause, seconds in bars(found).items() if seconds}
    expected = {
        "ideal": 2,
        "model FLOPs that did not run": -1,
        "time bound by HBM": 8,
        "kernels faster than their roofline": -4,
    }
    assert shown == pytest.approx({cause: us * 1e-6 for cause, us in expected.items()})


def test_the_breakdown_holds_the_traced_steps_shares_of_the_untraced_step(build: ModuleType) -> None:
    timing = Timing(first_call_s=1, untraced_step_s=(8e-6,), traced_step_s=(10e-6,), steps_per_window=5)
    costs = build.costs(build.matmul("dot.1", 1000))
    timeline = build.timeline([(d, 0, "dot.1", 0, 6) for d in (0, 1)], [(d, 0, 0, 10, 6) for d in (0, 1)])
    found = analyze(build.program(), costs, device=build.SPEC, facts=build.facts(), timeline=timeline, timing=timing)
    parts = found.summary["breakdown_s"]
    assert (parts["compute"], parts["host"]) == pytest.approx((4.8e-6, 3.2e-6))
    assert found.breakdown["wall_s"].to_list() == pytest.approx([10e-6, 10e-6])
    for number, device in enumerate(found.summary["breakdown_by_device_s"]):
        assert device == pytest.approx({"device": number, **parts})
    assert found.summary["timing"]["tracing_overhead"] == pytest.approx(0.25)
    assert any("traced steps took +25.0%" in warning for warning in found.warnings)
    assert (found.summary["steps_measured"], found.summary["evidence"]) == (5, "measured")


def test_the_bounds_are_the_longest_part_and_the_sum_of_all(build: ModuleType) -> None:
    costs = build.costs(
        build.matmul("dot.1", 3_000_000), build.op("add.1", hbm_bytes_read=5000), build.all_reduce("all-reduce.1", 400)
    )
    found = analyze(build.program(), costs, device=build.SPEC, facts=build.facts()).summary
    assert found["roofline_s"] == pytest.approx({"compute": 3e-6, "hbm": 5e-6, "link": 4e-6})
    assert found["step_time_bounds_s"] == pytest.approx([5e-6, 12e-6])
    without_link = replace(build.SPEC, link_bytes_per_s={})
    found = analyze(build.program(), costs, device=without_link, facts=build.facts()).summary
    assert found["step_time_bounds_s"] == [pytest.approx(5e-6), None]


def test_collectives_are_summed_by_kind_axes_and_link(build: ModuleType) -> None:
    costs = build.costs(
        build.all_reduce("all-reduce.1", 100, runs=3, payload_bytes=200),
        build.all_reduce("all-reduce.2", 50),
        build.all_reduce("all-reduce.3", 70, mesh_axes=("fsdp", "tensor")),
    )
    rows = [(0, 0, "all-reduce.1", 10 * i, 10 * i + 6, {"wait": 2, "occurrence": i}) for i in range(3)]
    rows += [(0, 0, "all-reduce.2", 30, 34, {"wait": 1}), (0, 0, "all-reduce.3", 40, 42)]
    found = analyze(
        build.program(),
        costs,
        device=build.SPEC,
        facts=build.facts(),
        timeline=build.timeline(rows, [(0, 0, 0, 50, 50)]),
    )
    first, second = found.summary["collectives"]
    assert (first["op"], first["mesh_axes"], first["link"], first["executions"]) == ("all-reduce", ["data"], "ici", 4)
    assert (first["payload_bytes"], first["wire_bytes"]) == (650, 350)
    assert (first["time_s"], first["wait_s"], first["exposed_s"]) == pytest.approx((22e-6, 7e-6, 15e-6))
    assert first["bus_bytes_per_s"] == pytest.approx(350 / 15e-6)  # from the last participant's arrival on
    assert (second["mesh_axes"], second["ops"]) == (["fsdp", "tensor"], ["all-reduce.3"])


def test_fewer_devices_in_the_trace_stand_for_all(build: ModuleType) -> None:
    costs = build.costs(build.matmul("dot.1", 100))
    found = analyze(build.program(8), costs, device=None, facts=build.facts(), timeline=one_op_step(build, 10))
    assert found.summary["flops"]["executed"] == found.summary["flops"]["compiled"] == 800
    assert "the timeline has 2 of 8 devices: their mean stands for all" in found.warnings


def test_b4_an_unknown_device_has_no_peak_and_no_default(build: ModuleType) -> None:
    program = build.program(device_kind="FooChip 9")
    found = analyze(program, build.costs(build.matmul("dot.1", 1)), device=None, facts=build.facts(build.model(2)))
    assert found.summary["mfu"] is None
    assert found.summary["target"]["device"] == "FooChip 9"
    assert any("no peak is known for device kind 'FooChip 9'" in warning for warning in found.warnings)


def test_b2_a_dtype_without_a_peak_leaves_mfu_unknown(build: ModuleType) -> None:
    costs = build.costs(build.matmul("dot.1", 300), build.matmul("dot.2", 100, dtype="s4"))
    found = analyze(
        build.program(), costs, device=build.SPEC, facts=build.facts(build.model(800)),
        timeline=build.timeline([(0, 0, "dot.1", 0, 1), (0, 0, "dot.2", 1, 2)], [(0, 0, 0, 2, 2)]),
    )  # fmt: skip
    assert (found.summary["mfu"], found.summary["waterfall_s"]) == (None, [])
    assert any("toy has no peak for s4, which 25.0% of the FLOPs have" in warning for warning in found.warnings)


def test_a1_xlas_count_of_a_loop_is_explained(build: ModuleType) -> None:
    """A scan of 8 matmuls of 64x64x64: XLA says 524,290 where 4,194,304 run."""
    costs = build.costs(build.matmul("dot.1", 524_288, runs=8), build.op("add.1", other_flops=2))
    program = build.program(1, xla_cost={"flops": 524_290.0, "bytes accessed": 10.0})
    row = analyze(program, costs, device=None, facts=build.facts()).summary["xla"][0]
    assert (row["ours"], row["xla"], row["unit"]) == (4_194_306, 524_290.0, "FLOP")
    assert row["reason"] == "XLA counts a loop's body once: with that, ours would be 524,290"


def test_c3_the_peak_field_without_temporaries_is_explained(build: ModuleType) -> None:
    sizes = {"argument_bytes": 4_194_304, "output_bytes": 4_194_304, "alias_bytes": 4_194_304, "temp_bytes": 4_194_304}
    program = build.program(1, memory=MemoryStats(**sizes, peak_bytes=4_194_304))
    memory = SimpleNamespace(peak_bytes=8_388_608, by_owner={"temporaries": 8_388_608}, warnings=())
    found = analyze(program, build.costs(), device=build.SPEC, facts=build.facts(), memory=memory).summary  # type: ignore[arg-type]
    rows = {row["figure"]: row for row in found["xla"]}
    assert rows["arguments + outputs - aliases + temporaries"]["xla"] == 8_388_608
    assert "temporaries" in rows["XLA's peak field"]["reason"]
    assert found["memory"] == {
        "peak_bytes": 8_388_608, "capacity_bytes": 1e6, "fits": False, "by_owner": {"temporaries": 8_388_608},
        "remedies": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    "stats", [MemoryStats(), MemoryStats(argument_bytes=0, output_bytes=0, alias_bytes=0, temp_bytes=0)]
)
def test_c1_no_memory_analysis_is_said_beside_the_sizes_from_the_shapes(build: ModuleType, stats: MemoryStats) -> None:
    argument = Argument(path="x", dtype="f32", shape=(128, 128), device_bytes=65_536, owner="batch", parameter=0)
    program = build.program(1, memory=stats, arguments=(argument,))
    rows = analyze(program, build.costs(), device=None, facts=build.facts()).summary["xla"]
    row = next(row for row in rows if row["figure"] == "arguments")
    assert (row["ours"], row["xla"]) == (65_536, None)
    assert "gives no memory analysis" in row["reason"]


def test_every_summary_figure_has_a_provenance(build: ModuleType) -> None:
    costs = build.costs(build.matmul("dot.1", 100))
    found = analyze(
        build.program(), costs, device=build.SPEC, facts=build.facts(build.model(200)), timeline=one_op_step(build, 1)
    ).summary
    words = {"schema", "name", "evidence", "step", "mesh", "global_batch", "seq_len", "tokens_per_step", "error_bar",
             "steps_measured", "mfu_convention", "warnings", "verdict", "provenance"}  # fmt: skip
    assert {key for key in found if key not in words} <= {key.split(".")[0] for key in found["provenance"]}
    assert set(found["provenance"].values()) <= {"measured", "compiled", "formula", "assumed", "published"}


def test_the_verdict_names_the_bottleneck_with_its_evidence(build: ModuleType) -> None:
    costs = build.costs(build.matmul("dot.1", 100), build.all_reduce("all-reduce.1", 100))
    rows = [(0, 0, "dot.1", 0, 10), (1, 0, "dot.1", 0, 90)]
    rows += [(0, 0, "all-reduce.1", 10, 100, {"wait": 80}), (1, 0, "all-reduce.1", 90, 100)]
    timeline = build.timeline(rows, [(d, 0, 0, 100, 100) for d in (0, 1)])
    said = analyze(build.program(), costs, device=build.SPEC, facts=build.facts(), timeline=timeline).summary["verdict"]
    assert said.startswith("Ops bound by compute take 50% of the step (")
    assert "Device 1 waits least (0% of its step, the others 80%): they wait for it." in said
    rows = [(d, 0, "all-reduce.1", 0, 100, {"wait": 80}) for d in (0, 1)]
    timeline = build.timeline(rows, [(d, 0, 0, 100, 100) for d in (0, 1)])
    said = analyze(build.program(), costs, device=build.SPEC, facts=build.facts(), timeline=timeline).summary["verdict"]
    assert said == "Wait on collectives takes 80% of the step (most of it in all-reduce over data: 80 µs)."


def test_the_verdict_says_what_a_simulated_meshs_times_mean(build: ModuleType) -> None:
    costs = build.costs(build.matmul("dot.1", 100))
    program = build.program(platform="cpu")
    said = analyze(program, costs, device=build.SPEC, facts=build.facts(), timeline=one_op_step(build, 1))
    assert "simulated mesh" in said.summary["verdict"]
    assert said.summary["target"]["name"] == "cpu-mesh:2"
