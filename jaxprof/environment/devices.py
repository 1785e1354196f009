"""Which devices JAX would see, asked of a child process, and the choice between them and simulated ones.

A child, because what is asked cannot be undone: an unknown flag in XLA_FLAGS ends the process that starts JAX, and the
number of simulated devices is fixed once JAX has started.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from jaxprof.environment.packages import accelerator_plugins
from jaxprof.errors import UserError
from jaxprof.measure.flags import simulate_devices

Platform = Literal["auto", "cpu", "gpu", "tpu"]

_QUESTION = """
import json, jax
print(json.dumps([[device.platform, device.device_kind] for device in jax.devices()]))
"""
_ANSWER_WITHIN_S = 120.0
_UNKNOWN_FLAG = re.compile(r"Unknown flags? in XLA_FLAGS: (.+)")
_BAD_VALUE = re.compile(r"Couldn't interpret value (\S*) for flag (\S+?)\.?$", re.MULTILINE)
_FATAL = re.compile(r"^F\d{4} \S+ +\d+ [^\]]*\] (.+)$", re.MULTILINE)
_DEVICE_COUNT = "--xla_force_host_platform_device_count="


@dataclass(frozen=True, slots=True)
class SeenDevice:
    """One device as JAX lists it."""

    platform: str
    """cpu, gpu or tpu."""
    kind: str


def devices_seen(environment: Mapping[str, str] | None = None) -> tuple[SeenDevice, ...]:
    """What ``jax.devices()`` says in a process with ``environment`` (this one's by default).

    Raises UserError where JAX does not start: an unknown flag or platform, a device that another process holds.
    """
    environment = dict(os.environ if environment is None else environment)
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    command = [sys.executable, "-c", _QUESTION]
    try:
        child = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"JAX did not list its devices within {_ANSWER_WITHIN_S:.0f} s; another process may hold them, or "
            "JAX_PLATFORMS=cpu leaves them out"
        ) from None
    if child.returncode:
        raise _refusal(child.stderr, environment)
    return tuple(SeenDevice(platform, kind) for platform, kind in json.loads(child.stdout.splitlines()[-1]))


def choose_devices(count: int, platform: Platform) -> None:
    """Sets the environment so that JAX, started after this, has ``count`` devices of ``platform`` where that can be.

    "auto" takes accelerators where there are enough of them and simulates otherwise. Raises UserError where JAX would
    not start.
    """
    if platform == "cpu" or (platform == "auto" and not _accelerators(count)):
        if _own_flags():
            devices_seen({**os.environ, "JAX_PLATFORMS": "cpu"})
        simulate_devices(count)
    elif platform != "auto":
        found = sum(device.platform == platform for device in devices_seen())
        if found < count:
            raise UserError(
                f"the mesh needs {count} {platform} devices and JAX sees {found}; write a smaller mesh, "
                "measure.platform=cpu to simulate it, or `jaxprof doctor` to see what is missing",
                where="measure.platform",
            )


def _accelerators(count: int) -> bool:
    """Whether JAX has ``count`` of them. Not asked where nothing could be found: the question takes seconds."""
    wanted = os.environ.get("JAX_PLATFORMS", "")
    if wanted == "cpu" or not (wanted or accelerator_plugins()):
        return False
    return sum(device.platform != "cpu" for device in devices_seen()) >= count


def _own_flags() -> bool:
    """Whether XLA_FLAGS holds anything that this program does not set itself."""
    return any(not flag.startswith(_DEVICE_COUNT) for flag in os.environ.get("XLA_FLAGS", "").split())


def _refusal(stderr: str, environment: Mapping[str, str]) -> UserError:
    """Why JAX did not start, from what it wrote to standard error."""
    if unknown := _UNKNOWN_FLAG.search(stderr):
        return UserError(
            f"flag not known here: {unknown[1]}; take it out (flags of the TPU compiler go to LIBTPU_INIT_ARGS)",
            where="XLA_FLAGS",
        )
    if bad := _BAD_VALUE.search(stderr):
        return UserError(f"{bad[2]} cannot be {bad[1] or 'empty'!r}", where="XLA_FLAGS")
    if fatal := _FATAL.search(stderr):
        return UserError(f"JAX does not start: {fatal[1]}")
    lines = stderr.strip().splitlines()
    reason = (
        lines[-1].removesuffix(" (set JAX_PLATFORMS='' to automatically choose an available backend)") if lines else ""
    )
    wanted = environment.get("JAX_PLATFORMS")
    where = f"JAX_PLATFORMS={wanted}" if wanted else None
    hint = "unset it, or set it to cpu" if wanted else "`jaxprof doctor` says what is installed"
    return UserError(f"JAX does not start ({reason or 'it gave no reason'}); {hint}", where=where)
