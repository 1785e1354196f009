"""The command line as its users have it: words in; exit status, standard output and standard error out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from jaxprof.cli.main import main


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    def mistake(self) -> str:
        """The one line that a user's mistake is answered with."""
        assert self.status == 2, self
        assert self.out == ""
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("jaxprof: error: ")
        return self.err


Command = Callable[..., Outcome]


@pytest.fixture
def jaxprof(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs ``jaxprof WORDS`` in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAXPROF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")

    def command(*words: str) -> Outcome:
        capfd.readouterr()
        status = main(words)
        return Outcome(status, *capfd.readouterr())

    return command


@dataclass(frozen=True)
class Profiled:
    folder: Path
    """Where the command ran."""
    run: Path
    outcome: Outcome


SMALL = (
    "mesh.data=1", "mesh.fsdp=1", "mesh.tensor=2", "model.layers=1", "step.batch=2", "measure.windows=1",
    "measure.warmup_steps=1", "measure.traced_steps=2",
)  # fmt: skip


def child_environment(folder: Path) -> dict[str, str]:
    """As in a fresh shell: nothing of what this test process has set for JAX."""
    left_out = {"XLA_FLAGS", "JAX_PLATFORMS"}
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "JAXPROF_CACHE_DIR": str(folder / "cache"), "COLUMNS": "120"}


def program(*words: str) -> list[str]:
    return [sys.executable, "-c", "import sys; from jaxprof.cli.main import main; sys.exit(main())", *words]


@pytest.fixture(scope="session")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    """``jaxprof run --json`` of a small decode loop on two simulated devices, in a process of its own."""
    folder = tmp_path_factory.mktemp("profiled")
    words = ("run", "llama3-tiny-decode", *SMALL[:3], "--json", *SMALL[3:], "--steps", "2", "--out", "here/first")
    done = subprocess.run(
        program(*words), cwd=folder, env=child_environment(folder), capture_output=True, text=True, check=False
    )
    return Profiled(folder, folder / "here" / "first", Outcome(done.returncode, done.stdout, done.stderr))
