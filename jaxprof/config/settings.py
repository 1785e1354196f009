"""Keys with their values and the place each was written, gathered over ``extends`` and a run's model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxprof.config.document import Document, read_document, shown_path
from jaxprof.config.keys import fields_of, is_table, unknown_key, unknown_model_key
from jaxprof.config.schema import ModelConfig, RunConfig
from jaxprof.config.shipped import locate
from jaxprof.config.values import WrongValue, convert, show
from jaxprof.errors import UserError


@dataclass(frozen=True, slots=True)
class Setting:
    """A key's value, already of the schema's type."""

    value: Any
    where: str


Settings = dict[str, Setting]
"""By dotted key, as a run has it (``model.layers``, also when read from a model's own file)."""


def run_settings(path: Path, chain: tuple[Path, ...] = ()) -> Settings:
    """All keys that the run file at ``path`` sets, by itself, through ``extends`` and through its model.

    Raises UserError on the first thing wrong.
    """
    document, base = _open(path, chain, run_settings, "runs")
    settings = {key: setting for key, setting in base.items() if key not in ("name", "description")}
    settings["name"] = Setting(path.stem, shown_path(path))
    for name, value in document.content.items():
        if name == "extends":
            continue
        kind = fields_of(RunConfig).get(name)
        if kind is None:
            raise UserError(unknown_key(name), where=document.where(name))
        if not is_table(kind):
            settings[name] = _setting(document, name, value, kind)
        elif name == "model":
            model = _model_base(document, value)
            settings = settings if model is None else replace_model(settings, model)
            if isinstance(value, dict):
                own = {key: item for key, item in value.items() if key != "extends"}
                settings |= _table_settings(document, name, own, kind)
        else:
            settings |= _table_settings(document, name, value, kind)
    return settings


def model_settings(path: Path, chain: tuple[Path, ...] = ()) -> Settings:
    """All keys that the model file at ``path`` sets, by itself and through ``extends``."""
    document, base = _open(path, chain, model_settings, "models")
    settings = {key: setting for key, setting in base.items() if key != "model.description"}
    settings["model.name"] = Setting(path.stem, shown_path(path))
    for key, value in document.content.items():
        if key == "extends":
            continue
        if key not in fields_of(ModelConfig):
            raise UserError(unknown_model_key(key), where=document.where(key))
        settings[f"model.{key}"] = _setting(document, key, value, fields_of(ModelConfig)[key])
    return settings


def replace_model(settings: Settings, model: Settings) -> Settings:
    """``settings`` with another model in place of all that was said of the first."""
    return {key: setting for key, setting in settings.items() if not key.startswith("model.")} | model


def _table_settings(document: Document, table: str, content: object, kind: type) -> Settings:
    if not isinstance(content, dict):
        raise UserError(
            f"is {show(content)}, but is a table; write [{table}] with {', '.join(fields_of(kind))} under it",
            where=document.where(table),
        )
    settings = {}
    for name, value in content.items():
        key = f"{table}.{name}"
        if name not in fields_of(kind):
            raise UserError(unknown_key(name, table), where=document.where(key))
        settings[key] = _setting(document, key, value, fields_of(kind)[name])
    return settings


def _open(
    path: Path, chain: tuple[Path, ...], read: Callable[[Path, tuple[Path, ...]], Settings], kind: Any
) -> tuple[Document, Settings]:
    """The file, and the settings of the one that it extends."""
    document = read_document(path)
    reference = document.content.get("extends")
    if reference is None:
        return document, {}
    where = document.where("extends")
    base = locate(_reference(reference, where), kind, path.parent, where)
    chain = (*chain, path.resolve())
    if base.resolve() in chain:
        circle = " -> ".join(file.name for file in (*chain, base))
        raise UserError(f"files extend each other in a circle ({circle}); remove one `extends`", where=where)
    return document, read(base, chain)


def _model_base(document: Document, value: object) -> Settings | None:
    """Settings of the model preset or file that a run names, by ``model = NAME`` or by ``extends`` in its table."""
    reference, key = (value.get("extends"), "model.extends") if isinstance(value, dict) else (value, "model")
    if reference is None:
        return None
    where = document.where(key)
    return model_settings(locate(_reference(reference, where), "models", document.path.parent, where))


def _reference(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"is {show(value)}, but must be the name of a preset or the path of a .toml file", where=where)
    return value


def _setting(document: Document, key: str, value: object, kind: Any) -> Setting:
    where = document.where(key)
    try:
        return Setting(convert(value, kind), where)
    except WrongValue as wrong:
        raise UserError(str(wrong), where=where) from None
