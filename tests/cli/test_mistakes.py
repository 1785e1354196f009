"""Every mistake on the command line has one clear line and exit status 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Command

TINY = "llama3-tiny-train"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rnu", TINY], "unknown command 'rnu' (did you mean run?)"),
        (["profile"], "commands are run, show, view, configs, hardware, calibrate, doctor"),
        (["--jsn"], "unknown option --jsn"),
        (["--versoin"], "did you mean --version?"),
        (["run"], "jaxprof configs"),
        (["run", TINY, "--jso"], "unknown option --jso (did you mean --json?)"),
        (["run", TINY, "--steps"], "--steps: expected one argument"),
        (["run", TINY, "--steps", "0"], "--steps: is '0', but must be a whole number of 1 or more"),
        (["run", TINY, "--steps", "many"], "--steps: is 'many'"),
        (["run", "lama3-tiny-train"], "llama3-tiny-train"),
        (["run", "llama3-tiny"], "it is a model, whose runs are llama3-tiny-decode"),
        (["run", "nowhere.toml"], "nowhere.toml"),
        (["run", TINY, "mesh.fsdp=x"], "mesh.fsdp"),
        (["run", TINY, "mesh.fsdp"], "mesh.fsdp"),
        (["run", TINY, "mesh.fdsp=4"], "did you mean fsdp?"),
        (["run", TINY, "mesh.fsdp=3"], "step.batch"),
        (["run", TINY, "--out", ""], "--out"),
        (["run", TINY, "--out", "gs://bucket/runs/x"], "--out"),
        (["run", TINY, "--out", "/proc/nope/x"], "--out"),
        (["show"], "the following arguments are required: RUN"),
        (["show", "runs/nothing"], "there is no run runs/nothing"),
        (["show", "one", "two"], "unknown argument two"),
        (["view", "runs/nothing"], "there is no run runs/nothing"),
        (["view", ".", "--port", "-1"], "--port"),
        (["configs", "llama3-tinny"], "llama3-tinny"),
        (["configs", "llama3-tiny", "step.batch=4"], "llama3-tiny is a model"),
        (["configs", TINY, "step.bach=4"], "did you mean batch?"),
        (["hardware", "v5"], "unknown device 'v5'"),
        (["calibrate", "--devices", "0"], "--devices: is '0', but must be a whole number of 1 or more"),
        (["calibrate", "--devices", "eight"], "--devices: is 'eight'"),
        (["doctor", "everything"], "unknown argument everything"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistake_has_one_line_and_status_2(jaxprof: Command, words: list[str], said: str) -> None:
    assert said in jaxprof(*words).mistake()
    assert not Path("runs").exists(), "nothing is begun for a command line that is wrong"


def test_run_that_is_not_whole_is_not_shown(jaxprof: Command, tmp_path: Path) -> None:
    unfinished = tmp_path / "runs" / "mine.incomplete"
    unfinished.mkdir(parents=True)
    (unfinished / "INCOMPLETE").touch()
    assert "not whole" in jaxprof("show", str(unfinished)).mistake()
    assert "mine.incomplete" in jaxprof("show", "runs/mine").mistake()
    assert "not whole" in jaxprof("view", str(unfinished)).mistake()


def test_folder_without_a_run_is_named(jaxprof: Command, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    assert "has no run.json" in jaxprof("show", "notes").mistake()


def test_f1_unknown_xla_flag_is_named_before_it_can_end_the_process(
    jaxprof: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_tpu_enable_async_collective_fusion=true")
    line = jaxprof("run", TINY).mistake()
    assert "flag not known here: --xla_tpu_enable_async_collective_fusion=true" in line
    assert "LIBTPU_INIT_ARGS" in line
    assert not Path("runs").exists()


def test_f1_xla_flag_with_a_wrong_value_is_named(jaxprof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=banana")
    assert "XLA_FLAGS: xla_cpu_enable_fast_math cannot be 'banana'" in jaxprof("calibrate").mistake()


def test_unknown_platform_is_named(jaxprof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "nonsense")
    assert "JAX_PLATFORMS=nonsense" in jaxprof("run", TINY).mistake()


def test_accelerators_that_are_not_here_are_said_to_be_missing(jaxprof: Command) -> None:
    assert "JAX sees 0; write a smaller mesh" in jaxprof("run", TINY, "measure.platform=tpu").mistake()
