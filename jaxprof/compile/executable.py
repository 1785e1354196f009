"""A compiled program with the callable that runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxprof.hlo.program import Program


@dataclass(frozen=True, slots=True)
class Executable:
    """``program`` is plain data and outlives the device; ``call`` runs it with the arguments it was compiled for.

    A donated argument is gone after a call, as always in JAX: whoever calls repeatedly passes the outputs on, or
    copies.
    """

    program: Program
    call: Callable[..., Any]
    compiled: Any
    """The ``jax.stages.Compiled``."""
