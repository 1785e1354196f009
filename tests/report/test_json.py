"""What ``--json`` prints is strict JSON and nothing else."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from jaxprof.report.json import to_json


def strict(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_summary_comes_back(summary: dict[str, Any]) -> None:
    assert strict(to_json(summary)) == summary


def test_e18_hostile_names_parse(summary: dict[str, Any]) -> None:
    assert strict(to_json(summary))["warnings"] == summary["warnings"]


def test_what_is_no_number_is_unknown() -> None:
    assert strict(to_json({"a": math.nan, "b": [math.inf, {"c": (-math.inf, 1.5)}]})) == {
        "a": None,
        "b": [None, {"c": [None, 1.5]}],
    }


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError):
        to_json({"a": object()})
