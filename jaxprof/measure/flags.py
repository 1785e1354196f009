"""What has to be set before JAX starts. Imports no JAX."""

from __future__ import annotations

import os
import re
import sys

from jaxprof.errors import UserError

_COUNT = re.compile(r"\s*--xla_force_host_platform_device_count=\S*")
_PATIENCE = (
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds=120",
    "--xla_cpu_collective_call_terminate_timeout_seconds=1200",
)
"""Devices that share a core can be late at a collective by more than the 40 s after which XLA ends the process."""


def simulate_devices(count: int) -> None:
    """Makes JAX see ``count`` simulated CPU devices, and nothing else, when it starts.

    Flags already in XLA_FLAGS are kept. Raises UserError where JAX has started with fewer CPU devices.
    """
    flags = _COUNT.sub("", os.environ.get("XLA_FLAGS", "")).split()
    given = {flag.split("=")[0] for flag in flags}
    flags += [flag for flag in _PATIENCE if flag.split("=")[0] not in given]
    os.environ["XLA_FLAGS"] = " ".join([*flags, f"--xla_force_host_platform_device_count={count}"])
    if "jax" not in sys.modules:
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        return
    import jax

    found = len(jax.devices("cpu"))
    if found < count:
        raise UserError(
            f"{count} simulated devices were asked for, but JAX has already started with {found}; set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={count} before JAX is first used"
        )
