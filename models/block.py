"""One layer of the transformer: attention and MLP, each normalised before and added to the residual stream after."""

from __future__ import annotations

import jax
from flax import nnx

from jaxprof.config.schema import ModelConfig
from jaxprof.models.arrays import normal
from jaxprof.models.attention import Attention
from jaxprof.models.layout import Layout
from jaxprof.models.mlp import Mlp
from jaxprof.models.norm import Norm


class Block(nnx.Module):
    """``layers`` weights stacked in one, or a single layer's where it is None.

    The two halves stand apart because what lies between them differs: training attends to the keys just made, decoding
    to those in the cache.
    """

    def __init__(self, config: ModelConfig, layout: Layout, *, rngs: nnx.Rngs, layers: int | None = None) -> None:
        # Outputs that are added to the residual stream start smaller, by the number of such additions (GPT-2, 2.3).
        out_init = normal(0.02 / (2 * config.layers) ** 0.5)
        self.attention_norm = Norm(config, rngs=rngs, layers=layers)
        self.attention = Attention(config, layout, rngs=rngs, layers=layers, out_init=out_init)
        self.mlp_norm = Norm(config, rngs=rngs, layers=layers)
        self.mlp = Mlp(config, layout, rngs=rngs, layers=layers, out_init=out_init)

    def project(
        self, x_BxTxD: jax.Array, rotation: tuple[jax.Array, jax.Array] | None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries, keys and values of this layer, as ``Attention.project`` gives them."""
        return self.attention.project(self.attention_norm(x_BxTxD), rotation)

    def finish(self, x_BxTxD: jax.Array, mixed_BxTxHxC: jax.Array) -> jax.Array:
        """The residual stream after this layer, from what its attention found."""
        with jax.named_scope("attention.out"):
            x_BxTxD = x_BxTxD + self.attention.merge(mixed_BxTxHxC)
        normed_BxTxD = self.mlp_norm(x_BxTxD)
        with jax.named_scope("mlp"):
            return x_BxTxD + self.mlp(normed_BxTxD)
