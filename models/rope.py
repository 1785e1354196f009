"""Rotary position embedding (Su et al. 2021, arXiv:2104.09864), halves rotated against each other as Llama does."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np


def frequencies(head_dim: int, theta: float, scaling: Mapping[str, float] | None = None) -> np.ndarray:
    """Radians per position of each of the head_dim / 2 pairs, float32.

    ``scaling`` stretches low frequencies as Llama 3.1 does: wavelengths shorter than original_max_position /
    high_freq_factor keep their frequency, those longer than original_max_position / low_freq_factor are divided by
    ``factor``, and between the two the divisor goes smoothly from one to the other.
    """
    frequency = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    if scaling is not None:
        turns = scaling["original_max_position"] * frequency / (2 * math.pi)
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
        frequency = frequency * (kept + (1.0 - kept) / scaling["factor"])
    return frequency.astype(np.float32)


def rotation(positions_T: jax.Array, frequencies_C2: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines, each float32 [T, C/2]."""
    angles = positions_T.astype(jnp.float32)[:, None] * frequencies_C2[None, :]
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x_BxTxHxC: jax.Array, cos_sin: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Turn each pair (channel i, channel i + C/2) by its position's angle, in float32."""
    cos, sin = (part[None, :, None, :] for part in cos_sin)
    first, second = jnp.split(x_BxTxHxC.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(x_BxTxHxC.dtype)
