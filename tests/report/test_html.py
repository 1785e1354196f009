"""The HTML report stands alone, and shows names as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import polars as pl
import pytest

from jaxprof.report.report import Report
from jaxprof.report.svg import draw
from jaxprof.trace.timeline import Timeline


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "rect", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect",):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def page(report: Report) -> Page:
    return Page(report.html())


def test_every_tag_is_closed(page: Page) -> None:
    assert page.open == []


def test_it_loads_nothing(page: Page, report: Report) -> None:
    for tag, attributes in page.tags:
        assert not {"src", "href", "srcset", "data", "action"} & attributes.keys(), tag
    assert not re.search(r"https?://|url\(|@import|fetch\(|XMLHttp", report.html())


def test_e18_a_script_in_a_name_is_text(page: Page, report: Report) -> None:
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    assert '<script>alert("x")</script>|[red]\\x01é "q" \\b' in "".join(page.words)
    assert "\x01" not in report.html()


def test_the_op_table_has_every_op_and_sorts_by_plain_numbers(report: Report) -> None:
    table = report.html().split('<table id="ops">')[1].split("</table>")[0]
    assert table.count("<tr>") == report.ops.height + 1
    longest = report.ops["measured_time"].max()
    assert f'data-v="{longest}"' in table


def test_unknown_is_said(page: Page) -> None:
    assert "unknown" in page.words


def test_it_says_what_the_terminal_says(page: Page, report: Report) -> None:
    text = "".join(page.words)
    for words in ("From the model's FLOPs at peak", "all-reduce", "temporaries", "model, causal", "it fits is unknown"):
        assert words in text
    assert report.summary["warnings"][0][:5] in text


def test_the_timeline_has_a_lane_per_device_in_the_median_step(timeline: Timeline, ops: pl.DataFrame) -> None:
    drawing = draw(timeline, ops)
    assert drawing.svg.count('class="lane"') == 8
    assert (
        drawing.svg.count('class="wait"')
        == timeline.intervals.filter((pl.col("step") == 0) & (pl.col("wait_ps") > 0)).height
    )
    assert "8 of 8 devices" in drawing.note


def test_many_devices_and_narrow_ops_are_limited_and_said() -> None:
    devices, count = 20, 5000
    intervals = pl.DataFrame(
        {
            "device": [device for device in range(devices) for _ in range(count)],
            "step": 0,
            "program": "m",
            "op": "a",
            "start_ps": [index * 1000 for _ in range(devices) for index in range(count)],
            "end_ps": [index * 1000 + 900 for _ in range(devices) for index in range(count)],
            "wait_ps": 0,
            "stream": "ops",
            "occurrence": [index for _ in range(devices) for index in range(count)],
        }
    )
    steps = pl.DataFrame(
        {"device": range(devices), "step": 0, "start_ps": 0, "end_ps": count * 1000, "busy_end_ps": count * 1000}
    )
    ops = pl.DataFrame(
        {"program": ["m"], "op": ["a"], "bound": ["hbm"], "trace_names": [None]},
        schema_overrides={"trace_names": pl.String},
    )
    drawing = draw(Timeline(evidence="measured", intervals=intervals, steps=steps), ops)
    assert "16 of 20 devices" in drawing.note and "are joined" in drawing.note
    assert drawing.svg.count('class="hbm"') == 16  # no gap is wide enough to see
    assert len(drawing.svg) < 20_000
