"""Decoding the profiler's file format."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import polars as pl
import pytest
from jax.profiler import ProfileData

from jaxprof.errors import UserError
from jaxprof.measure.capture import trace
from jaxprof.trace.read import read_timeline
from jaxprof.trace.xspace import read_space


def test_times_are_the_lines_timestamp_plus_the_events_offset(xspace):
    space = read_space(xspace({"p": {"line": [("a", 1500.5, 2, {})]}}, timestamp_us=1000), {})
    assert space.planes[0].events.select("event", "start_ps", "duration_ps").row(0) == ("a", 1_500_500_000, 2_000_000)
    assert space.planes[0].lines[0].name == "line"


def test_stats_come_typed_and_null_where_an_event_has_none(xspace):
    events = [("a", 0, 1, {"op": "dot", "run": -5, "rate": 2.5, "big": 2**64 - 3}), ("b", 1, 1, {})]
    wanted = {"op": pl.String, "run": pl.Int64, "rate": pl.Float64, "big": pl.Int64, "absent": pl.Int64}
    frame = read_space(xspace({"p": {"l": events}}), wanted).planes[0].events
    assert frame.select(list(wanted)).rows() == [("dot", -5, 2.5, -3, None), (None, None, None, None, None)]


def test_e3_an_empty_file_is_called_too_large():
    with pytest.raises(
        UserError, match=r"trace is empty, likely because it grew past 2 GB; .* lower python_tracer_level"
    ):
        read_timeline(b"", {})


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"plain text that is no trace", b"\x0a\x7f\x0a"])
def test_malformed_bytes_give_one_clear_error(data):
    with pytest.raises(UserError, match=f"not a profiler trace: {len(data)} bytes"):
        read_space(data, {})


def test_a_trace_without_ops_has_no_steps(xspace):
    with pytest.raises(UserError, match="no HLO ops, so it has no steps"):
        read_timeline(xspace({"/host:CPU": {"python": [("f", 0, 1, {})]}}), {})


def test_planes_of_other_devices_are_named_as_not_read(xspace):
    with pytest.raises(
        UserError, match=r"trace is of /device:GPU:0, and this version reads traces of CPU meshes and TPUs"
    ):
        read_timeline(xspace({"/device:GPU:0": {"Stream #1": [("fusion", 0, 1, {})]}}), {})


def test_a_real_trace_decodes_to_what_jax_itself_reads():
    """Names, starts and durations of every event against jax.profiler.ProfileData."""
    function = jax.jit(lambda a: jnp.tanh(a @ a).sum())
    a = jnp.ones((64, 64))
    function(a).block_until_ready()
    with trace() as capture:
        function(a).block_until_ready()
    ours = read_space(capture.xspace, {}).plane("/host:CPU")
    assert ours is not None
    theirs = next(p for p in ProfileData.from_serialized_xspace(capture.xspace).planes if p.name == "/host:CPU")
    expected = [(e.name, round(e.start_ns), round(e.duration_ns)) for line in theirs.lines for e in line.events]
    found = ours.events.select("event", (pl.col("start_ps") / 1000).round(), (pl.col("duration_ps") / 1000).round())
    assert sorted(found.rows()) == sorted(expected)


def test_e23_reading_needs_no_viewer_and_no_jax(xspace, op, tmp_path):
    """The schema is our own, in a private pool: neither the viewer's messages nor JAX are imported."""
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(xspace({"/host:CPU": {"t": [op("dot", 1, 2)]}}))
    script = f"""
import sys
from jaxprof.trace.read import read_timeline
timeline = read_timeline(open({str(path)!r}, "rb").read(), {{}})
assert timeline.intervals["op"].to_list() == ["dot"]
loaded = {{name.split(".")[0] for name in sys.modules}}
print(sorted(loaded & {{"jax", "jaxlib", "xprof", "tensorflow", "tensorboard", "tensorboard_plugin_profile", "tsl"}}))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
