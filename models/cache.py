"""The KV cache: preallocated, carried whole through the layers and written in place.

Handing a scan over layers one layer's cache and collecting it again would hold the cache twice, donated or not; a carry
that each layer updates at its own index is held once.

Position p lies in slot p mod S. With S positions or fewer that is slot p; a sliding window needs only its own number of
slots and writes them round and round.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxprof.config.padding import kv_replicas
from jaxprof.config.schema import ModelConfig
from jaxprof.models.arrays import ArraySpec
from jaxprof.models.layout import Layout

Cache = dict[str, jax.Array]
"""``keys`` and ``values``, each [L, B, S, K, C]; K counts replicas of key/value heads."""

CacheSpec = dict[str, ArraySpec]


def describe(config: ModelConfig, layout: Layout, batch: int, slots: int, dtype: str) -> CacheSpec:
    heads = config.kv_heads * kv_replicas(config.kv_heads, layout.shards("kv_heads"))
    shape = (config.layers, batch, slots, heads, config.head_dim)
    axes = ("layers", "batch", "positions", "kv_heads", "head_dim")
    return {name: ArraySpec(shape, axes, dtype=dtype) for name in ("keys", "values")}


def fill(cache: Cache, layer: jax.Array | int, k_BxTxKxC: jax.Array, v_BxTxKxC: jax.Array) -> Cache:
    """``cache`` with positions 0 to T - 1 of ``layer``, or the latest S of them, written in."""

    def write(cache_LxBxSxKxC: jax.Array, new_BxTxKxC: jax.Array) -> jax.Array:
        slots, tokens = cache_LxBxSxKxC.shape[2], new_BxTxKxC.shape[1]
        if tokens > slots:
            new_BxTxKxC = jnp.roll(new_BxTxKxC[:, -slots:], tokens % slots, axis=1)
        return _update(cache_LxBxSxKxC, new_BxTxKxC, layer, 0)

    return _both(cache, k_BxTxKxC, v_BxTxKxC, write)


def append(
    cache: Cache, layer: jax.Array | int, k_Bx1xKxC: jax.Array, v_Bx1xKxC: jax.Array, position: jax.Array
) -> Cache:
    """``cache`` with one position of ``layer`` written in."""

    def write(cache_LxBxSxKxC: jax.Array, new_Bx1xKxC: jax.Array) -> jax.Array:
        return _update(cache_LxBxSxKxC, new_Bx1xKxC, layer, position % cache_LxBxSxKxC.shape[2])

    return _both(cache, k_Bx1xKxC, v_Bx1xKxC, write)


def layer(cache: Cache, index: jax.Array | int) -> tuple[jax.Array, jax.Array]:
    """Keys and values of one layer, each [B, S, K, C]."""
    keys, values = (
        jax.lax.dynamic_index_in_dim(cache[name], index, axis=0, keepdims=False) for name in ("keys", "values")
    )
    return keys, values


def slot_positions(position: jax.Array, cache: Cache) -> jax.Array:
    """The position that each slot holds once ``position`` is written, [S]; negative where it holds none yet."""
    slots = cache["keys"].shape[2]
    return position - (position - jnp.arange(slots)) % slots


def _both(cache: Cache, keys: jax.Array, values: jax.Array, write) -> Cache:
    with jax.named_scope("attention.core"):
        return {"keys": write(cache["keys"], keys), "values": write(cache["values"], values)}


def _update(
    cache_LxBxSxKxC: jax.Array, new_BxTxKxC: jax.Array, layer: jax.Array | int, slot: jax.Array | int
) -> jax.Array:
    new_1xBxTxKxC = new_BxTxKxC.astype(cache_LxBxSxKxC.dtype)[None]
    return jax.lax.dynamic_update_slice(cache_LxBxSxKxC, new_1xBxTxKxC, (layer, 0, slot, 0, 0))
