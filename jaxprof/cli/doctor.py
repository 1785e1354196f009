"""Check what is installed, which devices JAX sees and what is missing, with the command that installs it."""

from __future__ import annotations

import argparse
import dataclasses

from jaxprof.cli.output import add_json, print_json, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from jaxprof.environment.checkup import checkup

    checks = checkup()
    wrong = [check for check in checks if check.state == "wrong"]
    if arguments.json:
        print_json({"healthy": not wrong, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        print_table(("", "what", "found"), ((check.state, check.name, check.found) for check in checks))
        for check in checks:
            if check.remedy:
                print(f"\n{check.name}: {check.remedy}")
        print("\nSomething is missing." if wrong else "\nAll that is needed is here.")
    return 1 if wrong else 0
