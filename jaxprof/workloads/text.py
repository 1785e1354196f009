"""Batches of real text: what the package ships, a token a byte."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import jax
import numpy as np

from jaxprof.errors import UserError
from jaxprof.models.layout import Layout


@cache
def sample_tokens() -> np.ndarray:
    """The sample text as int32 [N], one byte a token; its bytes are ASCII."""
    return np.frombuffer(files("jaxprof.models").joinpath("text", "sample.txt").read_bytes(), np.uint8).astype(np.int32)


def check_vocab(vocab: int) -> None:
    """Raises UserError where the sample's bytes are not all in the vocabulary."""
    needed = int(sample_tokens().max()) + 1
    if vocab < needed:
        raise UserError(f"{vocab} is too small for text of single bytes; write {needed} or more", where="model.vocab")


def tokens(first_sequence: int, batch: int, seq_len: int, layout: Layout, *, shift: int = 0) -> jax.Array:
    """Tokens int32 [B, T]: sequence i of the batch is the i-th stretch of text after ``first_sequence`` stretches.

    ``shift`` moves every sequence that many tokens on: the targets of a batch are its tokens shifted by one. The text
    starts again where it ends. Each device gets its own sequences; the whole batch never stands on the host.
    """
    text = sample_tokens()

    def part(index: Any) -> np.ndarray:
        rows, columns = np.arange(batch)[index[0]] + first_sequence, np.arange(seq_len)[index[1]] + shift
        return text[(rows[:, None] * seq_len + columns[None, :]) % len(text)]

    sharding = layout.sharding(("batch", None), (batch, seq_len))
    if sharding is None:
        return jax.numpy.asarray(part((slice(None), slice(None))))
    return jax.make_array_from_callback((batch, seq_len), sharding, part)
