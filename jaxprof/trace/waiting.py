"""When the last participant of a collective arrived."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from jaxprof.hlo.op_cost import ModuleCosts, OpCost


def last_arrivals(ops: pl.DataFrame, costs: Mapping[str, ModuleCosts], *, permute_joins_all: bool) -> pl.Series:
    """For each row the start of the last participant of its collective; null where the op is none.

    ``ops`` has one row per execution: device (position in the mesh), program, run, op, start_ps. Participants are
    matched by program, run, op and occurrence inside their replica group. ``permute_joins_all`` where the backend lets
    a permute begin only when every device has arrived, as the CPU's does; else a device waits for those that it
    exchanges with.
    """
    groups = _participants(ops, costs, permute_joins_all)
    if groups.is_empty():
        return pl.Series("arrived_ps", [None] * ops.height, dtype=pl.Int64)
    execution = ["program", "run", "op", "occurrence"]
    numbered = ops.with_row_index("_row").with_columns(
        pl.int_range(pl.len()).over("device", "program", "run", "op", order_by="start_ps").alias("occurrence")
    )
    mine = numbered.join(groups, on=["program", "op", "device"]).select("_row", "participant", *execution)
    others = numbered.select(pl.col("device").alias("participant"), pl.col("start_ps").alias("arrived_ps"), *execution)
    last = mine.join(others, on=["participant", *execution]).group_by("_row").agg(pl.col("arrived_ps").max())
    return numbered.select("_row").join(last, on="_row", how="left", maintain_order="left")["arrived_ps"]


def _participants(ops: pl.DataFrame, costs: Mapping[str, ModuleCosts], permute_joins_all: bool) -> pl.DataFrame:
    """Columns program, op, device, participant: a row for each pair of devices that wait for each other."""
    devices = ops["device"].unique().to_list()
    rows: list[tuple[str, str, int, int]] = []
    present = set(ops.select("program", "op").unique().iter_rows())
    for program, module in costs.items():
        for cost in module.ops:
            if cost.collective is not None and (program, cost.op) in present:
                for group in _groups(cost, devices, permute_joins_all):
                    rows.extend((program, cost.op, a, b) for a in group for b in group)
    schema = {"program": pl.String, "op": pl.String, "device": pl.Int32, "participant": pl.Int32}
    return pl.DataFrame(rows, schema=schema, orient="row").unique()


def _groups(cost: OpCost, devices: list[int], permute_joins_all: bool) -> tuple[tuple[int, ...], ...]:
    permute = cost.collective == "collective-permute"
    if not cost.groups or (permute and permute_joins_all):
        return (tuple(devices),)
    return cost.groups
