"""Versions and flags that a run's figures depend on, without importing what they belong to."""

from __future__ import annotations

import os
import platform
from importlib import metadata

_COMPILERS = {
    "tpu": ("libtpu",),
    "gpu": ("jax-cuda13-pjrt", "jax-cuda12-pjrt"),
    "cpu": ("jaxlib",),
}
"""Packages that carry the compiler, by platform."""


def environment(program_platform: str) -> dict[str, str | None]:
    """The ``environment`` of run.json. The git revision is the caller's to add."""
    compilers = ((package, version(package)) for package in _COMPILERS.get(program_platform, ()))
    flags = [os.environ.get(name) for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")]
    return {
        "jaxprof": version("jaxprof"),
        "jax": version("jax"),
        "jaxlib": version("jaxlib"),
        "compiler": next((f"{package} {found}" for package, found in compilers if found), None),
        "python": platform.python_version(),
        "flags": " ".join(flag.strip() for flag in flags if flag),
        "git": None,
    }


def version(package: str) -> str | None:
    """Installed version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
