"""What is said of a machine: packages, devices, calibration."""

from __future__ import annotations

import json
import subprocess

import pytest

import jaxprof.environment.checkup as checkup
import jaxprof.environment.devices as devices
from jaxprof.environment.packages import Package, libtpu, required_packages
from jaxprof.errors import UserError

from .conftest import Command


@pytest.mark.parametrize(
    ("required", "installed", "fits"),
    [
        (">=0.10.2", "0.12.0.1", True),
        (">=0.10.2", "0.9.9", False),
        ("==0.0.50.*", "0.0.50.1", True),
        ("==0.0.50.*", "0.0.51", False),
        (">=0.10.2", "0.11.0.dev20260101", True),
        ("", "1", True),
        (">=1", None, False),
    ],
)
def test_package_fits(required: str, installed: str | None, fits: bool) -> None:
    assert Package("some", required, installed).fits is fits


def test_packages_are_those_of_the_metadata() -> None:
    names = [package.name for package in required_packages()]
    assert {"jax", "jaxlib", "flax", "optax", "polars", "tensorboard"} <= set(names)
    assert not {"pytest", "ruff"} & set(names), "extras are not needed"
    assert all(package.fits for package in required_packages())


def test_libtpu_that_goes_with_this_jax_is_known() -> None:
    package = libtpu()
    assert package is not None
    assert package.required.startswith("==0.0.")


def test_doctor_finds_this_machine_well(jaxprof: Command) -> None:
    outcome = jaxprof("doctor", "--json")
    assert outcome.status == 0
    checks = {check["name"]: check for check in json.loads(outcome.out)["checks"]}
    assert checks["devices"]["found"] == "8 cpu (cpu)"
    assert checks["calibration, 8 devices"]["remedy"] == "jaxprof calibrate --devices 8"
    assert "All that is needed is here." in jaxprof("doctor").out


def test_doctor_says_how_to_install_what_is_missing(jaxprof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Package("polars", ">=1.20", None)
    old = Package("optax", ">=0.2.8", "0.1.0")
    monkeypatch.setattr(checkup, "required_packages", lambda: (absent, old))
    monkeypatch.setattr(checkup, "libtpu", lambda: Package("libtpu", "==0.0.50.*", "0.0.60"))
    outcome = jaxprof("doctor")
    assert outcome.status == 1
    assert "polars: python -m pip install 'polars>=1.20'" in outcome.out
    assert "optax: python -m pip install 'optax>=0.2.8'" in outcome.out
    assert "0.0.60; this jax goes with ==0.0.50.*" in outcome.out
    assert "libtpu: python -m pip install 'jax[tpu]==" in outcome.out


def test_f1_doctor_names_an_unknown_flag(jaxprof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_nothing_of_this_name=1")
    outcome = jaxprof("doctor")
    assert outcome.status == 1
    assert "flag not known here: --xla_nothing_of_this_name=1" in outcome.out


def answer(monkeypatch: pytest.MonkeyPatch, seen: list[tuple[str, str]]) -> list[object]:
    """Stands in for the child process; returns the questions that it was asked."""
    questions: list[object] = []

    def run(command: object, **_: object) -> subprocess.CompletedProcess[str]:
        questions.append(command)
        return subprocess.CompletedProcess([], 0, stdout=json.dumps(seen) + "\n", stderr="")

    monkeypatch.setattr(devices.subprocess, "run", run)
    return questions


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many devices were asked to be simulated."""
    counts: list[int] = []
    monkeypatch.setattr(devices, "simulate_devices", counts.append)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    return counts


def test_accelerators_are_taken_where_there_are_enough(monkeypatch: pytest.MonkeyPatch, simulated: list[int]) -> None:
    monkeypatch.setattr(devices, "accelerator_plugins", lambda: ("jax-cuda12-plugin",))
    answer(monkeypatch, [("gpu", "NVIDIA H100 80GB HBM3")] * 8)
    devices.choose_devices(8, "auto")
    devices.choose_devices(4, "gpu")
    assert simulated == []
    devices.choose_devices(16, "auto")
    assert simulated == [16]
    with pytest.raises(UserError, match="needs 16 gpu devices and JAX sees 8"):
        devices.choose_devices(16, "gpu")


def test_nothing_is_asked_where_no_accelerator_could_be(monkeypatch: pytest.MonkeyPatch, simulated: list[int]) -> None:
    monkeypatch.setattr(devices, "accelerator_plugins", lambda: ())
    questions = answer(monkeypatch, [])
    devices.choose_devices(8, "auto")
    devices.choose_devices(4, "cpu")
    assert (questions, simulated) == ([], [8, 4])


def test_plugin_without_a_device_means_simulation(monkeypatch: pytest.MonkeyPatch, simulated: list[int]) -> None:
    monkeypatch.setattr(devices, "accelerator_plugins", lambda: ("libtpu",))
    answer(monkeypatch, [("cpu", "cpu")])
    devices.choose_devices(8, "auto")
    assert simulated == [8]


def test_devices_that_do_not_answer_are_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("python", 120)

    monkeypatch.setattr(devices.subprocess, "run", run)
    with pytest.raises(UserError, match="did not list its devices within 120 s"):
        devices.devices_seen()
