"""One small real compile on eight devices, with a timeline laid out by hand: every view is tested without a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pytest

from jaxprof.attribution.analysis import Analysis
from jaxprof.attribution.op_table import OP_TABLE
from jaxprof.hlo.program import MemoryStats, MeshAxes, Program
from jaxprof.proto.hlo import HloModuleProto
from jaxprof.report.report import Report
from jaxprof.trace.timeline import INTERVALS, STEPS, Timeline

DEVICES, STEPS_TRACED, LAYERS = 8, 3, 4
HOSTILE = '<script>alert("x")</script>|[red]\x01é "q" \\b'
"""A scope name that breaks pages, tables and terminals where it is not escaped (case E18)."""
NOT_RUN = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "partition-id"}
MICROSECOND = 1_000_000


@dataclass(frozen=True)
class Compiled:
    program: Program
    hlo_text: str


@pytest.fixture(scope="session")
def compiled() -> Compiled:
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(np.array(jax.devices()[:DEVICES]).reshape(2, 4), ("data", "tensor"))

    def loss(weights: jax.Array, x: jax.Array) -> jax.Array:
        with jax.named_scope(HOSTILE):
            y, _ = jax.lax.scan(lambda carry, w: (jnp.tanh(carry @ w), None), x, weights)
        return jnp.sum(y * y)

    def step(weights: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(weights, x)
        return weights - 0.1 * gradient, value

    weights = jax.ShapeDtypeStruct(
        (LAYERS, 128, 128), jnp.float32, sharding=NamedSharding(mesh, P(None, None, "tensor"))
    )
    x = jax.ShapeDtypeStruct((32, 128), jnp.float32, sharding=NamedSharding(mesh, P("data", None)))
    executable = jax.jit(step, donate_argnums=0).lower(weights, x).compile()
    runtime: Any = executable.runtime_executable()
    module = runtime.hlo_modules()[0]
    stats = runtime.get_compiled_memory_stats()
    program = Program(
        name="jit_step",
        hlo_module=module.as_serialized_hlo_module_proto(),
        num_devices=DEVICES,
        mesh=MeshAxes(("data", "tensor"), (2, 4)),
        platform="cpu",
        device_kind="cpu",
        buffer_assignment=stats.serialized_buffer_assignment_proto,
        memory=MemoryStats(
            argument_bytes=stats.argument_size_in_bytes,
            output_bytes=stats.output_size_in_bytes,
            alias_bytes=stats.alias_size_in_bytes,
            temp_bytes=stats.temp_size_in_bytes,
        ),
        xla_cost={"flops": 1.0e6, "bytes accessed": 2.0e6},
        compile_s=0.4,
    )
    return Compiled(program, module.to_string())


@pytest.fixture(scope="session")
def timeline(compiled: Compiled) -> Timeline:
    intervals: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    for device in range(DEVICES):
        clock = 5 * MICROSECOND + device * 700_000
        for step in range(STEPS_TRACED):
            start = clock
            for op, opcode, occurrence, duration in _executed(compiled.program):
                wait = 400_000 if opcode.startswith(("all-", "reduce-scatter")) else 0
                duration += device * 10_000
                intervals.append(
                    {"device": device, "step": step, "program": "jit_step", "op": op, "start_ps": clock,
                     "end_ps": clock + duration, "wait_ps": wait, "stream": "ops", "occurrence": occurrence}
                )  # fmt: skip
                clock += duration + 30_000  # nobody's time, inside the loop too
            busy_end = clock - 30_000
            clock = busy_end + 2 * MICROSECOND
            end = busy_end if step == STEPS_TRACED - 1 else clock
            steps.append({"device": device, "step": step, "start_ps": start, "end_ps": end, "busy_end_ps": busy_end})
    schema = {**INTERVALS, "occurrence": pl.Int32()}
    return Timeline(
        evidence="measured",
        intervals=pl.DataFrame(intervals, schema=schema).sort("device", "start_ps"),
        steps=pl.DataFrame(steps, schema=STEPS),
    )


def _executed(program: Program) -> Iterator[tuple[str, str, int, int]]:
    """(op, opcode, occurrence, duration_ps) in order; a loop's own time has two rows, before and after its body."""
    module = HloModuleProto.FromString(program.hlo_module)
    computations = {computation.id: computation for computation in module.computations}
    entry = computations[module.entry_computation_id]

    def ordered(computation: Any) -> list[Any]:
        by_id = {instruction.id: instruction for instruction in computation.instructions}
        return [by_id[number] for number in module.schedule.sequences[computation.id].instruction_ids]

    def run(computation: Any, occurrence: int) -> Iterator[tuple[str, str, int, int]]:
        for instruction in ordered(computation):
            if instruction.opcode in NOT_RUN:
                continue
            yield instruction.name, instruction.opcode, occurrence, 1_500_000
            if instruction.opcode == "while":
                body = computations[instruction.called_computation_ids[0]]
                for iteration in range(LAYERS):
                    yield from run(body, iteration)
                yield instruction.name, instruction.opcode, occurrence, 250_000

    yield from run(entry, 0)


