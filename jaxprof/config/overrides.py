"""``key=value`` on the command line: values are TOML, or JSON, or plain words; nothing is evaluated."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path

from jaxprof.config.keys import all_keys, fields_of, tables, unknown_key
from jaxprof.config.settings import Setting, Settings, model_settings, replace_model
from jaxprof.config.shipped import locate
from jaxprof.config.values import WrongValue, convert
from jaxprof.errors import UserError


def apply_overrides(settings: Settings, overrides: Sequence[str]) -> Settings:
    """``settings`` with each override in place of what the file says; of two for one key the later holds.

    ``model=NAME`` takes another model preset (or file) and comes before overrides of single model keys, wherever it
    stands. Raises UserError.
    """
    pairs = [_split(text) for text in overrides]
    for key, text in pairs:
        if key == "model":
            settings = replace_model(settings, _model(text))
    for key, text in pairs:
        if key != "model":
            settings = settings | {key: _setting(key, text)}
    return settings


def parse_value(text: str) -> object:
    """A value as TOML has it, as JSON has it (``{"save": ["q"]}``), or else the words themselves."""
    try:
        content = tomllib.loads(f"value = {text}")
        if list(content) == ["value"]:
            return content["value"]
    except tomllib.TOMLDecodeError:
        pass
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _split(text: str) -> tuple[str, str]:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals:
        raise UserError("has no '='; write key=value, as in step.batch=16", where=f"command line: {text}")
    if not key:
        raise UserError("has no key before '='; write key=value, as in step.batch=16", where=f"command line: {text}")
    if not value:
        raise UserError(f"has no value; write {key}=VALUE", where=f"command line: {key}")
    return key, value


def _model(text: str) -> Settings:
    where = "command line: model"
    value = parse_value(text)
    if not isinstance(value, str):
        raise UserError("takes the name of a model preset; write single keys as model.KEY=VALUE", where=where)
    return model_settings(locate(value, "models", Path(), where))


def _setting(key: str, text: str) -> Setting:
    where = f"command line: {key}"
    kind = all_keys().get(key)
    if kind is None:
        raise UserError(_not_a_key(key), where=where)
    value = parse_value(text)
    if value == text and text[0] in "[{\"'":
        raise UserError(f"{text} is neither TOML nor JSON; quote the whole for the shell, '{key}=...'", where=where)
    try:
        return Setting(convert(value, kind), where)
    except WrongValue as wrong:
        raise UserError(str(wrong), where=where) from None


def _not_a_key(key: str) -> str:
    if key in tables():
        names = [f"{key}.{name}=..." for name in fields_of(tables()[key])]
        return f"is a table; write one of its keys, as in {', '.join(names[:3])}"
    if key == "extends":
        return "stands only in files; name the other preset in place of this one"
    table, _, name = key.partition(".")
    outer = key.rpartition(".")[0]
    if outer in all_keys():
        return f"unknown key; {outer} is set as a whole, as in '{outer}={{{name.rpartition('.')[2]} = ...}}'"
    return unknown_key(name, table) if name and table in tables() else unknown_key(key)
