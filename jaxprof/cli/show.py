"""Print the report of a run that was kept, without starting JAX."""

from __future__ import annotations

import argparse

from jaxprof.cli.output import add_json, print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's directory, as in runs/llama3-tiny-train")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from jaxprof.report.directory import load_run_directory
    from jaxprof.report.terminal import render

    saved = load_run_directory(arguments.run)
    if arguments.json:
        print_json(saved.summary)
    else:
        render(saved.summary, saved.ops, console=Console())
    return 0
