"""Builds the report's sections from run.json's object and the op table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from jaxprof.report.conventions import PARTS, conventions
from jaxprof.report.text import UNKNOWN, count, percent, seconds, size
from jaxprof.report.view import Bar, Cell, Column, Figure, Section, View

Summary = Mapping[str, Any]

_CAUSES = ("ideal", "hbm", "transfer", "wait", "host", "idle")
"""Words of a waterfall's causes that choose a bar's colour; any other cause is a loss."""
_OWNERS = 11
"""Owners of memory that are named; the rest are one row."""


def make_view(summary: Summary, ops: pl.DataFrame, *, top: int = 12) -> View:
    """The report of run.json's object ``summary`` and an op table; ``top`` ops are listed by name."""
    sections = (
        breakdown_section(summary),
        waterfall_section(summary),
        parts_section(ops, summary),
        ops_section(ops, summary, top),
        collectives_section(ops, summary),
        memory_section(summary),
        flops_section(summary),
        xla_section(summary),
    )
    environment = summary["environment"] or {}
    return View(
        title=" · ".join(word for word in (summary["name"], summary["step"], summary["evidence"]) if word),
        verdict=summary["verdict"],
        facts=_facts(summary),
        sections=tuple(section for section in sections if section.rows or section.notes),
        warnings=tuple(summary["warnings"]),
        environment=", ".join(f"{key} {value}" for key, value in environment.items() if value),
    )


def provenance(summary: Summary, key: str) -> str | None:
    """How the figure at ``key`` of run.json (``flops.compiled``) is known, or what its parent says."""
    known = summary["provenance"]
    return known.get(key) or known.get(key.split(".")[0])


def _figure(summary: Summary, key: str, text: str) -> Figure:
    """``text`` with how it is known, which what is unknown is not."""
    return Figure(text, None if text == UNKNOWN else provenance(summary, key))


def _facts(summary: Summary) -> tuple[tuple[str, tuple[Cell, ...]], ...]:
    target, model = summary["target"], summary["model"]
    mesh = " × ".join(f"{axis} {extent}" for axis, extent in (summary["mesh"] or {}).items()) or "none"
    facts: list[tuple[str, tuple[Cell, ...]]] = [
        ("step time", (_figure(summary, "step_time_s", seconds(summary["step_time_s"])), _overlap(summary))),
        (
            "use",
            (
                f"MFU ({summary['mfu_convention'] or 'no model'} attention)",
                _figure(summary, "mfu", percent(summary["mfu"])),
                "· HFU",
                _figure(summary, "hfu", percent(summary["hfu"])),
                "·",
                _figure(summary, "tokens_per_s_per_device", count(summary["tokens_per_s_per_device"])),
                "tokens/s a device",
            ),
        ),
        ("target", (f"{target['name']}: {target['devices']} devices, mesh {mesh}",)),
        (
            "peaks",
            (
                _figure(summary, "target.peak_flops_per_s", count(target["peak_flops_per_s"], "FLOP/s")),
                "·",
                _figure(summary, "target.hbm_bytes_per_s", _rate(target["hbm_bytes_per_s"])),
                "· memory",
                _figure(summary, "target.hbm_bytes", size(target["hbm_bytes"])),
                "a device",
            ),
        ),
    ]
    if model and model.get("parameters") is not None:
        sizes = f"{count(model['parameters'])} parameters, {count(model['active_parameters'])} active"
        batch = f"batch {_known(summary['global_batch'])}, sequence {_known(summary['seq_len'])}"
        facts.append(("model", (f"{model['name']}: {sizes}; {batch}",)))
    if (summary.get("timing") or {}).get("tracing_overhead") is not None:
        facts.append(("timing", _timing(summary)))
    facts.append(("reading", (conventions(),)))
    return tuple(facts)


