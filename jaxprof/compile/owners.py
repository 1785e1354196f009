"""Whose an argument is, by its name: for functions of which nobody says it."""

from __future__ import annotations

import re

from jaxprof.hlo.program import Owner

_WORDS: tuple[tuple[Owner, frozenset[str]], ...] = (
    ("optimizer state", frozenset({"opt", "opt_state", "optimizer", "optimizer_state", "mu", "nu", "momentum"})),
    ("kv cache", frozenset({"cache", "kv", "kv_cache", "caches", "kv_caches"})),
    ("parameters", frozenset({"params", "parameters", "param", "weights", "model"})),
    ("batch", frozenset({"batch", "tokens", "inputs", "labels", "targets", "ids", "input_ids", "token"})),
)
"""The first row with a word of the path decides: ``state.opt_state.mu`` is optimizer state, not parameters."""


def owner_by_name(path: str) -> Owner:
    """The owner that the names along ``path`` (``params.layers.kernel``) suggest; "other arguments" where none does."""
    names = {name.strip("_") for name in re.split(r"[^a-z_]+", path.lower())}
    for owner, words in _WORDS:
        if names & words:
            return owner
    return "other arguments"
