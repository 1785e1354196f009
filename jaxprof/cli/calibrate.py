"""Measure what one simulated device of this machine can do: the peaks that runs on a simulated mesh are held against.

A run does this by itself where there is no calibration yet. Do it again when the machine was busy the last time.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys

from jaxprof.cli.output import add_json, positive, print_json, print_table, stopwatch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--devices",
        metavar="N",
        type=positive,
        default=8,
        help="simulated devices that share it (default: %(default)s)",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from jaxprof.cli.devices import device_rows
    from jaxprof.environment.devices import choose_devices
    from jaxprof.hardware.calibration import save_calibration

    choose_devices(arguments.devices, "cpu")

    from jaxprof.measure.calibrate import calibrate

    spec = calibrate(arguments.devices, progress=stopwatch())
    path = save_calibration(spec, arguments.devices)
    if arguments.json:
        print_json(dataclasses.asdict(spec))
    else:
        print_table(("figure of one device", "value", "source"), device_rows(spec))
    print(f"kept in {path}", file=sys.stderr)
    return 0