def _timing(summary: Summary) -> tuple[Cell, ...]:
    """What stands beside the step time: compilation, the first call, and what tracing costs."""
    timing, compiled = summary["timing"], summary["compile"]
    cached = " (from JAX's cache)" if compiled["cached"] else ""
    return (
        f"compiled in {seconds(compiled['seconds'])}{cached}, first call {seconds(timing['first_call_s'])};",
        "traced steps took",
        _figure(summary, "step_time_s", f"{1 + timing['tracing_overhead']:.3f}"),
        "× the untraced ones",
    )


def _known(value: Any) -> str:
    return UNKNOWN if value is None else str(value)


def _rate(bytes_per_s: float | None) -> str:
    return UNKNOWN if bytes_per_s is None else f"{size(bytes_per_s)}/s"


def _overlap(summary: Summary) -> str:
    """The two bounds of a step and where its time stands between them."""
    low, high = summary["step_time_bounds_s"] or (None, None)
    text = f"(bounds: {seconds(low)} where all parts overlap, {seconds(high)} where none do"
    step = summary["step_time_s"]
    if low is None or high is None or step is None:
        return text + ")"
    if step > high:
        return text + f"; the step takes {step / high:.1f} × the latter)"
    return text + (f"; {percent((high - step) / (high - low))} of what can overlap does)" if high > low else ")")


def breakdown_section(summary: Summary) -> Section:
    """Where the step's wall time goes, with the spread over devices (means over steps)."""
    parts, step = summary["breakdown_s"] or {}, summary["step_time_s"]
    if any(parts.get(key) is None for key, _, _ in PARTS):
        return Section(title="Where a step's time goes")
    total = sum(parts[key] for key, _, _ in PARTS)
    devices = pl.DataFrame(summary["breakdown_by_device_s"])
    rows = []
    for key, name, meaning in PARTS:
        column = devices[key]
        spread = f"{_seconds(column.min())} – {_seconds(column.max())}" if column.len() > 1 else ""
        rows.append(
            (
                name,
                _figure(summary, "breakdown_s", seconds(parts[key])),
                percent(parts[key] / total if total else None),
                Bar(parts[key] / total if total else 0.0, key),
                spread,
                meaning,
            )
        )
    notes = [f"beside these, collectives overlapped with compute: {seconds(summary['overlapped_collective_s'])}"]
    if summary["unexplained_s"]:
        share = percent(summary["unexplained_s"] / step if step else None)
        notes.append(f"the parts leave {seconds(summary['unexplained_s'])} ({share}) of the wall time unexplained")
    columns = (
        Column("part"), Column("time", "right"), Column("share", "right"), Column(""),
        Column("over devices", "right"), Column("meaning", wide=True),
    )  # fmt: skip
    return Section(title="Where a step's time goes", columns=columns, rows=tuple(rows), notes=tuple(notes))


def _seconds(value: Any) -> str:
    return seconds(None if value is None else float(value))


def waterfall_section(summary: Summary) -> Section:
    """From the model's FLOPs at peak to the step time, one bar a cause."""
    bars = summary["waterfall_s"] or []
    if not bars or any(bar["seconds"] is None for bar in bars):
        return Section(title="From ideal to actual")
    total = sum(bar["seconds"] for bar in bars)
    rows: list[tuple[Cell, ...]] = []
    reached = 0.0
    for bar in bars:
        kind = next((word for word in _CAUSES if word in bar["cause"].lower()), "loss")
        share = bar["seconds"] / total if total else 0.0
        drawn = Bar(abs(share), kind, start=min(reached, reached + share))
        rows.append((bar["cause"], _figure(summary, "waterfall_s", seconds(bar["seconds"])), percent(share), drawn))
        reached += share
    rows.append(("step time", _figure(summary, "waterfall_s", seconds(total)), percent(1.0), Bar(1.0, "total")))
    columns = (Column("cause"), Column("time", "right"), Column("share", "right"), Column(""))
    return Section(title="From the model's FLOPs at peak to the step time", columns=columns, rows=tuple(rows))


