"""The op table: one row per HLO instruction that a step executes, with every kind of evidence beside it."""

from __future__ import annotations

import polars as pl

OP_TABLE = pl.Schema(
    {
        # identity
        "program": pl.String(),
        "op": pl.String(),
        "opcode": pl.String(),
        "category": pl.String(),
        "scope": pl.String(),
        "part": pl.String(),
        "phase": pl.String(),
        "source": pl.String(),
        # work, per step and device (executions multiplied in); null where unknown
        "executions": pl.Float64(),  # mean of the trace's occurrences where measured; else compiled
        "compiled_executions": pl.Int64(),  # product of trip counts; null where unknown
        "flops": pl.Int64(),
        "flops_dtype": pl.String(),
        "other_flops": pl.Int64(),
        "hbm_bytes_read": pl.Int64(),
        "hbm_bytes_written": pl.Int64(),
        "collective": pl.String(),
        "payload_bytes": pl.Int64(),
        "wire_bytes": pl.Int64(),
        "group_size": pl.Int64(),
        "mesh_axes": pl.String(),  # comma separated
        "link": pl.String(),
        # time in seconds per step per device
        "compute_time": pl.Float64(),
        "hbm_time": pl.Float64(),
        "link_time": pl.Float64(),
        "predicted_time": pl.Float64(),
        "measured_time": pl.Float64(),  # self, mean over steps and devices
        "measured_time_max": pl.Float64(),  # of the slowest device
        "exposed_time": pl.Float64(),  # collectives: while the device computes nothing; wait excluded
        "wait_time": pl.Float64(),
        # verdict
        "bound": pl.String(),  # compute, hbm, collective, host, latency
        "roofline_fraction": pl.Float64(),
        "unknown": pl.String(),
    }
)
