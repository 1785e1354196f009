"""What ``jaxprof doctor`` finds: each thing looked at, whether it is well, and what to type where it is not."""

from __future__ import annotations

import platform
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jaxprof.environment.devices import devices_seen
from jaxprof.environment.packages import (
    accelerator_plugins,
    installed_version,
    libtpu,
    pip_install,
    required_packages,
    tensorboard_missing,
)
from jaxprof.errors import UserError
from jaxprof.hardware.calibration import calibration_path, read_calibration, this_machine

SIMULATED = 8
"""Devices of the mesh that the tiny presets simulate, whose calibration is looked for."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "note", "wrong"]
    """``note``: may stay as it is, but something more could be had; ``wrong``: has to be mended."""
    found: str
    remedy: str | None = None
    """What to type."""


def checkup() -> tuple[Check, ...]:
    """Looks at everything. Starts JAX in a child process only."""
    return (*_software(), *_viewer(), *_devices(), _libtpu(), *_gpu_plugin(), _calibration())


def _software() -> Iterator[Check]:
    yield Check("jaxprof", "ok", installed_version("jaxprof") or "a source tree that was never installed")
    yield Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in required_packages():
        if package.fits:
            yield Check(package.name, "ok", str(package.installed))
        else:
            found = f"{package.installed or 'not installed'}, needs {package.required}"
            yield Check(package.name, "wrong", found, package.install)


def _viewer() -> Iterator[Check]:
    xprof = installed_version("xprof")
    if xprof:
        yield Check("xprof", "ok", xprof)
    elif tensorboard_missing() is None:
        yield Check("xprof", "wrong", "not installed, though its TensorBoard plugin is", pip_install("xprof"))


def _devices() -> Iterator[Check]:
    try:
        seen = devices_seen()
    except UserError as error:
        yield Check("devices", "wrong", "JAX does not start", str(error))
        return
    counts = Counter((device.platform, device.kind) for device in seen)
    listed = ", ".join(f"{count} {platform} ({kind})" for (platform, kind), count in counts.items())
    yield Check("devices", "ok", listed)


def _libtpu() -> Check:
    """libtpu has to be the one that jax names: with a newer one programs compile and cannot be read."""
    wanted = libtpu()
    here = _tpu_is_here()
    if wanted is None:
        return Check("libtpu", "note", "unknown without jax")
    if wanted.installed is None:
        found = "not installed; only needed for TPUs" + (", and one is here" if here else "")
        return Check("libtpu", "wrong" if here else "note", found, _jax_extra("tpu"))
    if not wanted.fits:
        return Check("libtpu", "wrong", f"{wanted.installed}; this jax goes with {wanted.required}", _jax_extra("tpu"))
    return Check("libtpu", "ok", wanted.installed)


def _gpu_plugin() -> Iterator[Check]:
    plugins = [name for name in accelerator_plugins() if name != "libtpu"]
    if plugins:
        yield Check("GPU plugin", "ok", ", ".join(plugins))
    elif shutil.which("nvidia-smi"):
        yield Check("GPU plugin", "wrong", "an NVIDIA driver is here and JAX's plugin is not", _jax_extra("cuda12"))
    else:
        yield Check("GPU plugin", "note", "not installed; only needed for GPUs", _jax_extra("cuda12"))


def _calibration() -> Check:
    stored = read_calibration(SIMULATED)
    name = f"calibration, {SIMULATED} devices"
    if stored.spec:
        return Check(name, "ok", str(calibration_path(this_machine(SIMULATED))))
    return Check(
        name, "note", stored.warning or "none yet; the first run makes one", f"jaxprof calibrate --devices {SIMULATED}"
    )


def _tpu_is_here() -> bool:
    return any(Path("/dev").glob("accel[0-9]*"))


def _jax_extra(extra: str) -> str:
    jax = installed_version("jax")
    return pip_install(f"jax[{extra}]=={jax}" if jax else f"jax[{extra}]")
