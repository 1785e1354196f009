"""What went wrong, as one or two lines for the person who typed the command, and an exit status."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback

from jaxprof.errors import Refused, UserError


def exit_status(error: BaseException, *, debug: bool) -> int:
    """Says what ``error`` means on standard error and returns the exit status that goes with it."""
    if isinstance(error, UserError):
        _say(f"error: {error}")
        return 2
    if isinstance(error, Refused):
        _say(str(error))
        return 1
    if isinstance(error, KeyboardInterrupt):
        _say("interrupted; nothing that was saved before is lost")
        return 130
    if isinstance(error, BrokenPipeError):  # the reader of standard output has gone, as in `jaxprof show RUN | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1  # as rich has it where it notices first
    return _fault(error, debug=debug)


def _fault(error: BaseException, *, debug: bool) -> int:
    text = "".join(traceback.format_exception(error))
    if debug:
        sys.stderr.write(text)
    first_line = next(iter(str(error).splitlines()), "")
    _say(f"error: {type(error).__name__}: {first_line[:300]}")
    _say(f"this is a fault of jaxprof, not of what you typed; {_kept(text)}")
    return 3


def _kept(text: str) -> str:
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="jaxprof-error-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
    except OSError:
        return "--debug prints its traceback"
    return f"its traceback is in {file.name}"


def _say(text: str) -> None:
    print(f"jaxprof: {' '.join(text.splitlines())}", file=sys.stderr)
