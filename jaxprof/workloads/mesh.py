"""The mesh of devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import AxisType, Mesh

from jaxprof.config.schema import MeshConfig
from jaxprof.errors import UserError


def build_mesh(config: MeshConfig, devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh with axes data, fsdp and tensor, major to minor, left to the compiler to partition over (Auto).

    Takes the first devices there are where ``devices`` is None. Raises UserError where they are too few.
    """
    sizes = {"data": config.data, "fsdp": config.fsdp, "tensor": config.tensor}
    needed = math.prod(sizes.values())
    available = list(jax.devices() if devices is None else devices)
    if len(available) < needed:
        raise UserError(
            f"data {config.data} x fsdp {config.fsdp} x tensor {config.tensor} = {needed} devices, "
            f"but there are {len(available)}; write a smaller mesh, or simulate it with measure.platform=cpu",
            where="mesh",
        )
    return jax.make_mesh(
        tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes), devices=available[:needed]
    )
