"""The commands on a run that was really made, and on the book and the presets."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import polars as pl
import pytest

from jaxprof.cli.output import positive
from jaxprof.config.load import load_run, to_dict
from jaxprof.config.presets import model_presets, run_presets
from jaxprof.hardware.book import known_devices

from .conftest import SMALL, Command, Profiled, child_environment, program


def test_run_prints_one_json_object_and_progress_apart(profiled: Profiled) -> None:
    outcome = profiled.outcome
    assert outcome.status == 0, outcome.err
    summary = json.loads(outcome.out)
    assert summary["mesh"]["tensor"] == 2
    assert summary["step"] == "decode"
    assert summary["target"]["devices"] == 2
    assert "compiling" in outcome.err


def test_run_is_kept_where_it_was_asked_for(profiled: Profiled) -> None:
    kept = json.loads((profiled.run / "run.json").read_text(encoding="utf-8"))
    config = kept.pop("config")
    assert kept == json.loads(profiled.outcome.out)
    assert config["measure"]["timed_steps"] == 2
    assert pl.read_parquet(profiled.run / "ops.parquet").height > 0
    assert [path.name for path in profiled.run.parent.iterdir()] == ["first"], "nothing unfinished lies beside it"


def test_calibration_is_made_on_first_need_and_kept(profiled: Profiled) -> None:
    assert "calibrating" in profiled.outcome.err
    assert len(list((profiled.folder / "cache" / "calibration").glob("*-2-devices.json"))) == 1


def test_show_prints_the_report(profiled: Profiled, jaxprof: Command) -> None:
    outcome = jaxprof("show", str(profiled.run))
    assert (outcome.status, outcome.err) == (0, "")
    assert "Where a step's time goes" in outcome.out


def test_show_json_is_what_run_printed(profiled: Profiled, jaxprof: Command) -> None:
    assert jaxprof("show", str(profiled.run), "--json").out == profiled.outcome.out


def test_view_says_what_to_type(profiled: Profiled, jaxprof: Command) -> None:
    for folder in (profiled.run, profiled.run.parent):
        outcome = jaxprof("view", str(folder), "--print", "--port", "7007")
        assert outcome.status == 0
        assert f"-m tensorboard.main --logdir {folder} --port 7007" in outcome.out


@pytest.mark.parametrize("words", [["show"], ["show", "--json"], ["view", "--print"]], ids=" ".join)
def test_looking_at_a_run_never_imports_jax(profiled: Profiled, words: list[str]) -> None:
    assert_without_jax([*words, str(profiled.run)])


@pytest.mark.parametrize(
    "words",
    [["--version"], ["run", "--help"], ["configs"], ["configs", "llama3-tiny-train"], ["hardware", "v5p"], ["doctor"]],
    ids=" ".join,
)
def test_looking_things_up_never_imports_jax(words: list[str]) -> None:
    assert_without_jax(words)


def assert_without_jax(words: list[str]) -> None:
    code = (
        "import atexit, os, sys\n"
        "atexit.register(lambda: 'jax' in sys.modules and os._exit(99))\n"
        "from jaxprof.cli.main import main\n"
        "sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_interrupted_run_is_marked_and_leaves_the_others_whole(profiled: Profiled) -> None:
    before = {path: path.read_bytes() for path in sorted(profiled.run.rglob("*")) if path.is_file()}
    child = subprocess.Popen(
        program("run", "llama3-tiny-decode", *SMALL, "measure.timed_steps=100000", "--out", str(profiled.run)),
        cwd=profiled.folder,
        env=child_environment(profiled.folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr
    lines = []
    for line in child.stderr:
        lines.append(line)
        if "untraced" in line:
            child.send_signal(signal.SIGINT)
            break
    out, rest = child.communicate(timeout=60)
    assert child.returncode == 130, "".join(lines) + rest
    assert (out, rest) == ("", "jaxprof: interrupted; nothing that was saved before is lost\n")
    assert (profiled.run.with_name("first.incomplete") / "INCOMPLETE").is_file()
    assert before == {path: path.read_bytes() for path in sorted(profiled.run.rglob("*")) if path.is_file()}


def test_configs_lists_every_preset(jaxprof: Command) -> None:
    rows = json.loads(jaxprof("configs", "--json").out)["presets"]
    assert [row["name"] for row in rows] == [preset.name for preset in (*run_presets(), *model_presets())]
    shown = jaxprof("configs").out
    assert all(row["name"] in shown for row in rows)


def test_configs_prints_a_run_that_loads_again(jaxprof: Command, tmp_path: Path) -> None:
    printed = jaxprof("configs", "llama3-tiny-train", "mesh.fsdp=4", "mesh.tensor=1").out
    (tmp_path / "mine.toml").write_text(printed, encoding="utf-8")
    expected = load_run("llama3-tiny-train", ["mesh.fsdp=4", "mesh.tensor=1"])
    assert load_run(str(tmp_path / "mine.toml")) == expected
    as_json = json.loads(jaxprof("configs", "llama3-tiny-train", "mesh.fsdp=4", "mesh.tensor=1", "--json").out)
    assert as_json == json.loads(json.dumps(to_dict(expected)))


def test_configs_prints_a_model(jaxprof: Command) -> None:
    """Llama 3.1 8B's published sizes."""
    model = tomllib.loads(jaxprof("configs", "llama3.1-8b").out)
    assert (model["d_model"], model["layers"], model["vocab"]) == (4096, 32, 128256)
    assert json.loads(jaxprof("configs", "llama3.1-8b", "--json").out)["kv_heads"] == 8


def test_hardware_lists_the_book(jaxprof: Command) -> None:
    rows = json.loads(jaxprof("hardware", "--json").out)["devices"]
    assert [row["name"] for row in rows] == [spec.name for spec in known_devices()]
    shown = jaxprof("hardware").out
    assert all(row["name"] in shown for row in rows)


def test_hardware_shows_a_device_with_its_sources(jaxprof: Command) -> None:
    """459 TFLOP/s of bf16 is what Google publishes for v5p, which JAX calls 'TPU v5'."""
    shown = jaxprof("hardware", "TPU v5").out
    assert "459 TFLOP/s" in shown
    assert "cloud.google.com" in shown


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("0012", 12)])
def test_count(text: str, count: int) -> None:
    assert positive(text) == count
