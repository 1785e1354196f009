"""A workload: a function to profile, what to call it with, and what is known of it beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from jaxprof.attribution.facts import StepFacts
from jaxprof.hlo.program import Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One jittable step with abstract arguments.

    ``function(*arguments)`` returns outputs; ``next_arguments(arguments, outputs)`` makes the following call's
    arguments (donated ones replaced by outputs).
    """

    facts: StepFacts
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    """Pytrees of ``jax.ShapeDtypeStruct`` with shardings."""
    owners: Callable[[str], Owner]
    """Owner of an argument leaf by its path (``keystr(path, simple=True, separator='.')`` of the arguments)."""
    out_shardings: Any = None
    donate_argnums: tuple[int, ...] = ()
    mesh: jax.sharding.Mesh | None = None
    make_arguments: Callable[[], tuple[Any, ...]] | None = None
    """Real arguments, sharded; None where only compiling is meant."""
    next_arguments: Callable[[tuple[Any, ...], Any], tuple[Any, ...]] | None = None
    steps_per_round: int | None = None
    """After this many calls the arguments are used up (a KV cache is full): make fresh ones. None: never."""
