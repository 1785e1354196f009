"""One description per array: its abstract value, its sharding and its initial value all come from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxprof.models.layout import Layout

Initializer = Callable[..., jax.Array]
"""``initializer(key, shape, dtype)``, as in ``jax.nn.initializers``."""

ones = jax.nn.initializers.ones
zeros = jax.nn.initializers.zeros
normal = jax.nn.initializers.normal


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """A weight, or a part of a KV cache."""

    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    """Logical axis of each dimension."""
    initializer: Initializer = zeros
    dtype: str = "float32"

    def stacked(self, layers: int) -> ArraySpec:
        """The same array for each of ``layers`` layers, as a scan over layers takes it."""
        return ArraySpec((layers, *self.shape), ("layers", *self.axes), self.initializer, self.dtype)

    def abstract(self, layout: Layout) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(self.shape, jnp.dtype(self.dtype), sharding=layout.sharding(self.axes, self.shape))

    def create(self, key: jax.Array) -> jax.Array:
        return self.initializer(key, self.shape, jnp.dtype(self.dtype))

    def param(self, rngs: nnx.Rngs) -> nnx.Param[jax.Array]:
        """A parameter that carries its logical axes the way Flax does, in ``out_sharding``."""
        return nnx.Param(self.create(rngs.params()), out_sharding=self.axes, eager_sharding=False)


def abstract_arrays(specs: Any, layout: Layout) -> Any:
    """Abstract, sharded arrays of a pytree of ``ArraySpec``."""
    return jax.tree.map(lambda spec: spec.abstract(layout), specs, is_leaf=lambda leaf: isinstance(leaf, ArraySpec))


def shardings(abstract: Any) -> Any:
    """The shardings of a pytree of abstract arrays; None for each that lies on a single device."""
    return jax.tree.map(lambda leaf: leaf.sharding, abstract)


def weight(param: nnx.Param[jax.Array], dtype: str, layout: Layout) -> jax.Array:
    """The value of ``param`` as the matmuls want it: in the compute dtype and gathered over the batch's mesh axes."""
    value = param[...].astype(dtype)
    axes = param.get_metadata("out_sharding")[-value.ndim :]  # a scan over layers has taken the leading axis away
    return layout.gather(value, *axes)
