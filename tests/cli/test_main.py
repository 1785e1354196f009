"""Help, and what becomes of errors."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from jaxprof.cli.main import COMMANDS
from jaxprof.errors import Refused

from .conftest import Command, program


def test_help_lists_every_command(jaxprof: Command) -> None:
    for words in ((), ("--help",)):
        shown = help_of(jaxprof, *words)
        assert all(f"  {name} " in shown for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(jaxprof: Command, command: str) -> None:
    shown = help_of(jaxprof, command, "--help")
    assert shown.startswith(f"usage: jaxprof {command}")
    assert all(len(line) <= 120 for line in shown.splitlines())


def help_of(jaxprof: Command, *words: str) -> str:
    if "--help" not in words:
        return jaxprof(*words).out
    done = subprocess.run(program(*words), capture_output=True, text=True, check=True)
    return done.stdout


def test_help_answers_at_once() -> None:
    """In less than 0.3 s more than an interpreter takes to start."""

    def fastest(command: list[str]) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            times.append(time.perf_counter() - start)
        return min(times)

    assert fastest(program("--help")) - fastest([sys.executable, "-c", "pass"]) < 0.3


def test_options_may_stand_anywhere(jaxprof: Command) -> None:
    first = jaxprof("--json", "configs", "llama3-tiny-train", "step.batch=16")
    last = jaxprof("configs", "llama3-tiny-train", "--json", "step.batch=16")
    assert first.status == 0
    assert first == last


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run(_: object) -> NoReturn:
        raise error

    module = SimpleNamespace(__doc__="", add_arguments=lambda parser: None, run=run)
    monkeypatch.setitem(sys.modules, "jaxprof.cli.doctor", module)


def test_refusal_has_status_1(jaxprof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, Refused("does not fit: 20 GiB of 16 GiB"))
    outcome = jaxprof("doctor")
    assert (outcome.status, outcome.err) == (1, "jaxprof: does not fit: 20 GiB of 16 GiB\n")


def test_interruption_has_status_130(jaxprof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, KeyboardInterrupt())
    outcome = jaxprof("doctor")
    assert (outcome.status, outcome.out) == (130, "")
    assert outcome.err == "jaxprof: interrupted; nothing that was saved before is lost\n"


def test_our_own_fault_has_status_3_and_keeps_its_traceback(jaxprof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ZeroDivisionError("by\nzero"))
    outcome = jaxprof("doctor")
    assert outcome.status == 3
    assert outcome.err.count("\n") == 2
    assert "ZeroDivisionError: by" in outcome.err
    found = re.search(r"its traceback is in (\S+)", outcome.err)
    assert found
    kept = Path(found[1])
    assert "Traceback (most recent call last)" in kept.read_text(encoding="utf-8")
    kept.unlink()


@pytest.mark.parametrize("way", ["--debug", "JAXPROF_DEBUG"])
def test_debug_prints_the_traceback(
    jaxprof: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    failing(monkeypatch, ZeroDivisionError("by zero"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    if way == "JAXPROF_DEBUG":
        monkeypatch.setenv(way, "1")
    outcome = jaxprof("doctor", *(["--debug"] if way == "--debug" else []))
    assert outcome.status == 3
    assert "Traceback (most recent call last)" in outcome.err


@pytest.mark.parametrize("words", [["configs"], ["configs", "--json"]], ids=" ".join)
def test_reader_that_goes_away_is_not_answered(words: list[str]) -> None:
    """As `jaxprof configs | head -1`."""
    child = subprocess.Popen(program(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    assert child.stdout and child.stderr
    child.stdout.close()
    assert child.stderr.read() == b""
    assert child.wait() == 1
