"""One step of a timeline as inline SVG: a lane per device, a rectangle per op, coloured by what bounds it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import polars as pl

from jaxprof.report.text import printable, seconds
from jaxprof.trace.timeline import Timeline

LANES = 16
"""Devices drawn."""
_WIDTH, _LANE, _GAP, _LEFT, _AXIS = 1100, 18, 5, 60, 18
_NARROWEST = 0.4
"""Rectangles narrower than this many pixels are joined with their neighbours of the same kind."""
_KINDS = {"compute": "compute", "hbm": "hbm", "collective": "transfer", "host": "host"}


@dataclass(frozen=True, slots=True)
class Drawing:
    """The SVG, and what it leaves out."""

    svg: str
    note: str


def draw(timeline: Timeline, ops: pl.DataFrame) -> Drawing:
    """The step whose slowest device is nearest the median, on at most LANES devices."""
    step = _typical_step(timeline.steps)
    steps = timeline.steps.filter(pl.col("step") == step).sort("device")
    devices = steps["device"].to_list()
    drawn = devices[:LANES]
    origin, end = int(steps["start_ps"].min()), int(steps["end_ps"].max())  # type: ignore[arg-type]
    scale = (_WIDTH - _LEFT) / max(end - origin, 1)
    intervals = timeline.intervals.filter((pl.col("step") == step) & pl.col("device").is_in(drawn))
    layers = [
        _pieces(intervals.filter(beside), ops)
        for beside in (pl.col("stream") == "async", pl.col("stream") != "async")  # what runs beside is drawn beneath
    ]
    joined = pl.concat(_join(pieces, narrowest_ps=round(_NARROWEST / scale)) for pieces in layers)
    lane = {device: index for index, device in enumerate(drawn)}
    height = len(drawn) * (_LANE + _GAP) + _AXIS
    parts = [f'<svg class="timeline" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="timeline of one step">']
    for device, index in lane.items():
        y = index * (_LANE + _GAP)
        parts.append(f'<text x="0" y="{y + 13}">device {device}</text>')
        parts.append(f'<rect class="lane" x="{_LEFT}" y="{y}" width="{_WIDTH - _LEFT}" height="{_LANE}"/>')
    for device, kind, name, start, stop in joined.iter_rows():
        x, width = _LEFT + (start - origin) * scale, max((stop - start) * scale, _NARROWEST)
        label = escape(f"{printable(name)}: {seconds((stop - start) / 1e12)}")
        parts.append(
            f'<rect class="{kind}" x="{x:.2f}" y="{lane[device] * (_LANE + _GAP)}" width="{width:.2f}" '
            f'height="{_LANE}"><title>{label}</title></rect>'
        )
    for tick in range(6):
        x = _LEFT + (_WIDTH - _LEFT) * tick / 5
        anchor = "start" if tick == 0 else "end" if tick == 5 else "middle"
        label = seconds((end - origin) / 1e12 * tick / 5)
        parts.append(f'<text class="tick" x="{x:.0f}" y="{height - 4}" text-anchor="{anchor}">{label}</text>')
    parts.append("</svg>")
    total = timeline.steps["step"].n_unique()
    note = f"step {step} of {total} traced ones, the one of median length; {len(drawn)} of {len(devices)} devices"
    if joined.height < sum(pieces.height for pieces in layers):
        shortest = seconds(_NARROWEST / scale / 1e12)
        note += f"; intervals shorter than {shortest} are joined with neighbours of their kind"
    return Drawing("".join(parts), note)


def _typical_step(steps: pl.DataFrame) -> int:
    lengths = steps.group_by("step").agg(length=(pl.col("end_ps") - pl.col("start_ps")).max()).sort("length", "step")
    return int(lengths["step"][(lengths.height - 1) // 2])


def _pieces(intervals: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """(device, kind, name, start_ps, end_ps), a collective's wait apart from its transfer; sorted."""
    names = pl.concat_list("op", pl.col("trace_names").str.split(",").fill_null([]))
    bounds = ops.select("program", "bound", op=names).explode("op").unique(["program", "op"])
    known = intervals.join(bounds, on=["program", "op"], how="left")
    moved = known.select(
        "device",
        kind=pl.when(pl.col("stream") == "host")
        .then(pl.lit("host"))
        .otherwise(pl.col("bound").replace_strict(_KINDS, default="other")),
        name="op",
        start_ps=pl.col("start_ps") + pl.col("wait_ps").fill_null(0),
        end_ps="end_ps",
    )
    waits = known.filter(pl.col("wait_ps") > 0).select(
        "device",
        kind=pl.lit("wait"),
        name=pl.lit("wait for ") + pl.col("op"),
        start_ps="start_ps",
        end_ps=pl.col("start_ps") + pl.col("wait_ps"),
    )
    return pl.concat([moved, waits]).filter(pl.col("end_ps") > pl.col("start_ps")).sort("device", "start_ps")


def _join(pieces: pl.DataFrame, narrowest_ps: int) -> pl.DataFrame:
    """Runs of neighbours of one kind, each too narrow to see or closer than that to the next, become one piece."""
    length = pl.col("end_ps") - pl.col("start_ps")
    apart = (
        (pl.col("device") != pl.col("device").shift(1))
        | (pl.col("kind") != pl.col("kind").shift(1))
        | (pl.col("start_ps") - pl.col("end_ps").shift(1) > narrowest_ps)
        | ((length > narrowest_ps) | (length.shift(1) > narrowest_ps))
    ).fill_null(True)
    count = pl.len()
    return (
        pieces.with_columns(run=apart.cum_sum())
        .group_by("run", maintain_order=True)
        .agg(
            pl.col("device", "kind").first(),
            name=pl.when(count > 1).then(pl.format("{} ops", count)).otherwise(pl.col("name").first()),
            start_ps=pl.col("start_ps").min(),
            end_ps=pl.col("end_ps").max(),
        )
        .drop("run")
    )
