"""run.json's object as text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def to_json(summary: Mapping[str, Any]) -> str:
    """Strict JSON, keys in their order, an indented line each. What is not a finite number is unknown, hence null.

    Raises TypeError for what JSON has no type for.
    """
    return json.dumps(_finite(summary), indent=2, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
