"""Next-token cross-entropy, for all tokens at once or a chunk of them at a time."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxprof.workloads.module import LanguageModel


def next_token_loss(model: LanguageModel, tokens_BxT: jax.Array, targets_BxT: jax.Array, chunks: int) -> jax.Array:
    """Mean cross-entropy in nats, a float32 scalar.

    Logits are made for T / ``chunks`` positions of every sequence at a time. With more than one chunk they are not kept
    but made again in the backward pass, so that no more than one chunk's logits ever exist.
    """
    x_BxTxD = model.hidden(tokens_BxT)
    if chunks == 1:
        total = _cross_entropy(model, x_BxTxD, targets_BxT)
    else:
        chunk = jax.checkpoint(lambda x, targets: _cross_entropy(model, x, targets), prevent_cse=False)
        total, _ = jax.lax.scan(
            lambda total, part: (total + chunk(*part), None),
            jnp.zeros((), jnp.float32),
            (_leading(x_BxTxD, chunks), _leading(targets_BxT, chunks)),
        )
    with jax.named_scope("loss"):
        return total / targets_BxT.size


def _cross_entropy(model: LanguageModel, x_BxTxD: jax.Array, targets_BxT: jax.Array) -> jax.Array:
    """Sum over tokens. The target's logit is picked by comparison, not by a gather, because V may be sharded."""
    logits_BxTxV = model.logits(x_BxTxD)
    with jax.named_scope("loss"):
        is_target_BxTxV = targets_BxT[..., None] == jnp.arange(logits_BxTxV.shape[-1])
        picked_BxT = jnp.sum(jnp.where(is_target_BxTxV, logits_BxTxV, 0.0), axis=-1)
        return jnp.sum(jax.nn.logsumexp(logits_BxTxV, axis=-1) - picked_BxT)


def _leading(x: jax.Array, chunks: int) -> jax.Array:
    """[B, T, ...] to [chunks, B, T / chunks, ...]."""
    B, T = x.shape[:2]
    return jnp.moveaxis(x.reshape(B, chunks, T // chunks, *x.shape[2:]), 1, 0)