def time_column(ops: pl.DataFrame) -> tuple[str, str, pl.Expr]:
    """Title, column (by whose provenance it goes) and expression (seconds) of the best evidence of time in ``ops``."""
    for name in ("measured_time", "predicted_time"):
        if ops[name].is_not_null().any():
            return "time", name, pl.col(name)
    return "at least", "compute_time", pl.max_horizontal("compute_time", "hbm_time", "link_time")


def parts_section(ops: pl.DataFrame, summary: Summary) -> Section:
    """Time and work by part of the model and phase of the step."""
    title, timed_by, time = time_column(ops)
    parts = (
        ops.with_columns(time=time)
        .group_by("part", "phase")
        .agg(
            pl.col("time", "flops", "hbm_bytes_read", "hbm_bytes_written").sum(),
            timed=pl.col("time").is_not_null().any(),
            unknown=pl.col("unknown").is_not_null().sum(),
        )
        .sort("time", "part", "phase", descending=[True, False, False])
    )
    total = parts["time"].sum()
    rows = tuple(
        (
            row["part"] or "other",
            row["phase"] or "",
            _figure(summary, f"ops.{timed_by}", seconds(row["time"] if row["timed"] else None)),
            percent(row["time"] / total if total else None),
            Bar(row["time"] / total if total else 0.0, "part"),
            _figure(summary, "ops.flops", count(row["flops"], "FLOP") + (" + unknown" if row["unknown"] else "")),
            _figure(summary, "ops.hbm_bytes_read", size(row["hbm_bytes_read"] + row["hbm_bytes_written"])),
        )
        for row in parts.head(14).iter_rows(named=True)
    )
    columns = (
        Column("part"), Column("phase"), Column(title, "right"), Column("share", "right"), Column(""),
        Column("matmul work", "right"), Column("HBM traffic", "right", wide=True),
    )  # fmt: skip
    left = parts.height - len(rows)
    notes = (f"{left} smaller parts are left out",) if left else ()
    return Section(title="By part of the model", columns=columns, rows=rows, notes=notes)


def ops_section(ops: pl.DataFrame, summary: Summary, top: int) -> Section:
    """The ops that take longest."""
    title, timed_by, time = time_column(ops)
    ordered = ops.with_columns(time=time).sort("time", descending=True, nulls_last=True)
    total = ordered["time"].sum()
    rows = tuple(
        (
            row["op"],
            _figure(summary, f"ops.{timed_by}", seconds(row["time"])),
            percent(row["time"] / total if total and row["time"] is not None else None),
            count(row["executions"]),
            row["bound"] or "unknown",
            percent(row["roofline_fraction"]),
            row["part"] or "",
            _source(row["source"]),
        )
        for row in ordered.head(top).iter_rows(named=True)
    )
    columns = (
        Column("op", name=True), Column(title, "right"), Column("share", "right"), Column("runs", "right"),
        Column("bound"), Column("of roofline", "right"), Column("part", wide=True),
        Column("source", wide=True, name=True),
    )  # fmt: skip
    listed = f"{len(rows)} of {ordered.height} ops; times are self times per step"
    return Section(title="Longest ops", columns=columns, rows=rows, notes=(listed,) if rows else ())


def _source(place: str | None) -> str:
    """``file:line``, from the current folder where the file lies in it."""
    if not place:
        return ""
    try:
        return str(Path(place).relative_to(Path.cwd()))
    except ValueError:
        return place


