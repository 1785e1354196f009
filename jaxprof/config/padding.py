"""How sizes that do not divide by their shards are made to, as real systems do it: by padding and by replication."""

from __future__ import annotations

import math

LANES = 128
"""A TPU register's width in elements; a vocabulary that is padded anyway is padded to a multiple of it."""


def padded_vocab(vocab: int, shards: int) -> int:
    """Rows of the embedding table: ``vocab`` where the shards divide it, else the next multiple of them and of 128."""
    if vocab % shards == 0:
        return vocab
    multiple = math.lcm(shards, LANES)
    return -(-vocab // multiple) * multiple


def kv_replicas(kv_heads: int, tensor: int) -> int:
    """How often each key/value head is repeated so that ``tensor`` shards divide their number; 1 where they do."""
    return tensor // math.gcd(kv_heads, tensor)
