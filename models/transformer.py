"""A decoder-only transformer: GPT-2, GPT-3, Llama 2 and 3, Mistral, as its configuration says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxprof.config.padding import padded_vocab
from jaxprof.config.schema import ModelConfig, StepConfig
from jaxprof.models import cache as kv
from jaxprof.models.arrays import ArraySpec, normal, weight
from jaxprof.models.attention import attend, visible
from jaxprof.models.block import Block
from jaxprof.models.flops import ParameterCount, StepFlops, cache_slots, transformer_flops, transformer_parameters
from jaxprof.models.layout import SINGLE_DEVICE, Layout
from jaxprof.models.norm import Norm
from jaxprof.models.remat import rematerialized
from jaxprof.models.rope import frequencies, rotation


class Transformer(nnx.Module):
    """The methods are those of ``jaxprof.workloads.module.LanguageModel``; every array in and out is global."""

    def __init__(self, config: ModelConfig, layout: Layout = SINGLE_DEVICE, *, rngs: nnx.Rngs) -> None:
        self.config = config
        self.layout = layout
        D = config.d_model
        V = padded_vocab(config.vocab, layout.shards("vocab"))

        def table(rows: int, axis: str) -> nnx.Param[jax.Array]:
            return ArraySpec((rows, D), (axis, "embed"), normal(0.02), config.param_dtype).param(rngs)

        self.tokens = table(V, "vocab")
        if config.position == "learned":
            self.positions = table(config.learned_positions, "positions")
        if config.scan_layers:
            self.layers = Block(config, layout, rngs=rngs, layers=config.layers)
        else:
            self.layers = nnx.List([Block(config, layout, rngs=rngs) for _ in range(config.layers)])
        self.final_norm = Norm(config, rngs=rngs)
        if not config.tied_output:
            self.unembed = table(V, "vocab")

    def hidden(self, tokens_BxT: jax.Array) -> jax.Array:
        """What the last layer says of each position, normalised, [B, T, D]."""
        positions_T = jnp.arange(tokens_BxT.shape[1])
        turn, seen_TxT = self._rotation(positions_T), visible(positions_T, positions_T, self.config.sliding_window)

        def layer(block: Block, x_BxTxD: jax.Array, index: jax.Array | int) -> jax.Array:
            q, k, v = block.project(x_BxTxD, turn)
            return block.finish(x_BxTxD, attend(q, k, v, seen_TxT))

        x_BxTxD = self._through_layers(layer, self._embed(tokens_BxT, positions_T), remat=True)
        return self.final_norm(x_BxTxD)

    def logits(self, x_BxTxD: jax.Array) -> jax.Array:
        """Float32 scores of the next token, [B, T, V]. Rows that only pad the vocabulary can never be chosen."""
        with jax.named_scope("unembed"):
            table_VxD = weight(self.tokens if self.config.tied_output else self.unembed, self.config.dtype, self.layout)
            logits_BxTxV = jnp.einsum("btd,vd->btv", x_BxTxD, table_VxD, preferred_element_type=jnp.float32)
            logits_BxTxV = self.layout.constrain(logits_BxTxV, "batch", None, "vocab")
            if table_VxD.shape[0] == self.config.vocab:
                return logits_BxTxV
            real_V = jnp.arange(table_VxD.shape[0]) < self.config.vocab
            return jnp.where(real_V, logits_BxTxV, jnp.finfo(jnp.float32).min)

    def cache(self, step: StepConfig) -> kv.CacheSpec:
        """The KV cache of a prefill or decode step: one array of keys, one of values, for all layers."""
        return kv.describe(self.config, self.layout, step.batch, cache_slots(self.config, step), step.cache_dtype)

    def prefill(self, tokens_BxT: jax.Array, cache: kv.Cache) -> tuple[jax.Array, kv.Cache]:
        """``hidden`` of a prompt, [B, T, D], and the cache with the prompt's keys and values in it."""
        positions_T = jnp.arange(tokens_BxT.shape[1])
        turn, seen_TxT = self._rotation(positions_T), visible(positions_T, positions_T, self.config.sliding_window)

        def layer(
            block: Block, carry: tuple[jax.Array, kv.Cache], index: jax.Array | int
        ) -> tuple[jax.Array, kv.Cache]:
            x_BxTxD, cache = carry
            q, k, v = block.project(x_BxTxD, turn)
            return block.finish(x_BxTxD, attend(q, k, v, seen_TxT)), kv.fill(cache, index, k, v)

        x_BxTxD, cache = self._through_layers(layer, (self._embed(tokens_BxT, positions_T), cache))
        return self.final_norm(x_BxTxD), cache

    def decode(self, token_B: jax.Array, position: jax.Array, cache: kv.Cache) -> tuple[jax.Array, kv.Cache]:
        """``hidden`` of one token per sequence at ``position``, [B, 1, D], and the cache with it written in."""
        positions_1 = position[None]
        turn = self._rotation(positions_1)
        seen_1xS = visible(positions_1, kv.slot_positions(position, cache), self.config.sliding_window)

        def layer(
            block: Block, carry: tuple[jax.Array, kv.Cache], index: jax.Array | int
        ) -> tuple[jax.Array, kv.Cache]:
            x_Bx1xD, cache = carry
            q, k, v = block.project(x_Bx1xD, turn)
            cache = kv.append(cache, index, k, v, position)
            return block.finish(x_Bx1xD, attend(q, *kv.layer(cache, index), seen_1xS)), cache

        x_Bx1xD, cache = self._through_layers(layer, (self._embed(token_B[:, None], positions_1), cache))
        return self.final_norm(x_Bx1xD), cache

    def flops(self, step: StepConfig) -> StepFlops:
        return transformer_flops(self.config, step)

    def parameters(self) -> ParameterCount:
        return transformer_parameters(self.config)

    def _embed(self, tokens_BxT: jax.Array, positions_T: jax.Array) -> jax.Array:
        with jax.named_scope("embed"):
            x_BxTxD = weight(self.tokens, self.config.dtype, self.layout)[tokens_BxT]
            if self.config.position == "learned":
                x_BxTxD = x_BxTxD + weight(self.positions, self.config.dtype, self.layout)[positions_T]
            return self.layout.constrain(x_BxTxD, "batch", None, None)

    def _rotation(self, positions_T: jax.Array) -> tuple[jax.Array, jax.Array] | None:
        if self.config.position != "rope":
            return None
        config = self.config
        return rotation(positions_T, frequencies(config.head_dim, config.rope_theta, config.rope_scaling))

    def _through_layers(self, layer: Callable[[Block, Any, Any], Any], carry: Any, *, remat: bool = False) -> Any:
        """``carry`` after ``layer(block, carry, index)`` of every layer: one scanned body, or one copy per layer."""
        scanned = self.config.scan_layers
        blocks = [self.layers] if isinstance(self.layers, Block) else list(self.layers)
        structure = nnx.graphdef(blocks[0])

        def body(carry: Any, weights_and_index: tuple[Any, Any]) -> tuple[Any, None]:
            weights, index = weights_and_index
            return layer(nnx.merge(structure, weights), carry, index), None

        if remat:
            body = rematerialized(body, self.config.remat, in_scan=scanned)
        if scanned:
            carry, _ = jax.lax.scan(body, carry, (_weights(self.layers), jnp.arange(self.config.layers)))
        else:
            for index, block in enumerate(blocks):
                carry, _ = body(carry, (_weights(block), index))
        return carry


def _weights(block: Any) -> Any:
    return nnx.to_pure_dict(nnx.state(block))
