"""Grouped-query attention: projections, the core, and which positions see which."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from jaxprof.config.padding import kv_replicas
from jaxprof.config.schema import ModelConfig
from jaxprof.models.arrays import ArraySpec, Initializer, normal, weight, zeros
from jaxprof.models.layout import Layout
from jaxprof.models.rope import rotate


def visible(query_T: jax.Array, key_S: jax.Array, window: int | None) -> jax.Array:
    """Which keys each query sees, bool [T, S], from their positions.

    A key is seen by its own position and later ones, by ``window`` positions in all where that is given. A negative key
    position is an empty slot of a cache, seen by nobody.
    """
    distance_TxS = query_T[:, None] - key_S[None, :]
    seen_TxS = (distance_TxS >= 0) & (key_S >= 0)[None, :]
    return seen_TxS if window is None else seen_TxS & (distance_TxS < window)


def attend(q_BxTxHxC: jax.Array, k_BxSxKxC: jax.Array, v_BxSxKxC: jax.Array, seen_TxS: jax.Array) -> jax.Array:
    """Softmax attention, [B, T, H, C]. Scores are float32; every pair is computed, masked ones too."""
    with jax.named_scope("attention.core"):
        B, T, H, C = q_BxTxHxC.shape
        K = k_BxSxKxC.shape[2]
        q_BxTxKxGxC = q_BxTxHxC.reshape(B, T, K, H // K, C)
        k_BxSxKxC, v_BxSxKxC = (x.astype(q_BxTxHxC.dtype) for x in (k_BxSxKxC, v_BxSxKxC))
        scores_BxKxGxTxS = jnp.einsum(
            "btkgc,bskc->bkgts", q_BxTxKxGxC, k_BxSxKxC, preferred_element_type=jnp.float32
        ) * (C**-0.5)
        scores_BxKxGxTxS = jnp.where(seen_TxS, scores_BxKxGxTxS, jnp.finfo(jnp.float32).min)
        weights_BxKxGxTxS = jax.nn.softmax(scores_BxKxGxTxS, axis=-1).astype(q_BxTxHxC.dtype)
        mixed_BxTxKxGxC = jnp.einsum("bkgts,bskc->btkgc", weights_BxKxGxTxS, v_BxSxKxC)
        return checkpoint_name(mixed_BxTxKxGxC.reshape(B, T, H, C), "attention_core")


class Attention(nnx.Module):
    """The projections around ``attend``."""

    def __init__(
        self, config: ModelConfig, layout: Layout, *, rngs: nnx.Rngs, layers: int | None = None, out_init: Initializer
    ) -> None:
        self.layout = layout
        self.dtype = config.dtype
        self.biased = config.attention_bias
        self.kv_replicas = kv_replicas(config.kv_heads, layout.shards("kv_heads"))
        D, H, K, C = config.d_model, config.heads, config.kv_heads, config.head_dim

        def param(shape, axes, initializer) -> nnx.Param[jax.Array]:
            spec = ArraySpec(shape, axes, initializer, config.param_dtype)
            return (spec.stacked(layers) if layers else spec).param(rngs)

        self.q = param((D, H, C), ("embed", "heads", "head_dim"), normal(0.02))
        self.k = param((D, K, C), ("embed", "kv_heads", "head_dim"), normal(0.02))
        self.v = param((D, K, C), ("embed", "kv_heads", "head_dim"), normal(0.02))
        self.out = param((H, C, D), ("heads", "head_dim", "embed"), out_init)
        if self.biased:
            self.q_bias = param((H, C), ("heads", "head_dim"), zeros)
            self.k_bias = param((K, C), ("kv_heads", "head_dim"), zeros)
            self.v_bias = param((K, C), ("kv_heads", "head_dim"), zeros)
            self.out_bias = param((D,), ("features",), zeros)

    def project(
        self, x_BxTxD: jax.Array, rotation: tuple[jax.Array, jax.Array] | None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries [B, T, H, C], keys and values [B, T, K, C], rotated where ``rotation`` is given.

        Where there are fewer key/value heads than shards, K is their number after replication: each shard computes, and
        caches, the head that its queries need.
        """
        with jax.named_scope("attention.qkv"):
            q_BxTxHxC = self._heads(x_BxTxD, self.q, self.q_bias if self.biased else None, "heads", 1)
            k_BxTxKxC = self._heads(x_BxTxD, self.k, self.k_bias if self.biased else None, "kv_heads", self.kv_replicas)
            v_BxTxKxC = self._heads(x_BxTxD, self.v, self.v_bias if self.biased else None, "kv_heads", self.kv_replicas)
            if rotation is not None:
                q_BxTxHxC, k_BxTxKxC = rotate(q_BxTxHxC, rotation), rotate(k_BxTxKxC, rotation)
            return checkpoint_name(q_BxTxHxC, "q"), checkpoint_name(k_BxTxKxC, "k"), checkpoint_name(v_BxTxKxC, "v")

    def merge(self, mixed_BxTxHxC: jax.Array) -> jax.Array:
        """Heads back to the residual stream, [B, T, D]."""
        y_BxTxD = jnp.einsum("bthc,hcd->btd", mixed_BxTxHxC, weight(self.out, self.dtype, self.layout))
        y_BxTxD = self.layout.constrain(y_BxTxD, "batch", None, None)
        if self.biased:
            y_BxTxD = y_BxTxD + weight(self.out_bias, self.dtype, self.layout)
        return checkpoint_name(y_BxTxD, "attention_out")

    def _heads(
        self,
        x_BxTxD: jax.Array,
        param: nnx.Param[jax.Array],
        bias: nnx.Param[jax.Array] | None,
        axis: str,
        replicas: int,
    ) -> jax.Array:
        """One projection. Heads are copied before the matmul, so that each shard computes the one it needs."""
        w_DxHxC = self._replicated(weight(param, self.dtype, self.layout), replicas, (None, axis, None))
        y_BxTxHxC = jnp.einsum("btd,dhc->bthc", x_BxTxD, w_DxHxC)
        if bias is not None:
            y_BxTxHxC = y_BxTxHxC + self._replicated(weight(bias, self.dtype, self.layout), replicas, (axis, None))
        return self.layout.constrain(y_BxTxHxC, "batch", None, axis, None)

    def _replicated(self, w: jax.Array, replicas: int, axes: tuple[str | None, ...]) -> jax.Array:
        if replicas == 1:
            return w
        return self.layout.constrain(jnp.repeat(w, replicas, axis=w.ndim - 2), *axes)
