"""A run's directory: written under a name that says it is incomplete, renamed when whole, read back with clear errors.

Two moves of the file system are atomic, and everything rests on them: ``mkdir`` makes sure that no two runs write into
one place, and ``rename`` onto a directory that is not empty fails, so that no run ever replaces another.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
from polars.exceptions import PolarsError

from jaxprof.errors import UserError
from jaxprof.report.json import to_json
from jaxprof.report.tensorboard import hlo_proto, write_xspace
from jaxprof.trace.timeline import Timeline

if TYPE_CHECKING:
    from jaxprof.report.report import Report

SCHEMA = 1
"""run.json's schema: the newest one that is understood."""
MARKER = "INCOMPLETE"
"""Stands in a run directory until everything else does."""
_SUFFIX = ".incomplete"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRun:
    """A run as read back from its directory."""

    path: Path
    summary: dict[str, Any]
    config: dict[str, Any] | None
    ops: pl.DataFrame
    breakdown: pl.DataFrame
    timeline: Timeline | None


@dataclass(frozen=True, slots=True)
class ReservedRun:
    """A place for a run that is not there yet. Where the run dies, ``working`` stays and says so."""

    working: Path
    wanted: Path

    def save(self, report: Report) -> Path:
        """Write ``report`` and give the directory its name; returns the path it got."""
        _write(report, self.working)
        (self.working / MARKER).unlink()
        for path in _numbered(self.wanted):
            try:
                os.rename(self.working, path)
            except OSError:
                if path.exists():  # somebody's run, or a file: never replaced
                    continue
                raise
            if path != self.wanted:
                print(f"{self.wanted} was taken: this run is {path}", file=sys.stderr)
            return path
        raise AssertionError("there is always a next number")

    def discard(self) -> None:
        """Give the place up where the run was refused before it held anything."""
        (self.working / MARKER).unlink()
        self.working.rmdir()


def reserve_run(directory: str | Path) -> ReservedRun:
    """Make a place to write a run that will be called ``directory``.

    Raises UserError where nothing can be written there, so that it shows before anything has been measured.
    """
    wanted = Path(directory)
    if not str(directory).strip() or not wanted.name:
        raise UserError("a run needs a directory; write one, as in runs/my-run", where="--out")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", str(directory)):
        raise UserError(f"{directory} is not a local folder; write a local one and copy it there later", where="--out")
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        for working in _numbered(wanted.with_name(wanted.name + _SUFFIX)):
            try:
                working.mkdir()
            except FileExistsError:
                continue
            (working / MARKER).write_text(
                f"process {os.getpid()} on {socket.gethostname()} is writing this run, or died\n"
            )
            return ReservedRun(working, wanted)
    except OSError as error:
        raise UserError(f"cannot write {wanted}: {error.strerror}; choose another folder", where="--out") from error
    raise AssertionError("there is always a next number")


def _numbered(path: Path) -> Iterator[Path]:
    """``path``, ``path-2``, ``path-3``, ..."""
    yield path
    number = 2
    while True:
        yield path.with_name(f"{path.name}-{number}")
        number += 1


def _write(report: Report, folder: Path) -> None:
    document = {**report.summary, "config": report.config}
    (folder / "run.json").write_text(to_json(document), encoding="utf-8")
    report.ops.write_parquet(folder / "ops.parquet")
    report.analysis.breakdown.write_parquet(folder / "breakdown.parquet")
    (folder / "hlo").mkdir()
    name = _file_name(report.program.name)
    (folder / "hlo" / f"{name}.hlo.pb").write_bytes(hlo_proto(report.program))
    if report.hlo_text is not None:
        (folder / "hlo" / f"{name}.hlo.txt").write_text(report.hlo_text, encoding="utf-8")
    if report.timeline is not None:
        _write_timeline(report.timeline, folder)
        session = folder / "plugins" / "profile" / _file_name(str(report.summary["name"]))
        session.mkdir(parents=True)
        hostname = _file_name(socket.gethostname())
        xspace = write_xspace(
            report.program, report.timeline, report.ops, report.summary, hlo_text=report.hlo_text, hostname=hostname
        )
        (session / f"{hostname}.xplane.pb").write_bytes(xspace)
    if report.trace is not None:
        (folder / "trace").mkdir()
        (folder / "trace" / "original.xplane.pb").write_bytes(report.trace)
    (folder / "report.html").write_text(report.html(), encoding="utf-8")


def _write_timeline(timeline: Timeline, folder: Path) -> None:
    notes = {"evidence": timeline.evidence, "notes": json.dumps(timeline.notes)}
    timeline.intervals.write_parquet(folder / "timeline.parquet", metadata=notes)
    timeline.steps.write_parquet(folder / "steps.parquet")


def _file_name(name: str) -> str:
    """``name`` with what file systems and XProf's names cannot take left out."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip(".") or "run"


def load_run_directory(path: str | Path) -> SavedRun:
    """Read a run. Raises UserError where ``path`` is no run, is incomplete, is damaged, or is of a newer jaxprof."""
    folder = Path(path)
    unfinished = folder.with_name(folder.name + _SUFFIX)
    if not folder.is_dir():
        hint = (
            f"; {unfinished} is a run that died or is still going on"
            if unfinished.is_dir()
            else _runs_in(folder.parent)
        )
        raise UserError(f"there is no run {folder}{hint}")
    if (folder / MARKER).exists():
        raise UserError(f"{folder} is not whole: its run died or is still being written; run it again")
    if not (folder / "run.json").is_file():
        raise UserError(f"{folder} is not a run: it has no run.json{_runs_in(folder)}")
    summary = _read_summary(folder / "run.json")
    config = summary.pop("config", None)
    return SavedRun(
        path=folder,
        summary=summary,
        config=config,
        ops=_read_parquet(folder / "ops.parquet"),
        breakdown=_read_parquet(folder / "breakdown.parquet"),
        timeline=_read_timeline(folder),
    )


def _runs_in(folder: Path) -> str:
    """The runs in ``folder``, for an error's end."""
    if not folder.is_dir():
        return ""
    runs = sorted(path.parent for path in folder.glob("*/run.json") if not (path.parent / MARKER).exists())
    return f"; runs here are {', '.join(map(str, runs[:8]))}" if runs else ""


def _read_summary(path: Path) -> dict[str, Any]:
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}); run it again") from error
    schema = summary.get("schema") if isinstance(summary, dict) else None
    if not isinstance(schema, int):
        raise UserError(f"{path} is not jaxprof's: it has no schema version")
    if schema > SCHEMA:
        raise UserError(f"{path} has schema {schema} and this jaxprof reads up to {SCHEMA}: install a newer jaxprof")
    return summary


def _read_parquet(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    except (PolarsError, OSError) as error:
        raise UserError(f"{path} is missing or damaged ({str(error).splitlines()[0]}); run it again") from error


def _read_timeline(folder: Path) -> Timeline | None:
    path = folder / "timeline.parquet"
    if not path.exists():
        return None
    intervals, steps = _read_parquet(path), _read_parquet(folder / "steps.parquet")
    metadata = pl.read_parquet_metadata(path)
    evidence: Literal["measured", "predicted"] = "predicted" if metadata["evidence"] == "predicted" else "measured"
    return Timeline(evidence=evidence, intervals=intervals, steps=steps, notes=tuple(json.loads(metadata["notes"])))
