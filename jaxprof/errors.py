"""The errors that people see. A command turns each into one or two lines and an exit status, never a traceback."""

from __future__ import annotations


class UserError(Exception):
    """The user asked for something impossible (exit status 2).

    ``message`` says what is wrong and what to write instead; ``where`` says in which file, line or key.
    """

    def __init__(self, message: str, *, where: str | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.message = message
        self.where = where


class Refused(Exception):
    """The thing asked about fails: it does not fit, it is over budget (exit status 1)."""
