"""jaxprof: where the time of one step of a sharded JAX program goes."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxprof.inspection import inspect

__all__ = ["__version__", "inspect"]

try:
    __version__ = version("jaxprof")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """Loads what needs JAX when it is first asked for: ``import jaxprof`` alone must not start a backend."""
    if name == "inspect":
        from jaxprof.inspection import inspect

        return inspect
    raise AttributeError(f"module 'jaxprof' has no attribute {name!r}")
