"""The next token from its logits."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxprof.config.schema import StepConfig


def next_token(logits_Bx1xV: jax.Array, position: jax.Array, step: StepConfig, seed: int) -> jax.Array:
    """Tokens int32 [B]: the likeliest, or drawn at ``step.temperature`` with a key of its own for each position."""
    with jax.named_scope("unembed"):
        logits_BxV = logits_Bx1xV[:, -1]
        if step.sampling == "greedy":
            return jnp.argmax(logits_BxV, axis=-1).astype(jnp.int32)
        key = jax.random.fold_in(jax.random.key(seed), position)
        return jax.random.categorical(key, logits_BxV / step.temperature, axis=-1).astype(jnp.int32)
