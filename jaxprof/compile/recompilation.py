"""Why a function compiles again: which argument differs from what it was compiled for, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import jax
import numpy as np
from jax import monitoring

from jaxprof.compile.arguments import hlo_dtype, shown_paths

_BACKEND_COMPILE = "/jax/core/compile/backend_compile_duration"


@dataclass(frozen=True, slots=True)
class LeafType:
    """What of one argument leaf decides whether a compiled program can be used for it."""

    kind: str
    """Array, numpy.float64, float, or the value itself of what is no array."""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    weak_type: bool = False
    sharding: str = ""

    def __str__(self) -> str:
        if not self.dtype:
            return self.kind
        weak = "weak " if self.weak_type else ""
        place = f" {self.sharding}" if self.sharding else ""
        return f"{self.kind} {weak}{self.dtype}[{','.join(map(str, self.shape))}]{place}"


CallType = Mapping[str, LeafType]
"""Types of the leaves of one call's arguments by path."""


@dataclass(frozen=True, slots=True)
class Recompilation:
    """One call for which the function's cache had nothing."""

    call: int
    """Counted from 1."""
    programs: int
    """How many programs were compiled; 0 where only a cache entry was made, for a type that a known program serves."""
    seconds: float
    """Compiling alone."""
    reason: str


class RecompilationWatch:
    """Calls a function and writes down each call that compiles, with the argument that made it do so.

    ``step = RecompilationWatch(jax.jit(step))``, then call as before and read ``step.found``.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.found: list[Recompilation] = []
        self._function = function
        self._seen: list[CallType] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = _call_type(self._function, args, kwargs)  # before the call, which may use up donated arguments
        compiles: list[float] = []

        def heard(event: str, duration_secs: float, **_: str | int) -> None:
            if event == _BACKEND_COMPILE:
                compiles.append(duration_secs)

        entries = self._entries()
        monitoring.register_event_duration_secs_listener(heard)
        try:
            return self._function(*args, **kwargs)
        finally:
            monitoring.unregister_event_duration_listener(heard)
            self._seen.append(call)
            if compiles or self._entries() > entries:
                reason = _reason(call, self._seen[:-1])
                self.found.append(Recompilation(len(self._seen), len(compiles), sum(compiles), reason))

    def _entries(self) -> int:
        """Entries in the function's own cache; 0 for a function that keeps none."""
        size = getattr(self._function, "_cache_size", None)
        return size() if size is not None else 0


def explain_recompilation(calls: Sequence[tuple[Any, ...]], function: Callable[..., Any]) -> list[str]:
    """One line for each call that would compile again, of calls given by their positional arguments.

    ``function`` gives the arguments their names.
    """
    types = [_call_type(function, args, {}) for args in calls]
    return [
        f"call {number}: {_reason(call, types[: number - 1])}"
        for number, call in enumerate(types, start=1)
        if number > 1 and call not in types[: number - 1]
    ]


def _reason(call: CallType, earlier: Sequence[CallType]) -> str:
    """How a call differs from the most similar earlier one."""
    if not earlier:
        return "first call"
    if call in earlier:
        return "no argument differs: a new function is jitted on each call; jit it once, outside"
    nearest = min(reversed(earlier), key=lambda other: len(_differing(call, other)))
    if call.keys() != nearest.keys():
        changed = ", ".join(sorted(call.keys() ^ nearest.keys()))
        return f"the structure of the arguments differs: {changed}"
    return "; ".join(
        f"{path} differs in {_aspects(call[path], nearest[path])}: {nearest[path]} before, {call[path]} now"
        for path in _differing(call, nearest)
    )


def _differing(call: CallType, other: CallType) -> list[str]:
    return [path for path in call.keys() | other.keys() if call.get(path) != other.get(path)]


def _aspects(new: LeafType, old: LeafType) -> str:
    names = [field.name for field in fields(new) if getattr(new, field.name) != getattr(old, field.name)]
    return ", ".join(name.replace("_", " ") for name in names)


def _call_type(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CallType:
    leaves = jax.tree.leaves((args, dict(kwargs)))
    return {path: _leaf_type(leaf) for path, leaf in zip(shown_paths(function, args, kwargs), leaves, strict=True)}


def _leaf_type(leaf: Any) -> LeafType:
    if isinstance(leaf, jax.Array):
        return LeafType("array", leaf.shape, _dtype(leaf.dtype), leaf.weak_type, _sharding(leaf))
    if isinstance(leaf, (np.ndarray, np.generic)):
        kind = "numpy array" if isinstance(leaf, np.ndarray) else "numpy scalar"
        return LeafType(kind, leaf.shape, _dtype(leaf.dtype))
    if isinstance(leaf, (bool, int, float, complex)):
        return LeafType(f"Python {type(leaf).__name__}", (), _dtype(jax.numpy.result_type(leaf)), True)
    return LeafType(repr(leaf))


def _dtype(dtype: Any) -> str:
    return str(dtype) if jax.numpy.issubdtype(dtype, jax.dtypes.extended) else hlo_dtype(dtype)


def _sharding(array: jax.Array) -> str:
    """How an array lies on its devices; an uncommitted one goes where the others are."""
    if not array.committed:
        return ""
    sharding = array.sharding
    if isinstance(sharding, jax.sharding.NamedSharding):
        axes = ", ".join(f"{name}={size}" for name, size in sharding.mesh.shape.items())
        return f"{sharding.spec} over {axes}"
    return str(sharding)
