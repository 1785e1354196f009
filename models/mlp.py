"""The feed-forward part: SwiGLU (Shazeer 2020, arXiv:2002.05202), or two matrices with the tanh form of GELU."""

from __future__ import annotations

import jax
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from jaxprof.config.schema import ModelConfig
from jaxprof.models.arrays import ArraySpec, Initializer, normal, weight, zeros
from jaxprof.models.layout import Layout


class Mlp(nnx.Module):
    """D -> F -> D."""

    def __init__(
        self, config: ModelConfig, layout: Layout, *, rngs: nnx.Rngs, layers: int | None = None, out_init: Initializer
    ) -> None:
        self.layout = layout
        self.dtype = config.dtype
        self.gated = config.mlp == "swiglu"
        self.biased = config.mlp_bias
        D, F = config.d_model, config.d_ff

        def param(shape, axes, initializer) -> nnx.Param[jax.Array]:
            spec = ArraySpec(shape, axes, initializer, config.param_dtype)
            return (spec.stacked(layers) if layers else spec).param(rngs)

        self.up = param((D, F), ("embed", "ff"), normal(0.02))
        if self.gated:
            self.gate = param((D, F), ("embed", "ff"), normal(0.02))
        self.down = param((F, D), ("ff", "embed"), out_init)
        if self.biased:
            self.up_bias = param((F,), ("ff",), zeros)
            self.down_bias = param((D,), ("features",), zeros)

    def __call__(self, x_BxTxD: jax.Array) -> jax.Array:
        up_BxTxF = self._hidden(x_BxTxD, self.up)
        if self.biased:
            up_BxTxF = up_BxTxF + weight(self.up_bias, self.dtype, self.layout)
        up_BxTxF = checkpoint_name(up_BxTxF, "mlp_up")
        if self.gated:
            gate_BxTxF = checkpoint_name(self._hidden(x_BxTxD, self.gate), "mlp_gate")
            hidden_BxTxF = jax.nn.silu(gate_BxTxF) * up_BxTxF
        else:
            hidden_BxTxF = jax.nn.gelu(up_BxTxF, approximate=True)
        y_BxTxD = hidden_BxTxF @ weight(self.down, self.dtype, self.layout)
        y_BxTxD = self.layout.constrain(y_BxTxD, "batch", None, None)
        if self.biased:
            y_BxTxD = y_BxTxD + weight(self.down_bias, self.dtype, self.layout)
        return checkpoint_name(y_BxTxD, "mlp_down")

    def _hidden(self, x_BxTxD: jax.Array, param: nnx.Param[jax.Array]) -> jax.Array:
        return self.layout.constrain(x_BxTxD @ weight(param, self.dtype, self.layout), "batch", None, "ff")
