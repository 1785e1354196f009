"""What a compiler says while it works, and whether it worked at all: its standard error and JAX's cache events."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from jax import monitoring

_COMPILER_LINE = re.compile(r"[WE]\d{4} [\d:.]+\s+\d+ \S+\.(cc|h|cpp):\d+\] ")
"""How XLA's C++ begins a warning or an error; fatal lines are left where people see them."""
_CACHE_HIT = "/jax/compilation_cache/cache_hits"
_BACKEND_COMPILE = "/jax/core/compile/backend_compile_duration"


@dataclass(slots=True)
class Compilation:
    """Filled while ``watch_compilation`` is open."""

    seconds: float | None = None
    cached: bool = False
    """An executable came from JAX's persistent cache, or from one of its caches in memory."""
    diagnostics: list[str] = field(default_factory=list)
    """Lines that the compiler wrote to standard error."""


@contextmanager
def watch_compilation() -> Iterator[Compilation]:
    """Times one compilation, hears whether a cache answered, and keeps the compiler's messages.

    XLA writes to file descriptor 2 from C++, so the descriptor itself is redirected meanwhile; lines that are not the
    compiler's are written to it afterwards.
    """
    seen = Compilation()
    events: list[str] = []

    def heard(event: str, *_: object, **__: object) -> None:
        events.append(event)

    monitoring.register_event_listener(heard)
    monitoring.register_event_duration_secs_listener(heard)
    started = time.perf_counter()
    try:
        with _captured_stderr(seen.diagnostics):
            yield seen
    finally:
        seen.seconds = time.perf_counter() - started
        monitoring.unregister_event_listener(heard)
        monitoring.unregister_event_duration_listener(heard)
        seen.cached = _CACHE_HIT in events or _BACKEND_COMPILE not in events


@contextmanager
def _captured_stderr(lines: list[str]) -> Iterator[None]:
    """Adds the compiler's lines to ``lines``; everything else that was written to descriptor 2 is written again."""
    sys.stderr.flush()
    original = os.dup(2)
    with tempfile.TemporaryFile() as caught:
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(original, 2)
            os.close(original)
            caught.seek(0)
            for line in caught.read().decode("utf-8", "replace").splitlines(keepends=True):
                if _COMPILER_LINE.match(line):
                    lines.append(line.rstrip())
                else:
                    os.write(2, line.encode())
