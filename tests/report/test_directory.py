"""A run directory is whole or says that it is not, and no run is ever lost to another."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from jaxprof.errors import UserError
from jaxprof.report import directory
from jaxprof.report.directory import MARKER, load_run_directory, reserve_run
from jaxprof.report.report import Report


def test_a_saved_run_reads_back_equal(report: Report, tmp_path: Path) -> None:
    path = report.save(tmp_path / "runs" / "toy")
    assert path == tmp_path / "runs" / "toy"
    saved = load_run_directory(path)
    assert saved.summary == report.summary
    assert saved.config == report.config
    assert_frame_equal(saved.ops, report.ops)
    assert_frame_equal(saved.breakdown, report.analysis.breakdown)
    assert report.timeline is not None and saved.timeline is not None
    assert_frame_equal(saved.timeline.intervals, report.timeline.intervals)
    assert_frame_equal(saved.timeline.steps, report.timeline.steps)
    assert saved.timeline.evidence == "measured"
    assert (path / "trace" / "original.xplane.pb").read_bytes() == report.trace
    assert (path / "hlo" / "jit_step.hlo.txt").read_text() == report.hlo_text
    assert not list(path.glob(f"**/{MARKER}"))


def test_an_existing_run_is_kept_and_the_new_one_numbered(
    report: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third = (report.save(tmp_path / "toy") for _ in range(3))
    assert [first.name, second.name, third.name] == ["toy", "toy-2", "toy-3"]
    assert f"{tmp_path / 'toy'} was taken: this run is {second}" in capsys.readouterr().err
    for path in (first, second, third):
        load_run_directory(path)


@pytest.mark.parametrize("content", ["file", "folder"])
def test_what_is_no_run_is_kept_too(report: Report, tmp_path: Path, content: str) -> None:
    taken = tmp_path / "toy"
    if content == "folder":
        taken.mkdir()
        taken = taken / "notes.txt"
    taken.write_text("mine")
    assert report.save(tmp_path / "toy").name == "toy-2"
    assert taken.read_text() == "mine"


def test_runs_at_once_into_one_folder_lose_nothing(report: Report, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: report.save(tmp_path / "toy"), range(6)))
    assert len(set(paths)) == 6
    assert {path.name for path in tmp_path.iterdir()} == {"toy", *(f"toy-{n}" for n in range(2, 7))}
    for path in paths:
        load_run_directory(path)


def test_an_interrupted_run_stays_marked_and_leaves_earlier_ones_whole(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = report.save(tmp_path / "toy")

    def interrupt(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(Report, "html", interrupt)
    with pytest.raises(KeyboardInterrupt):
        report.save(tmp_path / "toy")
    load_run_directory(earlier)
    assert {path.name for path in tmp_path.iterdir()} == {"toy", "toy.incomplete"}
    with pytest.raises(UserError, match=r"toy\.incomplete is not whole"):
        load_run_directory(tmp_path / "toy.incomplete")


def test_a_run_is_marked_from_its_reservation_on(tmp_path: Path) -> None:
    reserved = reserve_run(tmp_path / "toy")
    assert (reserved.working / MARKER).is_file()
    with pytest.raises(UserError, match=r"no run .*toy; .*toy\.incomplete is a run that died or is still going on"):
        load_run_directory(tmp_path / "toy")
    assert reserve_run(tmp_path / "toy").working != reserved.working


@pytest.mark.parametrize(
    ("where", "says"),
    [("", "a run needs a directory"), ("gs://bucket/x", "is not a local folder"), ("/proc/nope/x", "cannot write")],
)
def test_e15_a_place_that_cannot_be_written_fails_before_the_work(where: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        reserve_run(where)


def test_a_file_in_the_way_of_the_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        reserve_run(tmp_path / "runs" / "toy")


@pytest.fixture
def saved(report: Report, tmp_path: Path) -> Path:
    return report.save(tmp_path / "toy")


def test_a_folder_that_is_no_run_names_the_runs_in_it(saved: Path) -> None:
    with pytest.raises(UserError, match=r"is not a run: it has no run\.json; runs here are .*toy"):
        load_run_directory(saved.parent)


def test_a_missing_run_names_its_neighbours(saved: Path) -> None:
    with pytest.raises(UserError, match=r"there is no run .*tyo; runs here are .*toy"):
        load_run_directory(saved.parent / "tyo")


def test_a_newer_schema_is_refused(saved: Path) -> None:
    document = json.loads((saved / "run.json").read_text())
    (saved / "run.json").write_text(json.dumps(document | {"schema": directory.SCHEMA + 1}))
    with pytest.raises(UserError, match="schema 2 and this jaxprof reads up to 1: install a newer jaxprof"):
        load_run_directory(saved)


@pytest.mark.parametrize(
    ("text", "says"), [('{"schema": 1', "cannot be read"), ("{}", "no schema"), ("[]", "no schema")]
)
def test_a_damaged_summary_is_said(saved: Path, text: str, says: str) -> None:
    (saved / "run.json").write_text(text)
    with pytest.raises(UserError, match=says):
        load_run_directory(saved)


@pytest.mark.parametrize("name", ["ops", "breakdown", "timeline", "steps"])
@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_a_damaged_table_is_said(saved: Path, name: str, damage: str) -> None:
    path = saved / f"{name}.parquet"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    elif name == "timeline":  # a run without a timeline has none
        assert load_run_directory(saved).timeline is not None
        return
    else:
        path.unlink()
    with pytest.raises(UserError, match=rf"{name}\.parquet is missing or damaged .*run it again"):
        load_run_directory(saved)