def collectives_section(ops: pl.DataFrame, summary: Summary) -> Section:
    """Collective traffic by kind and mesh axis, per device and step."""
    _, timed_by, time = time_column(ops)
    sums = ("executions", "payload_bytes", "wire_bytes", "time", "exposed_time", "wait_time")
    groups = (
        ops.filter(pl.col("collective").is_not_null())
        .with_columns(time=time)
        .group_by("collective", "mesh_axes", "group_size")
        .agg(*(pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name) for name in sums))
        .sort("time", "wire_bytes", descending=True, nulls_last=True)
    )
    rows = tuple(
        (
            row["collective"],
            (row["mesh_axes"] or "unknown").replace(",", ", "),
            count(row["group_size"]),
            _figure(summary, "ops.executions", count(row["executions"])),
            _figure(summary, "ops.payload_bytes", size(row["payload_bytes"])),
            _figure(summary, "ops.wire_bytes", size(row["wire_bytes"])),
            _figure(summary, f"ops.{timed_by}", seconds(row["time"])),
            _figure(summary, "ops.exposed_time", seconds(row["exposed_time"])),
            _figure(summary, "ops.wait_time", seconds(row["wait_time"])),
        )
        for row in groups.iter_rows(named=True)
    )
    columns = (
        Column("collective"), Column("mesh axes"), Column("n", "right"), Column("runs", "right"),
        Column("payload", "right", wide=True), Column("sent", "right"), Column("time", "right"),
        Column("exposed", "right"), Column("wait", "right"),
    )  # fmt: skip
    return Section(title="Collectives by mesh axis", columns=columns, rows=rows)


def memory_section(summary: Summary) -> Section:
    """Bytes alive at the peak, by owner."""
    memory = summary["memory"] or {}
    by_size = sorted(
        ((owner, held) for owner, held in (memory.get("by_owner") or {}).items() if held), key=lambda x: -x[1]
    )
    owners, small = by_size[:_OWNERS], by_size[_OWNERS:]
    if small:
        owners.append((f"{len(small)} smaller ones", sum(held for _, held in small)))
    peak, capacity = memory.get("peak_bytes"), memory.get("capacity_bytes")
    rows = tuple(
        (
            owner,
            _figure(summary, "memory", size(held)),
            percent(held / peak if peak else None),
            Bar(held / peak if peak else 0.0, "part"),
        )
        for owner, held in owners
    )
    fits = {True: "it fits", False: "it does not fit", None: "whether it fits is unknown"}[memory.get("fits")]
    notes = [f"peak {size(peak)} of {size(capacity)} a device: {fits}"] if peak is not None else []
    notes += [f"would help: {remedy}" for remedy in memory.get("remedies") or ()]
    columns = (Column("owner"), Column("bytes", "right"), Column("share", "right"), Column(""))
    return Section(title="Memory at the peak, by owner", columns=columns, rows=rows, notes=tuple(notes))


def flops_section(summary: Summary) -> Section:
    """Model, compiled and executed FLOPs, with each difference named."""
    flops = summary["flops"]
    names = {
        "model_causal": "model, causal",
        "model_full": "model, full",
        "compiled": "compiled",
        "executed": "executed",
    }
    base = flops["model_causal"]
    rows = tuple(
        (
            name,
            _figure(summary, f"flops.{key}", count(flops[key], "FLOP")),
            f"{flops[key] / base:.3f} × model" if base and flops[key] is not None else UNKNOWN,
        )
        for key, name in names.items()
    )
    notes = [f"elementwise and reductions, counted apart: {count(flops['other'], 'FLOP')}"]
    notes += flops.get("differences") or ()
    if flops["unknown_kernels"]:
        notes.append("of unknown cost, and in none of these: " + ", ".join(map(str, flops["unknown_kernels"])))
    columns = (Column("FLOPs a step, all devices"), Column("count", "right"), Column("against the model's", "right"))
    return Section(title="Reconciliation of FLOPs", columns=columns, rows=rows, notes=tuple(notes))


def xla_section(summary: Summary) -> Section:
    """What XLA itself says, beside ours, and why they differ."""
    figures: Sequence[Mapping[str, Any]] = summary["xla"] or ()
    show = {"FLOP": lambda value: count(value, "FLOP"), "bytes": size}
    return Section(
        title="XLA's own figures beside ours, per device",
        columns=(Column("figure"), Column("XLA", "right"), Column("ours", "right")),
        rows=tuple((row["figure"], show[row["unit"]](row["xla"]), show[row["unit"]](row["ours"])) for row in figures),
        notes=tuple(f"{row['figure']}: {row['reason']}" for row in figures if row["reason"]),
    )
