"""The preset files that the package ships, found by name in a source tree and in an installed wheel alike."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Literal

from jaxprof.config.values import closest
from jaxprof.errors import UserError

Kind = Literal["runs", "models"]


@functools.cache
def shipped(kind: Kind) -> Mapping[str, Path]:
    """Path of each preset, by its name (the file's, without its ending), in the order of names."""
    folder = Path(str(resources.files("jaxprof.configs"))) / kind
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def locate(reference: str, kind: Kind, beside: Path, where: str) -> Path:
    """The file that ``reference`` means: a preset's name, or a path of a ``.toml`` file relative to ``beside``.

    ``where`` says who refers to it, for the UserError that an unknown name raises.
    """
    if reference.endswith(".toml"):
        return beside / reference
    found = shipped(kind).get(reference)
    if found is not None:
        return found
    noun = kind.removesuffix("s")
    other = "models" if kind == "runs" else "runs"
    if reference in shipped(other):
        runs = [name for name in shipped("runs") if name.startswith(f"{reference}-")]
        suggestion = f"; it is a {other.removesuffix('s')}" + (f", whose runs are {', '.join(runs)}" if runs else "")
    else:
        suggestion = closest(reference, shipped(kind))
    raise UserError(
        f"no {noun} preset is called {reference!r}{suggestion}; "
        "`jaxprof configs` lists the presets, and a file's name ends in .toml",
        where=where,
    )