@pytest.fixture(scope="session")
def ops(compiled: Compiled, timeline: Timeline) -> pl.DataFrame:
    """An op table with its times and executions taken from the timeline."""
    module = HloModuleProto.FromString(compiled.program.hlo_module)
    instructions = {i.name: i for computation in module.computations for i in computation.instructions}
    spent = timeline.intervals.with_columns(self_s=(pl.col("end_ps") - pl.col("start_ps")) / 1e12)
    rows = []
    for (op,), group in spent.group_by("op", maintain_order=True):
        instruction = instructions[str(op)]
        executions = group.select("device", "step", "occurrence").n_unique() / (DEVICES * STEPS_TRACED)
        per_device = group.group_by("device").agg(pl.col("self_s").sum() / STEPS_TRACED)["self_s"]
        collective = instruction.opcode if instruction.opcode.startswith("all-") else None
        matmul = instruction.opcode == "dot" or "dot" in instruction.name
        row = dict.fromkeys(OP_TABLE)
        row |= {
            "program": "jit_step", "op": op, "opcode": instruction.opcode,
            "category": "collective" if collective else "matmul" if matmul else "elementwise",
            "scope": instruction.metadata.op_name, "part": "mlp" if matmul else "other", "phase": "forward",
            "source": "model.py:12", "executions": executions, "compiled_executions": round(executions),
            "flops": 131072 * round(executions) if matmul else 0, "flops_dtype": "f32" if matmul else None,
            "other_flops": 0 if matmul else 512 * round(executions), "hbm_bytes_read": 8192 * round(executions),
            "hbm_bytes_written": 2048 * round(executions), "collective": collective,
            "payload_bytes": 65536 if collective else None, "wire_bytes": 98304 if collective else None,
            "group_size": 4 if collective else None, "mesh_axes": "tensor" if collective else None,
            "link": "shared memory" if collective else None, "measured_time": per_device.mean(),
            "measured_time_max": per_device.max(), "exposed_time": 1e-6 if collective else None,
            "wait_time": 4e-7 if collective else None, "bound": "collective" if collective else "hbm",
            "roofline_fraction": 0.25,
        }  # fmt: skip
        rows.append(row)
    rows[0] |= {"flops": None, "unknown": "no cost is known for custom call 'x'", "roofline_fraction": None}
    return pl.DataFrame(rows, schema=OP_TABLE).sort("measured_time", descending=True)


