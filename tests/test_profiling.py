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


def test_too_few_devices_name_what_is_here() -> None:
    with pytest.raises(UserError, match="needs 16 devices, and JAX has started with 8 cpu"):
        profile(load_run("llama3-tiny-decode", ["mesh.data=4", "step.batch=16"]))
