"""The ``jaxprof`` command: finds the sub-command, runs it, turns what goes wrong into a message and an exit status."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from jaxprof.cli.failures import exit_status
from jaxprof.errors import UserError

COMMANDS = {
    "run": "profile a preset or a config file on the devices that are here",
    "show": "print the report of a run",
    "view": "open a run in TensorBoard",
    "configs": "list the presets, or print one with everything that it sets",
    "hardware": "list the devices whose published figures are known, or show one",
    "calibrate": "measure this machine's peaks for simulated devices",
    "doctor": "check what is installed, which devices JAX sees, and what is missing",
}
"""Each is a module of this package with ``add_arguments(parser)`` and ``run(arguments) -> int``."""

_EXAMPLES = """examples:
  jaxprof run llama3-tiny-train
  jaxprof run llama3-tiny-train mesh.fsdp=4 mesh.tensor=1 step.batch=16
  jaxprof show runs/llama3-tiny-train

`jaxprof COMMAND --help` says more about each command."""


class _Parser(argparse.ArgumentParser):
    """Raises what argparse would print, so that every mistake looks alike; options are never guessed from a prefix."""

    def __init__(self, prog: str, description: str | None, epilog: str | None = None) -> None:
        super().__init__(
            prog,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.add_argument("--debug", action="store_true", help="print the traceback of a fault of jaxprof's own")

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; `{self.prog} --help` shows what may be written")

    def options(self) -> list[str]:
        return [option for action in self._actions for option in action.option_strings]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line ``argv`` and returns its exit status: 0 done, 1 the thing asked about fails, 2 the user's
    mistake, 3 ours, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words or bool(os.environ.get("JAXPROF_DEBUG"))
    try:
        status = _run(words)
        sys.stdout.flush()
        return status
    except (Exception, KeyboardInterrupt) as error:
        return exit_status(error, debug=debug)


def _run(words: list[str]) -> int:
    position = next((index for index, word in enumerate(words) if not word.startswith("-")), None)
    if position is None:
        return _without_command(words)
    name = words[position]
    if name not in COMMANDS:
        raise UserError(f"unknown command {name!r}{_closest(name, COMMANDS)}; commands are {', '.join(COMMANDS)}")
    command = importlib.import_module(f"jaxprof.cli.{name}")
    parser = _Parser(f"jaxprof {name}", command.__doc__)
    command.add_arguments(parser)
    arguments, left = parser.parse_known_intermixed_args(words[:position] + words[position + 1 :])
    if left:
        _refuse(parser, left[0])
    return command.run(arguments)


def _without_command(words: list[str]) -> int:
    from jaxprof import __version__

    listing = "\n".join(f"  {name:<10} {summary}" for name, summary in COMMANDS.items())
    parser = _Parser(
        "jaxprof",
        f"Where the time of one step of a sharded JAX program goes.\n\ncommands:\n{listing}",
        _EXAMPLES,
    )
    parser.usage = "jaxprof COMMAND [arguments]"
    parser.add_argument("--version", action="version", version=f"jaxprof {__version__}")
    _, left = parser.parse_known_args(words)
    if left:
        _refuse(parser, left[0])
    parser.print_help()
    return 0


def _refuse(parser: _Parser, word: str) -> NoReturn:
    kind = "option" if word.startswith("-") else "argument"
    option = word.partition("=")[0]
    parser.error(f"unknown {kind} {word}{_closest(option, parser.options())}")


def _closest(word: str, known: Sequence[str] | dict[str, str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""
