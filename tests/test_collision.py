"""Runs that collide lose nothing: the command line in child processes, as a person would use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

WORDS = [
    "llama3-tiny-decode", "mesh.data=1", "mesh.fsdp=1", "mesh.tensor=1", "measure.windows=1", "--steps", "2",
    "--json", "--out", "runs/both",
]  # fmt: skip


def test_two_runs_at_once_into_one_folder_are_both_kept(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; from jaxprof.cli.main import main; sys.exit(main())", "run", *WORDS]
    environment = {**os.environ, "JAXPROF_CACHE_DIR": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    runs = [subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, **pipes) for _ in range(2)]
    printed = []
    for run in runs:
        output, errors = run.communicate(timeout=300)
        assert run.returncode == 0, errors
        printed.append(json.loads(output)["step_time_s"])
    folders = [tmp_path / "runs" / name for name in ("both", "both-2")]
    kept = [json.loads((folder / "run.json").read_text())["step_time_s"] for folder in folders]
    assert sorted(kept) == sorted(printed)
