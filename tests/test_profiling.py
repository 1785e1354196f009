"""What stops a run before it takes anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxprof.cli.main import main
from jaxprof.config.load import load_run
from jaxprof.errors import UserError
from jaxprof.hardware.calibration import save_calibration
from jaxprof.hardware.device import DeviceSpec
from jaxprof.profiling import profile
from jaxprof.trace.read import UnreadDevices


def test_a_step_that_does_not_fit_is_refused_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAXPROF_CACHE_DIR", str(tmp_path / "cache"))
    save_calibration(DeviceSpec(name="cpu-mesh:8 device", hbm_bytes=2.0**20, provenance="measured"), 8)
    assert main(["run", "llama3-tiny-decode", "--out", str(tmp_path / "runs" / "big")]) == 1
    errors = capsys.readouterr().err
    assert "does not fit" in errors
    assert "a cpu-mesh:8 device has 1.00 MiB" in errors
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_trace_that_cannot_be_read_leaves_the_step_time_and_the_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(*_: object, **__: object) -> None:
        raise UnreadDevices("the trace is of /device:GPU:0")

    monkeypatch.setenv("JAXPROF_CACHE_DIR", str(tmp_path / "cache"))
    spec = DeviceSpec(name="cpu-mesh:8 device", peak_flops_per_s={"f32": 1e11}, hbm_bytes_per_s=1e10, hbm_bytes=1e12)
    save_calibration(spec, 8)
    monkeypatch.setattr("jaxprof.profiling.read_timeline", unread)
    few = ["measure.warmup_steps=1", "measure.timed_steps=2", "measure.traced_steps=1", "measure.windows=1"]
    report = profile(load_run("llama3-tiny-decode", few))
    summary = report.summary
    assert summary["evidence"] == "measured"
    assert summary["step_time_s"] > 0
    assert summary["mfu"] > 0
    assert summary["flops"]["compiled"] > 0
    assert summary["flops"]["executed"] is None
    assert set(summary["breakdown_s"].values()) == {None}
    assert summary["warnings"][0].startswith("times per op are unknown: the trace is of /device:GPU:0")
    assert "where the time goes is unknown" in summary["verdict"]
    saved = report.save(tmp_path / "run")
    assert (saved / "trace" / "original.xplane.pb").stat().st_size > 0


def test_too_few_devices_name_what_is_here() -> None:
    with pytest.raises(UserError, match="needs 16 devices, and JAX has started with 8 cpu"):
        profile(load_run("llama3-tiny-decode", ["mesh.data=4", "step.batch=16"]))
