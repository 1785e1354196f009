"""Figures as text."""

from __future__ import annotations

import pytest

from jaxprof.report.text import UNKNOWN, count, percent, printable, seconds, shortened, size


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        (seconds, 0.0, "0 s"),
        (seconds, 1.5, "1.50 s"),
        (seconds, 0.01234, "12.3 ms"),
        (seconds, 0.9996e-3, "1.00 ms"),
        (seconds, 2e-10, "0.20 ns"),
        (size, 0, "0 B"),
        (size, 1023, "1023 B"),
        (size, 1024, "1.00 KiB"),
        (size, 15.75 * 2**30, "15.8 GiB"),
        (count, 0, "0"),
        (count, 999, "999"),
        (count, 2.5, "2.50"),
        (count, 684.76, "685"),
        (count, 391_378_894_848, "391 G"),
        (percent, 0.0, "0.0 %"),
        (percent, 0.404, "40.4 %"),
        (percent, 1.44, "144 %"),
    ],
)
def test_three_digits_and_a_unit(form: object, value: float, text: str) -> None:
    assert form(value) == text  # type: ignore[operator]


@pytest.mark.parametrize("form", [seconds, size, count, percent])
def test_none_is_unknown_and_never_zero(form: object) -> None:
    assert form(None) == UNKNOWN  # type: ignore[operator]


def test_control_characters_are_spelled_out() -> None:
    assert printable("a\x1b[31m\n\x01é\u202e") == "a\\x1b[31m\\n\\x01é\\u202e"


def test_a_shortened_name_keeps_both_ends() -> None:
    assert shortened("bitcast_dynamic-update-slice_fusion.12", 20) == "bitcast_dy…fusion.12"
    assert shortened("dot.1", 20) == "dot.1"
