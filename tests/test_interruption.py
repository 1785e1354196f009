"""Runs that die or collide lose nothing: the command line in child processes, as a person would use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = ["llama3-tiny-decode", "mesh.data=1", "mesh.fsdp=1", "mesh.tensor=1", "measure.windows=1"]


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "import sys; from jaxprof.cli.main import main; sys.exit(main())", *words]
    environment = {**os.environ, "JAXPROF_CACHE_DIR": str(folder / "cache"), "JAX_PLATFORMS": "cpu"}
    environment.pop("XLA_FLAGS", None)
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def whole_run(folder: Path) -> Path:
    run = start(folder, "run", *SMALL, "--steps", "2", "--out", "runs/one")
    _, errors = run.communicate(timeout=300)
    assert run.returncode == 0, errors
    return folder / "runs" / "one"


def test_an_interrupt_leaves_earlier_runs_whole_and_marks_this_one(folder: Path, whole_run: Path) -> None:
    before = contents(whole_run)
    run = start(folder, "run", *SMALL, "--steps", "1000000", "measure.seed=1", "--out", "runs/one")
    assert run.stderr is not None
    for line in run.stderr:
        if "untraced steps" in line:
            break
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=120)
    assert run.returncode == 130
    assert "Traceback" not in errors
    assert contents(whole_run) == before
    assert (folder / "runs" / "one.incomplete" / "INCOMPLETE").exists()

    shown = start(folder, "show", "runs/one.incomplete")
    _, errors = shown.communicate(timeout=60)
    assert shown.returncode == 2
    assert "not whole" in errors
    assert len(errors.strip().splitlines()) <= 2


def test_two_runs_at_once_into_one_folder_are_both_kept(folder: Path, whole_run: Path) -> None:
    runs = [start(folder, "run", *SMALL, "--steps", "2", "--json", "--out", "runs/both") for _ in range(2)]
    printed = []
    for run in runs:
        output, errors = run.communicate(timeout=300)
        assert run.returncode == 0, errors
        printed.append(json.loads(output)["step_time_s"])
    kept = [json.loads((folder / "runs" / name / "run.json").read_text())["step_time_s"] for name in ("both", "both-2")]
    assert sorted(kept) == sorted(printed)
