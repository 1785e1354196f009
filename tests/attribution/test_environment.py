"""The environment of run.json names the revision that was profiled."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jaxprof.attribution.environment import environment, git_revision


def git(*words: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    return subprocess.run(["git", *identity, *words], check=True, capture_output=True, text=True).stdout.strip()


def test_git_revision_is_the_current_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_revision() is None
    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-qm", "one")
    assert environment("cpu")["git"] == git("rev-parse", "HEAD")
    (tmp_path / "a").write_text("2")
    assert git_revision() == git("rev-parse", "HEAD") + "-dirty"


def test_without_git_it_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_revision() is None
