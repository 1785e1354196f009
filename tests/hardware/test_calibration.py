"""The store of calibrations: what was saved comes back, what is damaged counts as absent and says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jaxprof.hardware.calibration import load_calibration, read_calibration, save_calibration
from jaxprof.hardware.device import DeviceSpec

SPEC = DeviceSpec(
    name="cpu-mesh:8 device",
    peak_flops_per_s={"f32": 1.5e11, "bf16": 9e10},
    hbm_bytes_per_s=2e10,
    hbm_bytes=3e9,
    link_bytes_per_s={"shared memory": 4e9},
    provenance="measured",
    notes=("devices share the cores",),
)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JAXPROF_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_what_is_saved_comes_back_for_that_number_of_devices_only() -> None:
    assert load_calibration(8) is None
    save_calibration(SPEC, 8)
    assert load_calibration(8) == SPEC
    assert load_calibration(4) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text[: len(text) // 2], "not JSON"),
        (lambda text: "", "not JSON"),
        (lambda text: "[]", "not usable"),
        (lambda text: text.replace('"schema": 1', '"schema": 99'), "schema is 99"),
        (lambda text: text.replace('"hbm_bytes": 3000000000.0', '"hbm_bytes": -1'), "not a positive number"),
        (lambda text: text.replace('"hbm_bytes":', '"hbm_size":'), "unknown field hbm_size"),
        (
            lambda text: json.dumps({**json.loads(text), "machine": {"cpu": "other", "cores": 1, "devices": 8}}),
            "another",
        ),
    ],
)
def test_a_damaged_file_counts_as_absent_and_says_why(change, reason: str) -> None:
    path = save_calibration(SPEC, 8)
    path.write_text(change(path.read_text()))
    stored = read_calibration(8)
    assert stored.spec is None
    assert stored.warning is not None
    assert reason in stored.warning
    assert str(path) in stored.warning


def test_saving_leaves_no_temporary_file(store: Path) -> None:
    path = save_calibration(SPEC, 8)
    save_calibration(SPEC, 8)
    assert [file for file in store.rglob("*") if file.is_file()] == [path]
