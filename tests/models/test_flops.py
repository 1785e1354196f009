"""Closed forms against figures known from elsewhere: published parameter counts and the public cases B7 to B12."""

from __future__ import annotations

import dataclasses

import jax
import pytest
from flax import nnx

from jaxprof.config.load import load_run
from jaxprof.config.schema import ModelConfig, StepConfig
from jaxprof.models.flops import (
    attended_pairs,
    attention_flops,
    decode_pairs,
    experts_flops,
    packed_pairs,
    router_flops,
    transformer_flops,
    transformer_parameters,
)
from jaxprof.models.transformer import Transformer

B7 = ModelConfig(name="b7", d_model=512, layers=4, vocab=32000, d_ff=1408, heads=8, kv_heads=2, head_dim=64)
B7_STEP = StepConfig(kind="train", batch=2, seq_len=1024)


@pytest.mark.parametrize("tied", [True, False])
def test_b7_tying_the_output_changes_no_flops(tied: bool) -> None:
    flops = transformer_flops(dataclasses.replace(B7, tied_output=tied), B7_STEP)
    assert flops.full - flops.parts["attention.core"] == 339_839_287_296 == 3 * 113_279_762_432
    assert flops.full == 391_378_894_848
    assert flops.causal == 365_634_256_896


def test_b7_six_n_t_counts_the_token_table_as_a_matmul() -> None:
    norms = 2 * B7.layers * B7.d_model + B7.d_model
    matrices = transformer_parameters(B7).total - norms
    assert matrices == 44_040_192
    assert 6 * matrices * 2 * 1024 == 541_165_879_296


def test_b8_sliding_window_pairs() -> None:
    assert attended_pairs(4096) == 8_390_656
    assert attended_pairs(4096, window=1024) == 3_670_528
    assert attended_pairs(256, window=1024) == 32_896


def test_b8_window_reaches_the_step() -> None:
    windowed = dataclasses.replace(B7, sliding_window=1024)
    step = StepConfig(kind="prefill", batch=1, seq_len=4096)
    core = 4 * 4 * 8 * 64  # 4 B H C pairs, for each of four layers
    flops = transformer_flops(windowed, step)
    assert flops.full - flops.causal == core * (4096 * 4096 - 3_670_528)


def test_b9_query_and_value_heads_of_different_size() -> None:
    pairs = 4096 * 4096
    assert attention_flops(batch=1, heads=16, pairs=pairs, qk_dim=192, v_dim=128) == 171_798_691_840


def test_b10_only_active_experts_are_model_flops() -> None:
    assert experts_flops(tokens=1, d_model=4096, d_ff=14336, experts=2) == 704_643_072
    assert experts_flops(tokens=1, d_model=4096, d_ff=14336, experts=8) == 2_818_572_288
    assert router_flops(tokens=1, d_model=4096, experts=8) == 65_536


def test_b12_packed_documents_do_not_see_each_other() -> None:
    documents = (4096, 2048, 1024)
    assert packed_pairs(documents) == 11_013_632
    assert attended_pairs(8192) == 33_558_528
    assert sum(documents) == 7_168


def test_decode_pairs_are_the_causal_pairs_of_the_new_positions() -> None:
    assert decode_pairs(10, 3) == 11 + 12 + 13
    assert decode_pairs(10, 3, window=4) == 4 * 3
    assert decode_pairs(0, 3, window=2) == 1 + 2 + 2


def test_decode_counts_one_call_averaged_until_the_cache_is_full() -> None:
    step = StepConfig(kind="decode", batch=3, context=16, prompt=8, new_tokens=2)
    flops = transformer_flops(B7, step)
    weights = (44_040_192 - B7.vocab * B7.d_model) * 2
    per_pair = 4 * 3 * 8 * 64 * B7.layers
    assert flops.full == 3 * 2 * weights + per_pair * 2 * 16
    assert flops.causal == 3 * 2 * weights + per_pair * (9 + 10 + 11 + 12 + 13 + 14 + 15 + 16) // 4


@pytest.mark.parametrize(
    ("preset", "total", "non_embedding"),
    [
        ("gpt2-train", 124_439_808, 85_056_000),
        ("llama2-7b-train", 6_738_415_616, 6_476_271_616),
        ("llama2-70b-train", 68_976_648_192, None),
        ("llama3.1-8b-train", 8_030_261_248, None),
        ("llama3.1-70b-train", 70_553_706_496, None),
        ("llama3.1-405b-train", 405_853_388_800, None),
        ("mistral-7b-train", 7_241_732_096, None),
    ],
)
def test_published_parameter_counts(preset: str, total: int, non_embedding: int | None) -> None:
    """As the models' own checkpoints hold them; the second without token, position and untied output tables."""
    count = transformer_parameters(load_run(preset).model)
    assert count.total == count.active == total
    assert non_embedding is None or count.non_embedding == non_embedding


@pytest.mark.parametrize("preset", ["gpt2-tiny-train", "llama3-tiny-train", "mistral-tiny-train"])
def test_parameter_formula_counts_what_the_module_holds(preset: str) -> None:
    config = load_run(preset).model
    held = nnx.state(nnx.eval_shape(lambda: Transformer(config, rngs=nnx.Rngs(0))))
    assert sum(leaf.size for leaf in jax.tree.leaves(held)) == transformer_parameters(config).total
