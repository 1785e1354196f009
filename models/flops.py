"""Model FLOPs: what the architecture's matmuls cost by their shapes, 2mnk each, no recompute and no padding.

The backward pass of a matmul is two matmuls of the same size, one for each operand, so a training step costs three
forward passes, attention included (appendix B of the PaLM paper, arXiv:2204.02311, counts the same way). Lookups in the
token and position tables are no matmuls.

Attention has two conventions, and a figure without its label cannot be compared: ``causal`` counts the pairs of
positions that attend to each other, ``full`` all pairs that are computed when masked ones are too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jaxprof.config.schema import ModelConfig, StepConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFlops:
    """Model FLOPs of one step over all devices."""

    causal: int
    full: int
    parts: dict[str, int]
    """``full`` by model part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """How many parameters there are; padding is not counted."""

    total: int
    active: int
    """Those that one token's forward pass uses."""
    non_embedding: int
    """Without the token and position tables and without an untied output matrix (Kaplan et al. 2020, 2.1)."""


def attended_pairs(tokens: int, window: int | None = None) -> int:
    """Pairs (query, key) that causal attention keeps in one sequence.

    With a window W each query sees its latest W positions, itself included; the first W - 1 queries see fewer.
    """
    seen = min(window or tokens, tokens)
    return seen * (seen + 1) // 2 + (tokens - seen) * seen


def packed_pairs(documents: Iterable[int], window: int | None = None) -> int:
    """Attended pairs of a row in which several documents lie one after the other and do not see each other."""
    return sum(attended_pairs(tokens, window) for tokens in documents)


def decode_pairs(first: int, tokens: int, window: int | None = None) -> int:
    """Pairs of ``tokens`` single queries, the first at position ``first``: each sees itself and all before it."""
    return attended_pairs(first + tokens, window) - attended_pairs(first, window)


def attention_flops(*, batch: int, heads: int, pairs: int, qk_dim: int, v_dim: int) -> int:
    """Scores and weighted values of one layer's attention; query/key and value heads may differ in size (MLA)."""
    return 2 * batch * heads * pairs * (qk_dim + v_dim)


def experts_flops(*, tokens: int, d_model: int, d_ff: int, experts: int, matrices: int = 3) -> int:
    """The MLPs of ``experts`` experts per token: the active ones for model FLOPs, all where a program runs all."""
    return 2 * tokens * experts * matrices * d_model * d_ff


def router_flops(*, tokens: int, d_model: int, experts: int) -> int:
    """Scores of all experts for each token."""
    return 2 * tokens * d_model * experts


def transformer_parameters(config: ModelConfig) -> ParameterCount:
    """Parameters of the model that ``config`` describes."""
    D, H, K, C, F, V = config.d_model, config.heads, config.kv_heads, config.head_dim, config.d_ff, config.vocab
    norm = D * (2 if config.norm == "layernorm" else 1)
    attention = D * C * (2 * H + 2 * K) + (C * (H + 2 * K) + D if config.attention_bias else 0)
    mlp = D * F * _mlp_matrices(config) + (F + D if config.mlp_bias else 0)
    inner = config.layers * (attention + mlp + 2 * norm) + norm
    positions = config.learned_positions * D if config.position == "learned" else 0
    total = inner + V * D * (1 if config.tied_output else 2) + positions
    return ParameterCount(total=total, active=total, non_embedding=inner)


def transformer_flops(config: ModelConfig, step: StepConfig) -> StepFlops:
    """Model FLOPs of one step.

    train: three forward passes over batch x seq_len tokens. prefill: one forward pass, with logits for each sequence's
    last token only. decode: one forward pass per new token; ``full`` attends to every slot of the cache, ``causal`` to
    those filled, averaged over the calls until the cache is full.
    """
    B, T, window = step.batch, step.seq_len, config.sliding_window
    if step.kind == "train":
        forward = _forward(config, tokens=B * T, logits=B * T, batch=B, pairs=(attended_pairs(T, window), T * T))
        return StepFlops(
            causal=3 * forward.causal,
            full=3 * forward.full,
            parts={part: 3 * flops for part, flops in forward.parts.items()},
        )
    if step.kind == "prefill":
        return _forward(config, tokens=B * T, logits=B, batch=B, pairs=(attended_pairs(T, window), T * T))
    tokens, prompt, calls = decode_calls(step)
    pairs = decode_pairs(prompt, calls * tokens, window) // calls
    slots = cache_slots(config, step)
    return _forward(config, tokens=B * tokens, logits=B * tokens, batch=B, pairs=(pairs, tokens * slots))


def decode_calls(step: StepConfig) -> tuple[int, int, int]:
    """Of a decode step: tokens a call, positions filled before the first call, calls until the cache is full."""
    tokens = step.new_tokens if step.loop == "device" else 1
    prompt = step.prompt or step.context // 2
    return tokens, prompt, (step.context - prompt) // tokens


def cache_slots(config: ModelConfig, step: StepConfig) -> int:
    """Positions that the KV cache holds: those of the sliding window where there is one, written round and round."""
    positions = step.context if step.kind == "decode" else step.seq_len
    return min(positions, config.sliding_window or positions)


def _mlp_matrices(config: ModelConfig) -> int:
    return 3 if config.mlp == "swiglu" else 2


def _forward(config: ModelConfig, *, tokens: int, logits: int, batch: int, pairs: tuple[int, int]) -> StepFlops:
    """One forward pass over ``tokens`` tokens with ``logits`` rows of logits; ``pairs`` a sequence, (attended, all)."""
    D, H, K, C, F = config.d_model, config.heads, config.kv_heads, config.head_dim, config.d_ff
    causal, full = (
        config.layers * attention_flops(batch=batch, heads=H, pairs=count, qk_dim=C, v_dim=C) for count in pairs
    )
    parts: Mapping[str, int] = {
        "attention.qkv": config.layers * 2 * tokens * D * C * (H + 2 * K),
        "attention.core": full,
        "attention.out": config.layers * 2 * tokens * H * C * D,
        "mlp": config.layers * 2 * tokens * D * F * _mlp_matrices(config),
        "unembed": 2 * logits * D * config.vocab,
    }
    total = sum(parts.values())
    return StepFlops(causal=total - full + causal, full=total, parts=dict(parts))
