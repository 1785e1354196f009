"""The profiler session: lean, checked, one at a time, never left open."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from jaxprof.errors import UserError
from jaxprof.measure import capture
from jaxprof.measure.capture import TraceTimeout, check_output_directory, profiler_options, trace
from jaxprof.trace.xspace import read_space


def _run() -> None:
    jax.jit(lambda a: jnp.tanh(a @ a))(jnp.ones((32, 32))).block_until_ready()


def test_e3_an_explicit_zero_is_honoured():
    """JAX's own defaults are 2 and 1; with both 0 the host plane has no lines."""
    with trace(host_tracer_level=0, python_tracer_level=0) as taken:
        _run()
    host = read_space(taken.xspace, {}).plane("/host:CPU")
    assert host is None or host.lines == ()


def test_e4_the_python_tracer_is_off_unless_asked_for():
    assert profiler_options().python_tracer_level == 0
    assert profiler_options(python_tracer_level=1).python_tracer_level == 1
    with trace() as taken:
        _run()
    host = read_space(taken.xspace, {}).plane("/host:CPU")
    assert host is not None and not host.events["event"].str.starts_with("$").any()


@pytest.mark.parametrize("name", ["device_tracer_level", "host_trace_level"])
def test_e5_an_option_that_does_not_exist_is_refused(name):
    with (
        pytest.raises(UserError, match=f"unknown profiler option '{name}': known are .*host_tracer_level"),
        trace(**{name: 0}),
    ):
        pytest.fail("the body must not run")


def test_e6_a_second_session_is_told_which_is_open_and_leaves_it_running():
    with trace(name="outer") as outer:
        with pytest.raises(UserError, match="'outer' is open"), trace(name="inner"):
            pytest.fail("the body must not run")
        _run()
    host = read_space(outer.xspace, {}).plane("/host:CPU")
    assert host is not None and not host.events.is_empty()


def test_e6_a_session_of_somebody_else_is_told_apart(tmp_path):
    jax.profiler.start_trace(tmp_path)
    try:
        with pytest.raises(UserError, match=r"jaxprof did not start: end it with jax.profiler.stop_trace"), trace():
            pytest.fail("the body must not run")
    finally:
        jax.profiler.stop_trace()
    with trace():
        pass


@pytest.mark.parametrize("error", [ValueError("boom"), KeyboardInterrupt()])
def test_e6_an_exception_in_the_profiled_function_closes_the_session(error):
    with pytest.raises(type(error)), trace(name="first"):
        raise error
    with trace(name="second") as taken:
        _run()
    assert taken.xspace


def _sessions_that_stop_with(monkeypatch, stop) -> None:
    """Every session but the empty one that looks for others."""
    monkeypatch.setattr(
        capture._profiler,
        "ProfilerSession",
        lambda options: SimpleNamespace(stop=stop if options.host_tracer_level else lambda: b""),
    )


def test_e7_a_slow_stop_shows_its_seconds(monkeypatch):
    _sessions_that_stop_with(monkeypatch, lambda: time.sleep(0.35) or b"xspace")
    said: list[str] = []
    with trace(progress=said.append, tick_s=0.1) as taken:
        pass
    assert taken.xspace == b"xspace"
    assert 2 <= len(said) <= 3 and said[0] == "collecting the trace: 0 s"


def test_e7_a_stop_that_never_ends_meets_a_limit(monkeypatch):
    release = threading.Event()
    _sessions_that_stop_with(monkeypatch, lambda: release.wait(9))
    with (
        pytest.raises(TraceTimeout, match="has not handed over its trace after"),
        trace(stop_limit_s=0.05, tick_s=0.02),
    ):
        pass
    with pytest.raises(UserError, match="'jaxprof' is open"), trace():
        pytest.fail("the stuck session is still open")
    release.set()
    deadline = time.monotonic() + 5
    while capture._open_session and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not capture._open_session


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gs://bucket-none/x", "remote address"),
        ("/proc/nope/x", "cannot write to '/proc/nope/x'"),
        ("", "output directory is empty"),
        ("C:\\x", "Windows path"),
    ],
)
def test_e15_a_bad_directory_fails_before_the_workload(path, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        check_output_directory(path)
    assert list(tmp_path.iterdir()) == []


def test_e15_a_file_in_the_way_is_named_and_a_good_directory_is_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to"):
        check_output_directory(tmp_path / "file" / "run")
    assert check_output_directory(tmp_path / "a" / "b") == tmp_path / "a" / "b" and (tmp_path / "a" / "b").is_dir()
