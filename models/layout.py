"""Where arrays lie: logical axes to the axes of a device mesh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Axes = Sequence[str | None]
"""One logical axis name per dimension; None for a dimension that is never sharded."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A mesh with rules (logical axis, mesh axes). Without a mesh it is one device and constrains nothing."""

    mesh: Mesh | None = None
    rules: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def mesh_axes(self, logical: str | None) -> tuple[str, ...]:
        """The mesh axes that ``logical`` is split over; a name without a rule is not split."""
        return dict(self.rules).get(logical, ()) if logical else ()

    def shards(self, logical: str) -> int:
        """Into how many parts a dimension called ``logical`` is split."""
        return math.prod(self.mesh.shape[axis] for axis in self.mesh_axes(logical)) if self.mesh else 1

    def spec(self, axes: Axes, shape: Sequence[int]) -> PartitionSpec:
        """How an array of ``shape`` is split. A dimension that its shards do not divide stays whole."""
        fits = [axis is not None and size % self.shards(axis) == 0 for axis, size in zip(axes, shape, strict=True)]
        return PartitionSpec(
            *(self.mesh_axes(axis) or None if fit else None for axis, fit in zip(axes, fits, strict=True))
        )

    def sharding(self, axes: Axes, shape: Sequence[int]) -> NamedSharding | None:
        return NamedSharding(self.mesh, self.spec(axes, shape)) if self.mesh else None

    def constrain(self, x: jax.Array, *axes: str | None) -> jax.Array:
        """``x``, laid out as ``axes`` say."""
        sharding = self.sharding(axes, x.shape)
        return jax.lax.with_sharding_constraint(x, sharding) if sharding else x

    def gather(self, weight: jax.Array, *axes: str | None) -> jax.Array:
        """A weight, made whole along the mesh axes that the batch is split over.

        This is what fully sharded data parallelism means: each device holds a part of the weight and needs all of it to
        multiply its own sequences. Saying so here, after the cast to the compute dtype, keeps the compiler from moving
        activations instead and halves what travels.
        """
        batch = set(self.mesh_axes("batch"))
        return self.constrain(weight, *(None if batch & set(self.mesh_axes(axis)) else axis for axis in axes))


SINGLE_DEVICE = Layout()
