"""What an analysis found, ready to be shown, saved and asked for its figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console

from jaxprof.attribution.analysis import Analysis
from jaxprof.hlo.program import Program
from jaxprof.report.directory import reserve_run
from jaxprof.report.html import write_html
from jaxprof.report.terminal import render
from jaxprof.trace.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An analysis with the program and the timeline behind it.

    ``timeline`` is None where nothing was run or predicted; ``trace`` holds the profiler's own XSpace, ``hlo_text`` the
    module as its compiler prints it.
    """

    analysis: Analysis
    program: Program
    timeline: Timeline | None = None
    config: dict[str, Any] | None = None
    trace: bytes | None = None
    hlo_text: str | None = None

    @property
    def summary(self) -> dict[str, Any]:
        """run.json's object."""
        return self.analysis.summary

    @property
    def ops(self) -> pl.DataFrame:
        """The op table."""
        return self.analysis.ops

    @property
    def warnings(self) -> list[str]:
        """What a reader of the figures has to know, a line each."""
        return list(self.analysis.warnings)

    def show(self, console: Console | None = None) -> None:
        """Print the report."""
        render(self.summary, self.ops, console=console or Console())

    def html(self) -> str:
        """The report as one HTML page that needs nothing else."""
        return write_html(self.summary, self.ops, self.timeline)

    def save(self, directory: str | Path) -> Path:
        """Write a run directory and return where it lies: ``directory``, or a numbered sibling where that is taken."""
        return reserve_run(directory).save(self)
