"""Taking a profiler trace: as lean as it can be, one at a time, and never left open."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jaxlib import _profiler  # pyright: ignore[reportAttributeAccessIssue]

from jaxprof.errors import UserError

Progress = Callable[[str], None]

LEAN_OPTIONS: dict[str, Any] = {"host_tracer_level": 2, "python_tracer_level": 0}
"""Enough for the HLO ops of a CPU mesh, which are host events. The Python tracer would slow short steps."""

# The session is taken from jaxlib because jax.profiler.stop_trace hands out no bytes and always writes a slow, capped
# trace.json.gz beside the XSpace.
_lock = threading.Lock()
_open_session: list[str] = []


@dataclass(slots=True)
class Capture:
    """A trace being taken; ``xspace`` holds its bytes once the context has been left without an exception."""

    xspace: bytes = b""


class TraceTimeout(UserError):
    """The profiler did not hand over its trace in time; what was measured without it still stands."""


def profiler_options(**options: Any) -> Any:
    """``jax.profiler.ProfileOptions`` with LEAN_OPTIONS and ``options`` over them. 0 means 0, not unset.

    Raises UserError for a name that the class does not have; older JAX would take it and do nothing.
    """
    made = jax.profiler.ProfileOptions()
    known = sorted(name for name in dir(jax.profiler.ProfileOptions) if not name.startswith("_"))
    for name, value in {**LEAN_OPTIONS, **options}.items():
        if name not in known:
            raise UserError(f"unknown profiler option '{name}': known are {', '.join(known)}")
        setattr(made, name, value)
    return made


@contextmanager
def trace(
    *,
    name: str = "jaxprof",
    progress: Progress | None = None,
    stop_limit_s: float = 600,
    tick_s: float = 2,
    **options: Any,
) -> Iterator[Capture]:
    """Traces the body of a ``with`` statement and yields a Capture.

    ``name`` tells a second session, which is refused, who has the first. ``options`` are those of ``profiler_options``.
    While the profiler hands over the trace, which can take minutes, ``progress`` is called every ``tick_s`` seconds;
    after ``stop_limit_s`` TraceTimeout is raised. After an exception in the body the session is closed and its trace
    dropped.
    """
    session = _start(name, profiler_options(**options))
    capture = Capture()
    try:
        yield capture
    except BaseException:
        with suppress(Exception):  # the body's own exception is the one to tell
            _stop(session, None, stop_limit_s, tick_s)
        raise
    capture.xspace = _stop(session, progress, stop_limit_s, tick_s)


def _start(name: str, options: Any) -> Any:
    with _lock:
        if _open_session:
            raise UserError(
                f"only one profiler session can run in a process, and '{_open_session[0]}' is open; stop that first"
            )
        _refuse_beside_another()
        _open_session.append(name)
        return _profiler.ProfilerSession(options)


def _refuse_beside_another() -> None:
    """Raises UserError where somebody else has a session open.

    A second session starts without complaint and fails when it is stopped, after the work is done; so an empty one is
    started and stopped first.
    """
    try:
        _profiler.ProfilerSession(profiler_options(host_tracer_level=0, enable_hlo_proto=False)).stop()
    except jax.errors.JaxRuntimeError as error:
        if "ALREADY_EXISTS" not in str(error):
            raise
        raise UserError(
            "only one profiler session can run in a process, and one is open that jaxprof did not start: end it with "
            "jax.profiler.stop_trace(), or take the profiler out of the profiled code"
        ) from error


def _stop(session: Any, progress: Progress | None, limit_s: float, tick_s: float) -> bytes:
    results: list[bytes | BaseException] = []

    def collect() -> None:
        try:
            results.append(session.stop())
        except BaseException as error:
            results.append(error)
        finally:
            _open_session.clear()

    # in a thread of its own, so that the wait can be seen and interrupted
    worker = threading.Thread(target=collect, name="jaxprof-stop-trace", daemon=True)
    began = time.monotonic()
    worker.start()
    while True:
        worker.join(tick_s)
        waited = time.monotonic() - began
        if not worker.is_alive():
            break
        if waited > limit_s:
            raise TraceTimeout(
                f"the profiler has not handed over its trace after {waited:.0f} s; trace fewer steps, or give it longer"
            )
        if progress:
            progress(f"collecting the trace: {waited:.0f} s")
    result = results[0]
    if isinstance(result, BaseException):
        raise result
    return result


def check_output_directory(path: str | os.PathLike[str]) -> Path:
    """The directory to write to, made if need be; UserError, before anything has run, where that cannot work."""
    text = os.fspath(path)
    if not text.strip():
        raise UserError("the output directory is empty; name one, such as runs/my-run")
    if "://" in text:
        raise UserError(f"'{text}' is a remote address; write to a local directory and copy it afterwards")
    if os.name != "nt" and (text[1:3] == ":\\" or text.startswith("\\\\")):
        raise UserError(f"'{text}' is a Windows path, and this is not Windows; name a directory such as runs/my-run")
    directory = Path(text).expanduser()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write to '{text}': {getattr(error, 'strerror', None) or error}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UserError(f"cannot write to '{text}': no permission")
    return directory
