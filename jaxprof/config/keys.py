"""The keys that a run file may hold, read off the schema's dataclasses."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, get_type_hints

from jaxprof.config.schema import ModelConfig, RunConfig
from jaxprof.config.values import closest

NOT_KEYS = frozenset({"written"})


@functools.cache
def fields_of(table: type) -> Mapping[str, Any]:
    """Type of each key of a table, by name."""
    return {name: kind for name, kind in get_type_hints(table).items() if name not in NOT_KEYS}


def is_table(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind)


@functools.cache
def tables() -> Mapping[str, type]:
    """The dataclass of each table of a run file, by name."""
    return {name: kind for name, kind in fields_of(RunConfig).items() if is_table(kind)}


@functools.cache
def all_keys() -> Mapping[str, Any]:
    """Type of each key of a run file, by its dotted name (``step.batch``)."""
    top = {name: kind for name, kind in fields_of(RunConfig).items() if not is_table(kind)}
    return top | {f"{table}.{name}": kind for table, cls in tables().items() for name, kind in fields_of(cls).items()}


def required_keys() -> tuple[str, ...]:
    """Dotted names of the keys without a default."""
    return tuple(
        f"{table}.{field.name}"
        for table, cls in tables().items()
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )


def unknown_key(name: str, table: str = "") -> str:
    """The message for a key that does not exist. ``table`` is the one it stands in, nothing for the top of a file."""
    allowed = fields_of(tables()[table] if table else RunConfig)
    elsewhere = [key for key in all_keys() if key.rpartition(".")[2] == name]
    suggestion = f" (did you mean {elsewhere[0]}?)" if elsewhere else closest(name, allowed)
    names = ", ".join(key for key in allowed if key not in ("name", "description"))
    return f"unknown key{suggestion}; {table or 'a run'} has {names}"


def unknown_model_key(name: str) -> str:
    """The same for a model file, whose top is the model table."""
    return f"unknown key{closest(name, fields_of(ModelConfig))}; a model has {', '.join(fields_of(ModelConfig))}"
