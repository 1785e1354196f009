"""The report in a terminal: read in a minute, at 80 columns or 120, with colour or without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jaxprof.report.sections import make_view
from jaxprof.report.text import printable, shortened
from jaxprof.report.view import MARKS, Bar, Cell, Column, Figure, Section

_COLOURS = {
    "ideal": "green", "compute": "green", "hbm": "blue", "transfer": "magenta", "wait": "red", "host": "yellow",
    "idle": "bright_black", "loss": "cyan", "part": "blue", "total": "default",
}  # fmt: skip
_WIDE = 116
"""Columns from which the wider tables are drawn."""
_PLAIN = str.maketrans({"█": "#", "▌": "#", "·": "~", "µ": "u", "×": "x", "–": "-", "…": ".."})


def render(summary: Mapping[str, Any], ops: pl.DataFrame, *, console: Console) -> None:
    """Print the report of run.json's object ``summary`` and its op table."""
    console.print(_Drawing(console).report(summary, ops))


class _Drawing:
    """How one console takes the report: its width and its characters."""

    def __init__(self, console: Console) -> None:
        self._wide = console.width >= _WIDE
        self._ascii = console.options.ascii_only
        self._bar_width = 30 if self._wide else 16
        self._name_width = 36 if self._wide else 28

    def report(self, summary: Mapping[str, Any], ops: pl.DataFrame) -> RenderableType:
        view = make_view(summary, ops)
        parts: list[RenderableType] = [
            self._text(view.verdict, "bold"),
            self._text(view.title, "dim"),
            self._facts(view.facts),
        ]
        for section in view.sections:
            parts += ["", self._section(section)]
        if view.warnings:
            parts += ["", self._text(f"Warnings ({len(view.warnings)})", "bold yellow")]
            parts += [self._hanging(warning) for warning in view.warnings]
        legend = "  ".join(f"{letter} {name}" for name, letter in MARKS.items())
        parts += ["", self._text(f"Behind a figure: {legend}", "dim"), self._text(view.environment, "dim")]
        return Group(*parts)

    def _text(self, text: str, style: str = "", justify: Any = None) -> Text:
        """Text as it stands: nothing in it is markup, an escape sequence or a character the console lacks."""
        shown = printable(text)
        if self._ascii:
            shown = shown.translate(_PLAIN).encode("ascii", "backslashreplace").decode("ascii")
        return Text(shown, style=style, justify=justify)

    def _hanging(self, text: str) -> RenderableType:
        grid = Table.grid(padding=(0, 1))
        grid.add_row("-", self._text(text))
        return Padding(grid, (0, 0, 0, 2))

    def _facts(self, facts: Iterable[tuple[str, tuple[Cell, ...]]]) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        for label, words in facts:
            line = Text(" ").join(self._cell(word) for word in words)
            grid.add_row(self._text(label, "dim"), line)
        return grid

    def _section(self, section: Section) -> RenderableType:
        parts: list[RenderableType] = [self._text(section.title, "bold")]
        if section.rows:
            shown = [i for i, column in enumerate(section.columns) if self._wide or not column.wide]
            table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
            for i in shown:
                table.add_column(self._text(section.columns[i].title), **self._column(section.columns[i], section, i))
            for row in section.rows:
                table.add_row(*(self._cell(row[i], section.columns[i]) for i in shown))
            parts.append(Padding(table, (0, 0, 0, 2)))
        parts += [Padding(self._text(note, "dim"), (0, 0, 0, 2)) for note in section.notes]
        return Group(*parts)

    def _column(self, column: Column, section: Section, i: int) -> dict[str, Any]:
        prose = column.align == "left" and not column.name and i == len(section.columns) - 1
        return {"justify": column.align, "no_wrap": not prose, "overflow": "fold" if prose else "ellipsis"}

    def _cell(self, cell: Cell, column: Column | None = None) -> Text:
        if isinstance(cell, Bar):
            return self._bar(cell)
        figure = cell if isinstance(cell, Figure) else Figure(cell)
        named = column is not None and column.name
        text = self._text(shortened(figure.text, self._name_width) if named else figure.text)
        if figure.provenance is not None:
            text.append_text(self._text(f"·{MARKS[figure.provenance]}", "dim"))
        return text

    def _bar(self, bar: Bar) -> Text:
        first = round(bar.start * self._bar_width)
        length = round((bar.start + bar.length) * self._bar_width) - first
        if bar.length > 0 and not length:
            mark = "|" if self._ascii else "▏"
            return Text(" " * min(first, self._bar_width - 1)).append(mark, _COLOURS[bar.kind])
        return Text(" " * first).append(self._text("█" * length).plain, _COLOURS[bar.kind])
