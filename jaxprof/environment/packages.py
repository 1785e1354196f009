"""Which packages are installed and which ought to be, read from the packages' own metadata."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, requires, version

from packaging.requirements import Requirement


@dataclass(frozen=True, slots=True)
class Package:
    """A requirement beside what is installed."""

    name: str
    required: str
    """A version specifier, as in ``>=0.10.2``."""
    installed: str | None

    @property
    def fits(self) -> bool:
        return self.installed is not None and Requirement(f"{self.name}{self.required}").specifier.contains(
            self.installed, prereleases=True
        )

    @property
    def install(self) -> str:
        """The command that installs what is required."""
        return pip_install(f"{self.name}{self.required}")


def pip_install(requirement: str) -> str:
    return f"python -m pip install {shlex.quote(requirement)}"


def required_packages() -> tuple[Package, ...]:
    """What jaxprof needs, and the jaxlib of the jax that is installed."""
    return (*_requirements("jaxprof", extra=""), *(p for p in _requirements("jax", extra="") if p.name == "jaxlib"))


def libtpu() -> Package | None:
    """The libtpu that goes with the jax that is installed; None where jax is not."""
    return next((package for package in _requirements("jax", extra="tpu") if package.name == "libtpu"), None)


def installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def accelerator_plugins() -> tuple[str, ...]:
    """Names of the installed packages through which JAX finds accelerators."""
    names = {entry.dist.name for entry in entry_points(group="jax_plugins") if entry.dist is not None}
    return tuple(sorted(names | ({"libtpu"} if importlib.util.find_spec("libtpu") else set())))


def tensorboard_missing() -> str | None:
    """What has to be installed before TensorBoard can show XProf's pages; None where nothing has."""
    needed = ("tensorboard", "tensorboard-plugin-profile")
    missing = [name for name in needed if installed_version(name) is None]
    return f"{' and '.join(missing)} not installed; python -m pip install {' '.join(missing)}" if missing else None


def _requirements(distribution: str, *, extra: str) -> Iterator[Package]:
    try:
        texts = requires(distribution) or []
    except PackageNotFoundError:
        return
    for text in texts:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield Package(requirement.name, str(requirement.specifier), installed_version(requirement.name))
