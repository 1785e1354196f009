"""Names of the programs in a trace."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from jaxprof.hlo.op_cost import ModuleCosts


def name_programs(ops: pl.DataFrame, costs: Mapping[str, ModuleCosts]) -> pl.DataFrame:
    """Adds ``program`` to rows with ``hlo_module``, ``program_id`` and ``op``.

    It is the module's name; where several programs share one, it stays with the one whose ops the costs know
    best and the others get their id behind it.
    """
    known = pl.DataFrame(
        [(module, cost.op) for module, c in costs.items() for cost in c.ops],
        schema={"hlo_module": pl.String, "op": pl.String},
        orient="row",
    ).with_columns(pl.lit(True).alias("known"))
    ranked = (
        ops.select("hlo_module", "program_id", "op")
        .unique()
        .join(known, on=["hlo_module", "op"], how="left")
        .group_by("hlo_module", "program_id")
        .agg(pl.col("known").sum(), pl.len())
        .sort("known", "len", "program_id", descending=[True, True, False])
        .with_columns(pl.int_range(pl.len()).over("hlo_module").alias("rank"))
    )
    name = (
        pl.when(pl.col("rank") == 0)
        .then(pl.col("hlo_module"))
        .otherwise(pl.format("{}({})", "hlo_module", "program_id"))
        .alias("program")
    )
    return ops.join(ranked.select("hlo_module", "program_id", name), on=["hlo_module", "program_id"])
