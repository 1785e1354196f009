"""One TOML file: its tables, and the line that each key stands in."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxprof.errors import UserError


@dataclass(frozen=True, slots=True)
class Document:
    """A TOML file as read."""

    path: Path
    content: dict[str, Any]
    lines: dict[str, int]
    """Line of each key, by its dotted name, from 1."""

    def where(self, key: str) -> str:
        """``file:line: key`` for error messages."""
        line = self.lines.get(key)
        return f"{shown_path(self.path)}:{line}: {key}" if line else f"{shown_path(self.path)}: {key}"


def read_document(path: Path) -> Document:
    """Read and parse ``path``. Raises UserError where it cannot be read or is not TOML."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError("not a text file in UTF-8; a config is a TOML file", where=shown_path(path)) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=shown_path(path)) from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(path, error) from None
    return Document(path, content, key_lines(text))


def key_lines(text: str) -> dict[str, int]:
    """The line in which each key of a valid TOML text starts, by dotted name.

    The text is cut into its shortest pieces that parse by themselves, each a table's header or one key with its value.
    """
    lines: dict[str, int] = {}
    prefix, piece, start = "", "", 1
    for number, line in enumerate(text.split("\n"), 1):
        if not piece:
            start = number
        piece += line + "\n"
        try:
            content = tomllib.loads(piece)
        except tomllib.TOMLDecodeError:
            continue
        names = _dotted(content)
        if piece.lstrip().startswith("[") and names:
            prefix = names[-1] + "."
            lines.setdefault(names[-1], start)
        else:
            for name in names:
                lines.setdefault(prefix + name, start)
        piece = ""
    return lines


def shown_path(path: Path) -> str:
    """``path`` as a reader knows it: relative where it lies under the current folder."""
    absolute = os.path.abspath(path)
    relative = os.path.relpath(absolute)
    return absolute if relative.startswith("..") else relative


def _dotted(content: dict[str, Any]) -> list[str]:
    """Dotted names of all keys, outer ones first. An array of tables counts as its last table."""
    names = []
    for key, value in content.items():
        names.append(key)
        if isinstance(value, list) and value and isinstance(value[-1], dict):
            value = value[-1]
        if isinstance(value, dict):
            names += [f"{key}.{name}" for name in _dotted(value)]
    return names


def _syntax_error(path: Path, error: tomllib.TOMLDecodeError) -> UserError:
    found = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", str(error), re.DOTALL)
    what, line, column = found.groups() if found else (str(error), None, None)
    place = f"column {column}" if line else "at its end"
    where = f"{shown_path(path)}:{line}" if line else shown_path(path)
    return UserError(
        f"not valid TOML, {place}: {what}; texts stand in quotes, keys are written key = value", where=where
    )
