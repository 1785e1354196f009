"""Small programs, costs and timelines written out by hand, so that every figure has a closed form."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import polars as pl
import pytest

from jaxprof.attribution.facts import ModelFacts, StepFacts
from jaxprof.hardware.device import DeviceSpec
from jaxprof.hlo.op_cost import Executions, ModuleCosts, OpCost
from jaxprof.hlo.program import MeshAxes, Program
from jaxprof.trace.timeline import INTERVALS, STEPS, Timeline


@pytest.fixture(scope="session")
def build() -> ModuleType:
    """The functions of this file."""
    return sys.modules[__name__]


MODULE = "jit_step"
US = 1_000_000
"""Picoseconds in a microsecond."""
SPEC = DeviceSpec(
    name="toy",
    peak_flops_per_s={"bf16": 1e12, "f32": 5e11},
    hbm_bytes_per_s=1e9,
    hbm_bytes=1e6,
    link_bytes_per_s={"ici": 1e8},
)
"""A microsecond is 1e6 bf16 FLOPs, 1,000 HBM bytes or 100 bytes on the link."""


def op(name: str, *, runs: int = 1, **fields: Any) -> OpCost:
    defaults: dict[str, Any] = {
        "computation": "main", "opcode": "fusion", "category": "elementwise",
        "executions": Executions(low=runs, high=runs),
    }  # fmt: skip
    return OpCost(op=name, **{**defaults, **fields})


def matmul(name: str, flops: int, *, dtype: str = "bf16", **fields: Any) -> OpCost:
    return op(name, **{"opcode": "dot", "category": "matmul", "flops": {dtype: flops}, **fields})


def all_reduce(name: str, wire_bytes: int, **fields: Any) -> OpCost:
    defaults: dict[str, Any] = {
        "opcode": "all-reduce", "category": "collective", "collective": "all-reduce", "payload_bytes": wire_bytes,
        "wire_bytes": wire_bytes, "group_size": 2, "groups": ((0, 1),), "mesh_axes": ("data",),
    }  # fmt: skip
    return op(name, **{**defaults, **fields})


def costs(*ops: OpCost) -> ModuleCosts:
    return ModuleCosts(module=MODULE, ops=ops)


def program(devices: int = 2, **fields: Any) -> Program:
    defaults: dict[str, Any] = {
        "name": MODULE, "hlo_module": b"", "num_devices": devices, "mesh": MeshAxes(("data",), (devices,)),
        "platform": "tpu", "device_kind": "toy",
    }  # fmt: skip
    return Program(**{**defaults, **fields})


def model(causal: int, full: int | None = None, **parts: int) -> ModelFacts:
    return ModelFacts(
        name="toy",
        parameters=10,
        active_parameters=10,
        non_embedding_parameters=8,
        flops_causal=causal,
        flops_full=causal if full is None else full,
        flops_parts=parts,
    )


def facts(model: ModelFacts | None = None, tokens: int | None = None) -> StepFacts:
    return StepFacts(name="toy", step="train" if model else "function", model=model, tokens_per_step=tokens)


Row = tuple[int, int, str, float, float] | tuple[int, int, str, float, float, dict[str, Any]]
"""device, step, op, start and end in microseconds; then other fields (wait in microseconds, stream, occurrence)."""


def timeline(
    rows: Iterable[Row], steps: Iterable[tuple[int, int, float, float, float]], evidence: str = "measured"
) -> Timeline:
    """``steps``: device, step, start, end, busy_end in microseconds."""
    intervals = []
    for device, step, name, start, end, *rest in rows:
        more = dict(rest[0]) if rest else {}
        intervals.append(
            {"device": device, "step": step, "program": MODULE, "op": name, "start_ps": round(start * US),
             "end_ps": round(end * US), "wait_ps": round(more.pop("wait", 0) * US), "stream": "ops", "occurrence": 0,
             **more}
        )  # fmt: skip
    columns = [
        {"device": d, "step": s, "start_ps": round(a * US), "end_ps": round(b * US), "busy_end_ps": round(busy * US)}
        for d, s, a, b, busy in steps
    ]
    return Timeline(
        evidence=evidence,  # type: ignore[arg-type]
        intervals=pl.DataFrame(intervals, schema={**INTERVALS, "occurrence": pl.Int32()}).sort("device", "start_ps"),
        steps=pl.DataFrame(columns, schema=STEPS).sort("device", "start_ps"),
    )
