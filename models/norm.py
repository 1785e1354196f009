"""LayerNorm and RMSNorm."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from jaxprof.config.schema import ModelConfig
from jaxprof.models.arrays import ArraySpec, ones, zeros


class Norm(nnx.Module):
    """Normalises the last dimension in float32, then scales (and, for LayerNorm, shifts) it."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs, layers: int | None = None) -> None:
        self.centred = config.norm == "layernorm"
        self.epsilon = config.norm_eps

        def param(initializer) -> nnx.Param[jax.Array]:
            spec = ArraySpec((config.d_model,), ("features",), initializer, config.param_dtype)
            return (spec.stacked(layers) if layers else spec).param(rngs)

        self.scale = param(ones)
        if self.centred:
            self.bias = param(zeros)

    def __call__(self, x: jax.Array) -> jax.Array:
        with jax.named_scope("norm"):
            y = x.astype(jnp.float32)
            if self.centred:
                y = y - jnp.mean(y, axis=-1, keepdims=True)
            y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.epsilon)
            y = y * self.scale[...].astype(jnp.float32)
            if self.centred:
                y = y + self.bias[...].astype(jnp.float32)
            return y.astype(x.dtype)
