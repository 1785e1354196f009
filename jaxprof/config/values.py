"""TOML values as the schema's types: checked, never coerced, with a message that says what would be right."""

from __future__ import annotations

import difflib
import json
import math
import types
from collections.abc import Iterable
from typing import Any, Literal, Union, get_args, get_origin

_PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


class WrongValue(Exception):
    """The value does not fit its key. The message starts after the key's name; whoever knows the file adds where."""


def convert(value: object, kind: Any) -> Any:
    """``value`` as read from TOML, as the type ``kind`` of a schema field. Raises WrongValue.

    A whole number stands for a float, the text "none" for None (TOML has no null). Nothing else is converted.
    """
    members = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if types.NoneType in members and value == "none":
        return None
    for member in members:
        if _fits(value, member):
            return _inside(value, member)
    raise WrongValue(f"is {show(value)}, but must be {expected(kind)}{_hint(value, members)}")


def expected(kind: Any) -> str:
    """What may be written for a key of this type, in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(expected(member) for member in arguments)
    if kind is types.NoneType:
        return '"none"'
    if origin is Literal:
        return arguments[0] if len(arguments) == 1 else f"one of {', '.join(arguments)}"
    if origin is dict:
        return "a table of lists" if get_origin(arguments[1]) is list else "a table of numbers"
    if origin is list:
        return "a list of texts"
    return _PLAIN[kind]


def show(value: object) -> str:
    """A value in TOML's spelling; None as "none"."""
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(show(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{show_key(key)} = {show(item)}' for key, item in value.items())}}}"
    return str(value)


def show_key(key: str) -> str:
    """A key in TOML's spelling: quoted where it must be."""
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else show(key)


def closest(word: str, known: Iterable[str]) -> str:
    """`` (did you mean X?)`` for the known word nearest to ``word``, or nothing where none is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def _fits(value: object, kind: Any) -> bool:
    origin = get_origin(kind)
    if origin is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if origin in (dict, list):
        return isinstance(value, origin)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return type(value) is kind


def _inside(value: Any, kind: Any) -> Any:
    """``value``, whose outer type fits, with what it holds checked as well."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is dict:
        return {key: _item(f"at {show_key(key)}", item, arguments[1]) for key, item in value.items()}
    if origin is list:
        return [_item(f"at place {place}", item, arguments[0]) for place, item in enumerate(value, 1)]
    return float(value) if kind is float else value


def _item(place: str, value: object, kind: Any) -> Any:
    try:
        return convert(value, kind)
    except WrongValue as wrong:
        raise WrongValue(f"{place} {wrong}") from None


def _hint(value: object, members: tuple[Any, ...]) -> str:
    """What the writer most likely meant."""
    if isinstance(value, float) and int in members and value.is_integer():
        return f"; write {int(value)}"
    if not isinstance(value, str):
        return ""
    if bool in members and value.lower() in ("true", "false"):
        return f"; write {value.lower()}, without quotes"
    if int in members and value.isascii() and value.isdigit():
        return f"; write {int(value)}, without quotes"
    known = [word for member in members if get_origin(member) is Literal for word in get_args(member)]
    return closest(value, known)
