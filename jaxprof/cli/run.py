"""Profile one run: compile it, time it, trace it, and say where the time of a step goes.

CONFIG is a preset's name (`jaxprof configs` lists them) or the path of a .toml file. Overrides follow it:
mesh.fsdp=4 step.batch=16 model.remat=full. Where there are not enough accelerators for the mesh, its devices are
simulated on the CPU.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from jaxprof.cli.output import add_json, positive, print_json, stopwatch
from jaxprof.errors import Refused, UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="a preset or a .toml file")
    parser.add_argument("overrides", metavar="key=value", nargs="*", help="what to change in it")
    parser.add_argument("--out", metavar="DIR", help="where to keep the run (default: runs/ and its name)")
    parser.add_argument("--steps", metavar="N", type=positive, help="steps to time in a window (measure.timed_steps)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from jaxprof.config.check import check_run
    from jaxprof.config.load import load_run
    from jaxprof.environment.devices import choose_devices
    from jaxprof.report.directory import reserve_run

    if arguments.config is None:
        raise UserError("run what? Write the name of a preset (`jaxprof configs` lists them) or of a .toml file")
    overrides = list(arguments.overrides)
    if arguments.steps:
        overrides.append(f"measure.timed_steps={arguments.steps}")
    config = load_run(arguments.config, overrides)
    check_run(config)
    choose_devices(config.mesh.data * config.mesh.fsdp * config.mesh.tensor, config.measure.platform)
    sys.path.append(os.getcwd())  # a model of one's own may lie beside the config; last, so that it hides nothing
    place = reserve_run(arguments.out if arguments.out is not None else Path("runs") / config.name)

    from jaxprof.profiling import profile

    try:
        report = profile(config, progress=stopwatch())
    except (UserError, Refused):
        place.discard()
        raise
    path = place.save(report)
    if arguments.json:
        print_json(report.summary)
        return 0
    report.show()
    print(f"\nKept in {path}; `jaxprof view {path}` opens it in TensorBoard, {path / 'report.html'} in a browser.")
    return 0
