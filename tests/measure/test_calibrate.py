"""The calibration's shape. Its figures are this machine's, so only relations between them can be tested."""

from __future__ import annotations

import os

import pytest

from jaxprof.errors import UserError
from jaxprof.measure.calibrate import calibrate


def test_a_simulated_device_gets_peaks_bandwidths_and_its_share_of_memory():
    said: list[str] = []
    spec = calibrate(2, said.append)
    assert spec.name == "cpu-mesh:2 device" and spec.provenance == "measured"
    assert set(spec.peak_flops_per_s) == {"f32", "bf16"} and set(spec.link_bytes_per_s) == {"shared memory"}
    assert spec.hbm_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2
    assert spec.hbm_bytes_per_s is not None and spec.peak_flops_per_s["f32"] > spec.hbm_bytes_per_s
    assert spec.hbm_bytes_per_s > spec.link_bytes_per_s["shared memory"] > 0
    assert "2 simulated devices share" in spec.notes[0]
    assert said[0].startswith("calibrating this machine, 1 of ")


def test_more_devices_than_there_are_cannot_be_calibrated():
    with pytest.raises(UserError, match="calibrating 64 devices needs as many, but JAX has 8 CPU devices"):
        calibrate(64)
