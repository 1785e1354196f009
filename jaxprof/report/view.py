"""What a report is made of: lines, tables and bars that the terminal and the HTML page both draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MARKS = {
    "measured": "m", "compiled": "c", "formula": "f", "assumed": "a", "published": "p", "predicted": "e",
}  # fmt: skip
"""How a figure is known, and the letter that stands behind it."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number as text, with how it is known (a key of MARKS)."""

    text: str
    provenance: str | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from ``start`` to ``start + length``, as fractions of the whole; ``kind`` chooses its colour."""

    length: float
    kind: str
    start: float = 0.0


Cell = str | Figure | Bar


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    align: Literal["left", "right"] = "left"
    wide: bool = False
    """Left out where a line has fewer than 100 characters."""
    name: bool = False
    """Holds long names, which are shortened to what a line can take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One titled part of the report."""

    title: str
    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything a report says, in the order in which it says it."""

    title: str
    verdict: str
    facts: tuple[tuple[str, tuple[Cell, ...]], ...]
    """Label and words of each line at the top."""
    sections: tuple[Section, ...]
    warnings: tuple[str, ...]
    environment: str