@pytest.fixture(scope="session")
def summary(timeline: Timeline) -> dict[str, Any]:
    """Every key of run.json; several figures unknown."""
    wall = float(timeline.steps.select((pl.col("end_ps") - pl.col("start_ps")).mean()).item()) / 1e12
    parts = {"compute": 0.40, "hbm": 0.22, "transfer": 0.10, "wait": 0.13, "host": 0.05, "idle": 0.10}
    return {
        "schema": 1, "name": "toy [bold]run", "evidence": "measured", "step": "train",
        "model": {"name": "toy", "parameters": 65536, "active_parameters": 65536},
        "target": {"name": "cpu-mesh:8", "device": "cpu", "devices": 8, "peak_flops_per_s": 4.0e10,
                   "hbm_bytes_per_s": 2.5e9, "hbm_bytes": None},
        "mesh": {"data": 2, "tensor": 4}, "global_batch": 32, "seq_len": 1, "steps_measured": STEPS_TRACED,
        "step_time_s": wall, "step_time_bounds_s": [wall * 0.6, wall * 1.2], "tokens_per_s_per_device": 4.0 / wall,
        "error_bar": None,
        "flops": {"model_causal": 25165824, "model_full": 25165824, "compiled": 25165824, "executed": None,
                  "other": 20480, "unknown_kernels": ["x"]},
        "mfu": 0.12, "hfu": None, "mfu_convention": "causal",
        "hbm_bytes": {"read": 163840, "written": 40960},
        "verdict": "Compute takes 40 % of the step. This is a simulated mesh.",
        "breakdown_s": {part: share * wall for part, share in parts.items()},
        "breakdown_by_device_s": [
            {"device": device, **{part: share * wall for part, share in parts.items()}} for device in range(DEVICES)
        ],
        "overlapped_collective_s": 0.0, "unexplained_s": 0.0,
        "waterfall_s": [{"cause": "ideal", "seconds": 0.12 * wall}, {"cause": "recompute", "seconds": 0.0},
                        {"cause": "kernels below their roofline", "seconds": 0.50 * wall},
                        {"cause": "exposed transfer", "seconds": 0.10 * wall},
                        {"cause": "wait", "seconds": 0.13 * wall},
                        {"cause": "host", "seconds": 0.05 * wall}, {"cause": "idle", "seconds": 0.10 * wall}],
        "collectives": [{"op": "all-reduce.1", "mesh_axes": ["tensor"], "link": "shared memory", "executions": 4,
                         "payload_bytes": 65536, "wire_bytes": 98304, "time_s": 5e-6, "exposed_s": 5e-6,
                         "wait_s": 2e-6},
                        {"op": "all-gather.2", "mesh_axes": ["data", "tensor"], "link": None, "executions": 1,
                         "payload_bytes": 32768, "wire_bytes": None, "time_s": None, "exposed_s": None,
                         "wait_s": None}],
        "memory": {"peak_bytes": 192660, "capacity_bytes": None, "fits": None,
                   "by_owner": {"parameters": 65536, "batch": 8192, "temporaries": 118932}, "remedies": []},
        "environment": {"jaxprof": "0.1.0", "jax": "0.12.0.1", "jaxlib": "0.12.0.1", "compiler": None,
                        "python": "3.12.1", "flags": "", "git": None},
        "provenance": {"step_time_s": "measured", "tokens_per_s_per_device": "measured", "mfu": "measured",
                       "target": "measured", "flops": "compiled", "flops.model_causal": "formula",
                       "flops.model_full": "formula", "flops.executed": "measured", "breakdown_s": "measured",
                       "waterfall_s": "measured", "memory": "compiled", "hbm_bytes": "compiled"},
        "xla": [{"figure": "cost_analysis flops", "unit": "FLOP", "xla": 1.0e6, "ours": 3145728,
                 "reason": "XLA counts a loop's body once"},
                {"figure": "peak memory", "unit": "bytes", "xla": None, "ours": 192660, "reason": None}],
        "warnings": [f"scope {HOSTILE} is odd"],
    }  # fmt: skip


@pytest.fixture(scope="session")
def analysis(ops: pl.DataFrame, summary: dict[str, Any], timeline: Timeline) -> Analysis:
    wall = (pl.col("end_ps") - pl.col("start_ps")) / 1e12
    shares = {f"{part}_s": seconds / summary["step_time_s"] for part, seconds in summary["breakdown_s"].items()}
    breakdown = timeline.steps.select(
        "device", "step", wall_s=wall, **{part: wall * share for part, share in shares.items()},
        overlapped_collective_s=pl.lit(0.0), unexplained_s=pl.lit(0.0),
    )  # fmt: skip
    return Analysis(summary=summary, ops=ops, breakdown=breakdown, warnings=tuple(summary["warnings"]))


@pytest.fixture(scope="session")
def report(analysis: Analysis, compiled: Compiled, timeline: Timeline) -> Report:
    return Report(
        analysis=analysis,
        program=compiled.program,
        timeline=timeline,
        config={"name": "toy", "step": {"kind": "train"}},
        trace=b"original trace",
        hlo_text=compiled.hlo_text,
    )
