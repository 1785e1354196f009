"""optax AdamW, with moments stored in a dtype of their own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxprof.config.schema import OptimizerConfig


def adamw(config: OptimizerConfig) -> optax.GradientTransformation:
    """Clipping by the global norm, then AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101)."""
    clip = optax.identity() if config.clip_norm is None else optax.clip_by_global_norm(config.clip_norm)
    return optax.chain(
        clip,
        _stored_as(optax.scale_by_adam(b1=config.b1, b2=config.b2, eps=config.eps), config.moment_dtype),
        optax.add_decayed_weights(config.weight_decay),
        optax.scale_by_learning_rate(config.learning_rate),
    )


def _stored_as(inner: optax.GradientTransformation, dtype: str) -> optax.GradientTransformation:
    """``inner`` with the floating-point part of its state in ``dtype`` between steps, and in float32 within them."""

    def cast(state: Any, to: str) -> Any:
        return jax.tree.map(lambda x: x.astype(to) if jnp.issubdtype(x.dtype, jnp.floating) else x, state)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        updates, state = inner.update(cast(updates, "float32"), cast(state, "float32"), params)
        return updates, cast(state, dtype)

    return optax.GradientTransformation(lambda params: cast(inner.init(params), dtype), update)
