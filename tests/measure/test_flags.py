"""Simulated devices are asked for before JAX starts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from jaxprof.errors import UserError
from jaxprof.measure.flags import simulate_devices


def _python(script: str, **environment: str) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**clean, **environment}, check=True
    )
    return done.stdout.strip()


def test_devices_are_simulated_and_other_flags_stay():
    script = """
import os
from jaxprof.measure.flags import simulate_devices
simulate_devices(3)
import jax
print(jax.device_count(), jax.default_backend(), "--xla_cpu_enable_fast_math=false" in os.environ["XLA_FLAGS"])
"""
    flags = "--xla_cpu_enable_fast_math=false --xla_force_host_platform_device_count=16"
    assert _python(script, XLA_FLAGS=flags) == "3 cpu True"


def test_importing_the_module_starts_no_jax():
    assert _python("import sys, jaxprof.measure.flags; print('jax' in sys.modules)") == "False"


def test_too_few_devices_in_a_started_jax_say_what_to_set(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"])
    with pytest.raises(UserError, match=r"already started with 8; set XLA_FLAGS=--xla_force_host_\w+_count=64"):
        simulate_devices(64)


def test_enough_devices_in_a_started_jax_are_fine(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"])
    simulate_devices(8)
