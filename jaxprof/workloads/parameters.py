"""A module's parameters as a plain pytree: abstract, sharded, and made on the devices that hold them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from flax import nnx

from jaxprof.config.schema import ModelConfig
from jaxprof.errors import UserError
from jaxprof.models.layout import Layout
from jaxprof.workloads.module import LanguageModel

Params = Any
"""Nested dicts of arrays, by the names that the module gives its parameters."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """One module's parameters."""

    abstract: Params
    """``jax.ShapeDtypeStruct`` with shardings."""
    create: Callable[[jax.Array], Params]
    """Initial values from a key; to be called under jit, so that no device ever holds all of them."""
    bind: Callable[[Params], LanguageModel]
    """The module, with these values in it."""
    whole: tuple[str, ...]
    """Notes: parameters that stay whole on every device because their shards do not divide them."""

    @property
    def count(self) -> int:
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self.abstract))


def describe(module: type[LanguageModel], config: ModelConfig, layout: Layout) -> Parameters:
    """What ``module(config, layout, rngs=...)`` holds. Raises UserError where that is anything but ``nnx.Param``."""

    def make(key: jax.Array) -> Any:
        with nnx.use_eager_sharding(False):  # shardings come from the rules, once the axes of all are known
            return module(config, layout, rngs=nnx.Rngs(params=key))

    model: Any = nnx.eval_shape(make, jax.random.key(0))
    structure, state = nnx.split(model)
    variables = dict(nnx.to_flat_state(state))
    foreign = sorted({type(value).__name__ for value in variables.values() if not isinstance(value, nnx.Param)})
    if foreign:
        raise UserError(
            f"{module.__name__} holds {', '.join(foreign)}; only nnx.Param can be profiled", where="model.module"
        )
    axes = {path: _axes(variable) for path, variable in variables.items()}

    def sharded(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        sharding = layout.sharding(axes[tuple(part.key for part in path)], leaf.shape)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return Parameters(
        abstract=jax.tree_util.tree_map_with_path(sharded, nnx.to_pure_dict(state)),
        create=lambda key: nnx.to_pure_dict(nnx.state(make(key))),
        bind=lambda params: nnx.merge(structure, params),
        whole=tuple(
            f"{'.'.join(map(str, path))}: {axis} {size} does not divide over {layout.shards(axis)} shards "
            "and stays whole on each"
            for path, variable in variables.items()
            for axis, size in zip(axes[path], variable.shape, strict=True)
            if axis is not None and size % layout.shards(axis)
        ),
    )


def _axes(variable: nnx.Variable[Any]) -> tuple[str | None, ...]:
    """The logical axes that Flax's metadata names; none where it says nothing."""
    return tuple(variable.get_metadata().get("out_sharding") or (None,) * len(variable.shape))
