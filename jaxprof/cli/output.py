"""Results go to standard output, everything else to standard error."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print a JSON object, and nothing else, to standard output")


def positive(text: str) -> int:
    """argparse's type for a count."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"is {text!r}, but must be a whole number of 1 or more")
    return int(text)


def stopwatch() -> Callable[[str], None]:
    """Progress: prints a line for each stage with the seconds since the start.

    Plain lines, because a spinner's thread would take part in what is being measured.
    """
    start = time.monotonic()
    console = Console(stderr=True, highlight=False)

    def say(text: str) -> None:
        console.print(Text(f"{time.monotonic() - start:6.1f} s  {text}", style="dim"), soft_wrap=True)

    return say


def print_json(content: dict[str, Any]) -> None:
    from jaxprof.report.json import to_json

    sys.stdout.write(to_json(content))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Left-aligned columns, the last of which takes what is left of the line."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns[:-1]:
        table.add_column(column, no_wrap=True, overflow="fold")
    table.add_column(columns[-1])
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)
