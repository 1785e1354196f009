"""Open a run in TensorBoard with XProf's pages. RUN may also be a directory that holds several runs."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from jaxprof.cli.output import positive
from jaxprof.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's directory, or one that holds several")
    parser.add_argument(
        "--port", metavar="N", type=positive, default=6006, help="where it listens (default: %(default)s)"
    )
    parser.add_argument("--host", default="localhost", help="who may connect (default: %(default)s)")
    parser.add_argument("--print", action="store_true", dest="print_only", help="only print what to type")


def run(arguments: argparse.Namespace) -> int:
    from jaxprof.environment.packages import tensorboard_missing
    from jaxprof.report.directory import load_run_directory

    folder = Path(arguments.run)
    if not (folder.is_dir() and any(folder.glob("*/run.json"))):
        load_run_directory(folder)
    page = f"http://{arguments.host}:{arguments.port}/#profile"
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--port", str(arguments.port)]
    command += ["--host", arguments.host]
    if arguments.print_only:
        print(shlex.join(command))
        return 0
    missing = tensorboard_missing()
    if missing:
        raise UserError(f"TensorBoard cannot be started: {missing}")
    print(f"Open {page} and choose a tool on the left; Ctrl-C ends it.", flush=True)
    try:
        return 1 if subprocess.run(command, check=False).returncode else 0  # it has said why itself
    except KeyboardInterrupt:
        return 0
