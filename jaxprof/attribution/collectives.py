"""Collectives of a step by kind, mesh axes and link."""

from __future__ import annotations

from typing import Any

import polars as pl


def collectives(ops: pl.DataFrame) -> list[dict[str, Any]]:
    """The ``collectives`` of run.json from an op table, the longest first.

    Sums per step and device, null where unknown. ``bus_bytes_per_s`` is nccl-tests' bus bandwidth: bytes that a device
    sends over the time from the last participant's arrival on.
    """
    sums = {
        "executions": "executions", "payload_bytes": "payload_bytes", "wire_bytes": "wire_bytes",
        "link_time_s": "link_time", "exposed_s": "exposed_time", "wait_s": "wait_time",
    }  # fmt: skip
    groups = (
        ops.filter(pl.col("collective").is_not_null())
        .with_columns(time=pl.coalesce("measured_time", "predicted_time"))
        .group_by("collective", "mesh_axes", "link")
        .agg(
            *(_sum(column).alias(name) for name, column in sums.items()),
            _sum("time").alias("time_s"),
            pl.col("group_size").max(),
            pl.col("op").sort().alias("ops"),
        )
        .sort("time_s", "wire_bytes", "collective", "mesh_axes", descending=[True, True, False, False], nulls_last=True)
    )
    return [_collective(row) for row in groups.iter_rows(named=True)]


def _sum(column: str) -> pl.Expr:
    """A sum that is null where nothing is known."""
    return pl.when(pl.col(column).is_not_null().any()).then(pl.col(column).sum())


def _collective(row: dict[str, Any]) -> dict[str, Any]:
    moving_s = None if row["time_s"] is None else row["time_s"] - (row["wait_s"] or 0.0)
    return {
        "op": row["collective"],
        "mesh_axes": row["mesh_axes"].split(",") if row["mesh_axes"] else [],
        "link": row["link"],
        "group_size": row["group_size"],
        "executions": row["executions"],
        "payload_bytes": row["payload_bytes"],
        "wire_bytes": row["wire_bytes"],
        "time_s": row["time_s"],
        "exposed_s": row["exposed_s"],
        "wait_s": row["wait_s"],
        "link_time_s": row["link_time_s"],
        "bus_bytes_per_s": row["wire_bytes"] / moving_s if moving_s and row["wire_bytes"] is not None else None,
        "ops": row["ops"],
    }
