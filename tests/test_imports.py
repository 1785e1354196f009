"""Imports run one way, and what only reads and analyses never starts JAX."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]

LEAVES = {"errors", "proto"}
EVIDENCE = {"hlo", "trace", "hardware", "config", *LEAVES}
RUNNING = {"models", "workloads", "compile", "measure", "attribution", *EVIDENCE}
ALLOWED = {
    "errors": set(),
    "proto": set(),
    "config": {"configs", *LEAVES},
    "configs": set(),
    "hardware": {"config", *LEAVES},
    "hlo": {"hardware", "config", *LEAVES},
    "trace": {"hlo", "hardware", "config", *LEAVES},
    "attribution": EVIDENCE,
    "plan": {"attribution", *EVIDENCE},
    "report": {"attribution", *EVIDENCE},
    "models": {"config", "errors"},
    "workloads": RUNNING,
    "compile": RUNNING,
    "measure": RUNNING,
    "environment": {"measure", *EVIDENCE},
    "inspection": {"report", *RUNNING},
    "profiling": {"report", *RUNNING},
    "cli": {"plan", "report", "environment", "inspection", "profiling", *RUNNING},
    "__init__": {"inspection"},
}
"""Which parts of the package each part may import, its own modules aside."""

WITHOUT_JAX = (
    "errors",
    "proto",
    "config",
    "hardware",
    "hlo",
    "trace",
    "attribution",
    "plan",
    "report",
    "environment",
    "cli",
)
"""Parts none of whose modules may import JAX, at the top or inside a function."""

STARTS_JAX = {"jax", "jaxlib", "flax", "optax"}


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package with the part that it belongs to."""
    for root, prefix in (
        (REPOSITORY / "jaxprof", ""),
        (REPOSITORY / "models", "models"),
        (REPOSITORY / "configs", "configs"),
    ):
        for path in sorted(root.rglob("*.py")):
            relative = path.relative_to(root)
            yield prefix or (relative.parts[0] if len(relative.parts) > 1 else relative.stem), path


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write the whole name"
            if node.module == "jaxprof":
                yield from ((node.lineno, f"jaxprof.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module or ""


PARTS = sorted({part for part, _ in modules()})


@pytest.mark.parametrize("part", PARTS)
def test_imports_run_one_way(part: str) -> None:
    wrong = []
    for owner, path in modules():
        if owner != part:
            continue
        for line, name in imported(path):
            package, _, rest = name.partition(".")
            target = rest.partition(".")[0]
            if package == "jaxprof" and target not in {part, "", "__version__"} and target not in ALLOWED[part]:
                wrong.append(f"{path.relative_to(REPOSITORY)}:{line}: {part} must not import {name}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("part", WITHOUT_JAX)
def test_reading_and_analysing_never_import_jax(part: str) -> None:
    wrong = [
        f"{path.relative_to(REPOSITORY)}:{line}: imports {name}"
        for owner, path in modules()
        if owner == part
        for line, name in imported(path)
        if name.partition(".")[0] in STARTS_JAX
    ]
    assert not wrong, "\n".join(wrong)


def test_importing_them_all_leaves_jax_out() -> None:
    """No import in turn, through other packages of ours or of others, brings it in."""
    names = ["jaxprof", "jaxprof.measure.flags"]
    for part, path in modules():
        if part in WITHOUT_JAX and path.stem != "__init__":
            names.append(".".join(("jaxprof", *path.relative_to(REPOSITORY / "jaxprof").with_suffix("").parts)))
    code = (
        f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\nassert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
