"""The presets that ship with the package, for listing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jaxprof.config.settings import model_settings, run_settings
from jaxprof.config.shipped import shipped


@dataclass(frozen=True, slots=True)
class Preset:
    """A run or a model that can be named in place of a file."""

    name: str
    path: Path
    description: str
    kind: Literal["train", "prefill", "decode", "model"]


def run_presets() -> tuple[Preset, ...]:
    """Every shipped run, by name."""
    found = []
    for name, path in shipped("runs").items():
        settings = run_settings(path)
        found.append(Preset(name, path, settings["description"].value, settings["step.kind"].value))
    return tuple(found)


def model_presets() -> tuple[Preset, ...]:
    """Every shipped model, by name."""
    return tuple(
        Preset(name, path, model_settings(path)["model.description"].value, "model")
        for name, path in shipped("models").items()
    )
