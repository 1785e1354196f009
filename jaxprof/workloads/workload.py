"""A workload: a function to profile, what to call it with, and what is known of it beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import jax

from jaxprof.hlo.program import Owner

StepKind = Literal["train", "prefill", "decode", "function"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The architecture's own numbers; FLOPs are for one step over all devices, recompute excluded."""

    name: str
    parameters: int
    active_parameters: int
    non_embedding_parameters: int
    flops_causal: int
    """Attention counted over attended pairs only (exact causal, sliding window respected)."""
    flops_full: int
    """Attention counted over all pairs."""
    flops_parts: dict[str, int] = field(default_factory=dict)
    """flops_full by model part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One jittable step with abstract arguments.

    ``function(*arguments)`` returns outputs; ``next_arguments(arguments, outputs)`` makes the following call's arguments
    (donated ones replaced by outputs).
    """

    name: str
    step: StepKind
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    """Pytrees of ``jax.ShapeDtypeStruct`` with shardings."""
    owners: Callable[[str], Owner]
    """Owner of an argument leaf by its path (``jax.tree_util.keystr(path, simple=True, separator='.')`` of the tuple)."""
    out_shardings: Any = None
    donate_argnums: tuple[int, ...] = ()
    mesh: jax.sharding.Mesh | None = None
    make_arguments: Callable[[], tuple[Any, ...]] | None = None
    """Real arguments, sharded; None where only compiling is meant."""
    next_arguments: Callable[[tuple[Any, ...], Any], tuple[Any, ...]] | None = None
    steps_per_round: int | None = None
    """After this many calls the arguments are used up (a KV cache is full): start again from fresh ones. None: never."""
    tokens_per_step: int = 0
    """Over all devices."""
    global_batch: int = 0
    seq_len: int = 0
    model: ModelFacts | None = None
    notes: tuple[str, ...] = ()
    """Padding and replication done silently by real systems, said aloud here."""
