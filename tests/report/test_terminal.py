"""The terminal report: everything is there, within the width, as plain characters."""

from __future__ import annotations

import io
import re
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from jaxprof.report.report import Report
from jaxprof.report.terminal import render


def shown(report: Report, width: int = 80, *, encoding: str = "utf-8", **options: Any) -> str:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding) as file:
        report.show(Console(file=file, width=width, **options))
        file.flush()
        return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_cut(report: Report, width: int) -> None:
    text = shown(report, width)
    assert max(map(len, text.splitlines())) <= width
    for heading in ("Where a step's time goes", "From the model's FLOPs", "By part of the model", "Longest ops",
                    "Collectives by mesh axis", "Memory at the peak", "Reconciliation of FLOPs",
                    "XLA's own figures"):  # fmt: skip
        assert heading in text
    rows = [line for line in text.splitlines() if re.match(r"  (compute|all-reduce|temporaries|executed) ", line)]
    assert len(rows) == 4 and all("…" not in row for row in rows)


def test_it_is_read_in_a_minute(report: Report) -> None:
    assert len(shown(report, 80).splitlines()) < 110


def test_the_verdict_comes_first(report: Report) -> None:
    assert shown(report).startswith("Compute takes 40 % of the step.")


def test_figures_carry_their_provenance_and_the_legend_explains_it(report: Report) -> None:
    text = shown(report, 120)
    assert re.search(r"model, causal +25\.2 MFLOP·f", text)
    assert re.search(r"compiled +25\.2 MFLOP·c", text)
    assert re.search(r"temporaries +116 KiB·c", text)
    assert "m measured" in text and "f formula" in text and "a assumed" in text


def test_unknown_is_said_and_is_never_zero(report: Report) -> None:
    text = shown(report, 120)
    assert re.search(r"executed +unknown +unknown", text)
    assert "HFU unknown" in text and "memory unknown" in text
    assert "None" not in text and "nan" not in text


@pytest.mark.parametrize("width", [80, 120])
def test_e18_names_are_text_not_markup_nor_escapes(report: Report, width: int) -> None:
    text = shown(report, width, force_terminal=True, color_system="truecolor")
    assert "toy [bold]run" in text
    assert '|[red]\\x01é "q" \\b' in text.replace("\n", "")
    assert "\x01" not in text


def test_a_terminal_without_colour_or_unicode_gets_the_same_words(report: Report) -> None:
    text = shown(report, 80, encoding="ascii")
    assert re.search(r"step time +1\d\d us~m", text)
    assert "\x1b" not in text
    assert re.search(r"compute .* ######", text)


def test_a_program_that_was_not_run_has_costs_and_no_times(report: Report, compiled: Any) -> None:
    times = ["measured_time", "measured_time_max", "exposed_time", "wait_time", "predicted_time"]
    ops = report.ops.with_columns(pl.lit(None, pl.Float64).alias(name) for name in times)
    summary = report.summary | {
        "evidence": None, "step_time_s": None, "step_time_bounds_s": [1e-4, 2e-4], "mfu": None, "steps_measured": None,
        "tokens_per_s_per_device": None, "breakdown_s": dict.fromkeys(report.summary["breakdown_s"]),
        "overlapped_collective_s": None, "unexplained_s": None, "waterfall_s": [], "breakdown_by_device_s": [],
        "verdict": "Nothing was run.",
    }  # fmt: skip
    file = io.StringIO()
    render(summary, ops, console=Console(file=file, width=100))
    text = file.getvalue()
    assert text.startswith("Nothing was run.")
    assert "Where a step's time goes" not in text
    assert "at least" in text
    assert re.search(r"step time +unknown", text)
