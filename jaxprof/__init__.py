"""jaxprof: where the time of one step of a sharded JAX program goes."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("jaxprof")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"
