"""The report as one HTML page that loads nothing: what the terminal shows, the whole op table, and a timeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import polars as pl

from jaxprof.report.page import SCRIPT, STYLE
from jaxprof.report.sections import make_view, time_column
from jaxprof.report.svg import draw
from jaxprof.report.text import UNKNOWN, count, percent, printable, seconds, size
from jaxprof.report.view import MARKS, Bar, Cell, Column, Figure, Section
from jaxprof.trace.timeline import Timeline

OP_ROWS = 1000
"""Ops in the sortable table, the longest first."""
_FULL_WIDTH = 7
"""Columns from which a table gets the page's whole width."""
_LEGEND = (
    ("compute", "compute"), ("hbm", "HBM traffic"), ("transfer", "transfer"), ("wait", "waiting"), ("host", "host"),
    ("other", "latency or unknown"),
)  # fmt: skip


def write_html(summary: Mapping[str, Any], ops: pl.DataFrame, timeline: Timeline | None = None) -> str:
    """The page of run.json's object ``summary``, its op table and, where there is one, its timeline."""
    view = make_view(summary, ops)
    body = [
        f'<header><p class="title">{_text(view.title)}</p><h1>{_text(view.verdict)}</h1></header>',
        "<dl>",
        *(f"<dt>{_text(label)}</dt><dd>{' '.join(_cell(word) for word in words)}</dd>" for label, words in view.facts),
        "</dl>",
        '<div class="grid">',
        *(_section(section) for section in view.sections),
        "</div>",
        _timeline(timeline, ops) if timeline is not None and not timeline.steps.is_empty() else "",
        _op_table(ops),
        _warnings(view.warnings),
        f"<footer><p>Behind a figure: {_legend(MARKS.items())}</p><p>{_text(view.environment)}</p></footer>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'\">"
        f"<title>{_text(view.title)} · jaxprof</title><style>{STYLE}</style></head>"
        f"<body>{''.join(body)}<script>{SCRIPT}</script></body></html>\n"
    )


def _text(text: str) -> str:
    return escape(printable(text))


def _legend(marks: Iterable[tuple[str, str]]) -> str:
    return " ".join(f'<span class="mark">{letter}</span>&nbsp;{name}' for name, letter in marks)


def _cell(cell: Cell) -> str:
    if isinstance(cell, Bar):
        place = f"margin-left:{100 * cell.start:.2f}%;width:{100 * cell.length:.2f}%"
        return f'<div class="bar"><i class="{cell.kind}" style="{place}"></i></div>'
    figure = cell if isinstance(cell, Figure) else Figure(cell)
    if figure.provenance is None:
        return _unknown(figure.text)
    mark = f'<span class="mark" title="{figure.provenance}">{MARKS[figure.provenance]}</span>'
    return _unknown(figure.text) + mark


def _unknown(text: str) -> str:
    return f'<span class="unknown">{UNKNOWN}</span>' if text == UNKNOWN else _text(text)


def _section(section: Section) -> str:
    """A panel of the grid; one with many columns takes its whole width, any other leaves out its wide columns."""
    full = len(section.columns) >= _FULL_WIDTH
    shown = [i for i, column in enumerate(section.columns) if full or not column.wide]
    hidden = [i for i, column in enumerate(section.columns) if i not in shown]
    parts = [f"<section{' class=full' if full else ''}><h2>{_text(section.title)}</h2>"]
    if section.rows:
        heads = (section.columns[i] for i in shown)
        parts.append('<div class="scroll"><table><thead><tr>')
        parts += [f"<th{_class(column)}>{_text(column.title)}</th>" for column in heads]
        parts.append("</tr></thead><tbody>")
        for row in section.rows:
            title = ", ".join(cell for cell in (row[i] for i in hidden) if isinstance(cell, str))
            cells = "".join(f"<td{_class(section.columns[i])}>{_cell(row[i])}</td>" for i in shown)
            parts.append(f"<tr{_title(title)}>{cells}</tr>")
        parts.append("</tbody></table></div>")
    parts += [f'<p class="note">{_text(note)}</p>' for note in section.notes]
    parts.append("</section>")
    return "".join(parts)


def _title(text: str | None) -> str:
    return f' title="{_text(text)}"' if text else ""


def _class(column: Column) -> str:
    words = [word for word, held in (("right", column.align == "right"), ("name", column.name)) if held]
    return f' class="{" ".join(words)}"' if words else ""


def _timeline(timeline: Timeline, ops: pl.DataFrame) -> str:
    drawing = draw(timeline, ops)
    keys = "".join(f'<span class="key"><i class="{kind}"></i>{name}</span>' for kind, name in _LEGEND)
    return (
        f'<section><h2>Timeline of one step</h2><p class="keys">{keys}</p><div class="scroll">{drawing.svg}</div>'
        f'<p class="note">{_text(drawing.note)}; hover over an interval for its name</p></section>'
    )


def _warnings(warnings: tuple[str, ...]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{_text(warning)}</li>" for warning in warnings)
    return f'<section class="warnings"><h2>Warnings ({len(warnings)})</h2><ul>{items}</ul></section>'


def _op_table(ops: pl.DataFrame) -> str:
    """Every op's figures; a click on a heading sorts by it. Cells carry the plain number to sort by."""
    title, _, time = time_column(ops)
    ordered = ops.with_columns(time=time).sort("time", descending=True, nulls_last=True)
    shown = ordered.head(OP_ROWS)
    columns = (
        ("op", "op", str), ("opcode", "opcode", str), ("part", "part", str), ("phase", "phase", str),
        (title, "time", seconds), ("runs", "executions", count), ("FLOPs", "flops", count),
        ("HBM read", "hbm_bytes_read", size), ("HBM written", "hbm_bytes_written", size), ("bound", "bound", str),
        ("of roofline", "roofline_fraction", percent), ("mesh axes", "mesh_axes", str), ("wait", "wait_time", seconds),
        ("scope", "scope", str), ("source", "source", str),
    )  # fmt: skip
    parts = [
        '<section><h2>Ops</h2><p class="keys"><label>Find <input id="find" type="search" '
        'placeholder="op, part, scope, source"></label></p><div class="scroll tall"><table id="ops"><thead><tr>'
    ]
    parts += [f"<th{'' if form is str else ' class=right'}><button>{name}</button></th>" for name, _, form in columns]
    parts.append("</tr></thead><tbody>")
    for row in shown.iter_rows(named=True):
        cells = []
        for _, key, form in columns:
            value = row[key]
            if form is str:
                cells.append(f'<td class="name">{_text(value or "")}</td>')
            elif value is None:
                reason = _title(row["unknown"]) if key == "flops" else ""
                waits = key != "wait_time" or row["collective"] is not None
                cells.append(f'<td class="right"{reason}>{_unknown(UNKNOWN) if waits else ""}</td>')
            else:
                cells.append(f'<td class="right" data-v="{value}">{_text(form(value))}</td>')
        parts.append(f"<tr>{''.join(cells)}</tr>")
    parts.append("</tbody></table></div>")
    note = f"{shown.height} of {ordered.height} ops; per step and device, self times"
    return "".join(parts) + f'<p class="note">{note}; click a heading to sort</p></section>'
