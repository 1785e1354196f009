"""Versions and flags that a run's figures depend on, without importing what they belong to."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata

_COMPILERS = {
    "tpu": ("libtpu",),
    "gpu": ("jax-cuda13-pjrt", "jax-cuda12-pjrt"),
    "cpu": ("jaxlib",),
}
"""Packages that carry the compiler, by platform."""


def environment(program_platform: str) -> dict[str, str | None]:
    """The ``environment`` of run.json. ``git`` is the revision of the current folder: the user's program, not ours."""
    compilers = ((package, version(package)) for package in _COMPILERS.get(program_platform, ()))
    flags = [os.environ.get(name) for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")]
    return {
        "jaxprof": version("jaxprof"),
        "jax": version("jax"),
        "jaxlib": version("jaxlib"),
        "compiler": next((f"{package} {found}" for package, found in compilers if found), None),
        "python": platform.python_version(),
        "flags": " ".join(flag.strip() for flag in flags if flag),
        "git": git_revision(),
    }


def git_revision() -> str | None:
    """Commit of the current folder, with ``-dirty`` behind it where files differ from it; None outside a repository."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def version(package: str) -> str | None:
    """Installed version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
