"""What the documents say can be typed works as they say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxprof.cli.main import COMMANDS

from .conftest import SMALL, child_environment, program

REPOSITORY = Path(__file__).parents[2]
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
OWN_MODEL = REPOSITORY / "docs" / "extending-models.md"


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert not missing


def commands_in_documents() -> Iterator[str]:
    for document in DOCUMENTS:
        yield from re.findall(
            r"jaxprof ([a-z]+)(?= [A-Za-z\[-]|`|$)", "\n".join(blocks(document, "console")), re.MULTILINE
        )


def test_commands_exist() -> None:
    assert set(commands_in_documents()) <= COMMANDS.keys()


def test_inspecting_a_function(tmp_path: Path) -> None:
    """2 * 256 * 512 * 128 FLOPs."""
    code = blocks(OWN_MODEL, "python")[0]
    done = subprocess.run(
        [sys.executable, "-c", code], env=child_environment(tmp_path), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "33554432"


def test_own_model_is_profiled(tmp_path: Path) -> None:
    (tmp_path / "my_model.py").write_text(blocks(OWN_MODEL, "python")[1], encoding="utf-8")
    (tmp_path / "my-run.toml").write_text(blocks(OWN_MODEL, "toml")[0], encoding="utf-8")
    done = subprocess.run(
        program("run", "my-run.toml", *SMALL, "--steps", "2", "--json"),
        cwd=tmp_path, env=child_environment(tmp_path), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["flops"]["compiled"] > 0
    assert (summary["mfu"], summary["flops"]["model_causal"]) == (None, None)
    assert any("MyModel has no methods flops and parameters" in warning for warning in summary["warnings"])
    assert (tmp_path / "runs" / "my-run" / "run.json").is_file()
