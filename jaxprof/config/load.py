"""From the name of a preset or the path of a TOML file, and overrides, to a ``RunConfig`` and back."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jaxprof.config.document import shown_path
from jaxprof.config.keys import NOT_KEYS, required_keys, tables
from jaxprof.config.overrides import apply_overrides
from jaxprof.config.schema import ModelConfig, RunConfig
from jaxprof.config.settings import Settings, model_settings, run_settings
from jaxprof.config.shipped import locate
from jaxprof.config.values import show, show_key
from jaxprof.errors import UserError


def load_run(reference: str, overrides: Sequence[str] = ()) -> RunConfig:
    """The run that ``reference`` names, with ``key=value`` overrides.

    ``reference`` is a preset's name or the path of a ``.toml`` file. Raises UserError on anything unknown, missing or
    of the wrong type; ``jaxprof.config.check.check_run`` judges whether the parts go together.
    """
    where = "command line"
    if os.sep in reference and not reference.endswith(".toml"):
        raise UserError(f"{reference!r} is not a config; a file's name ends in .toml", where=where)
    path = locate(reference, "runs", Path(), where)
    settings = apply_overrides(run_settings(path), overrides)
    return _run_config(settings, path)


def load_model(reference: str) -> ModelConfig:
    """The model that ``reference``, a preset's name or the path of a ``.toml`` file, names."""
    path = locate(reference, "models", Path(), "command line")
    settings = model_settings(path)
    _require((key for key in required_keys() if key.startswith("model.")), settings, path)
    return ModelConfig(**_table(settings, "model"))


def to_dict(config: RunConfig) -> dict[str, Any]:
    """The whole config as plain data for JSON, defaults included."""
    return {key: value for key, value in dataclasses.asdict(config).items() if key not in NOT_KEYS}


def to_toml(config: RunConfig) -> str:
    """The whole config as a run file that loads to an equal one."""
    content = to_dict(config)
    top = [f"{key} = {show(value)}" for key, value in content.items() if key not in tables()]
    blocks = ["\n".join(top)]
    for table in tables():
        keys = [f"{show_key(key)} = {show(value)}" for key, value in content[table].items()]
        blocks.append("\n".join([f"[{table}]", *keys]))
    return "\n\n".join(blocks) + "\n"


def _run_config(settings: Settings, path: Path) -> RunConfig:
    values: dict[str, Any] = {table: _table(settings, table) for table in tables()}
    if not values["model"]:
        raise UserError('missing; write model = "NAME" with a model preset\'s name', where=f"{shown_path(path)}: model")
    _require(required_keys(), settings, path)
    values["model"].setdefault("name", settings["name"].value)
    return RunConfig(
        **{key: setting.value for key, setting in settings.items() if "." not in key},
        **{table: cls(**values[table]) for table, cls in tables().items()},
        written={key: setting.where for key, setting in settings.items()},
    )


def _table(settings: Settings, table: str) -> dict[str, Any]:
    prefix = f"{table}."
    return {key.removeprefix(prefix): setting.value for key, setting in settings.items() if key.startswith(prefix)}


def _require(keys: Iterable[str], settings: Settings, path: Path) -> None:
    missing = [key for key in keys if key not in settings]
    if missing:
        more = f" (and so are {', '.join(missing[1:])})" if missing[1:] else ""
        table, _, name = missing[0].partition(".")
        raise UserError(f"missing{more}; write {name} = ... under [{table}]", where=f"{shown_path(path)}: {missing[0]}")
