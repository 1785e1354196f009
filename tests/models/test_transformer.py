"""What the model computes: causality, windows, and that how it is computed makes no difference."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxprof.config.schema import ModelConfig
from jaxprof.errors import UserError
from jaxprof.models.layout import Layout
from jaxprof.models.rope import frequencies, rotate, rotation
from jaxprof.models.transformer import Transformer

MakeModel = Callable[..., Transformer]


def logits(model: Transformer, tokens: jax.Array) -> jax.Array:
    return model.logits(model.hidden(tokens))


def with_other_token(tokens: jax.Array, position: int) -> jax.Array:
    return tokens.at[:, position].set((tokens[:, position] + 1) % 128)


def loss_and_gradients(model: Transformer, tokens: jax.Array) -> tuple[jax.Array, Any]:
    structure, state = nnx.split(model)

    def loss(params: Any) -> jax.Array:
        return jnp.mean(jnp.square(logits(nnx.merge(structure, params), tokens)))

    return jax.jit(jax.value_and_grad(loss))(nnx.to_pure_dict(state))


def test_causality(model: Transformer, tokens: jax.Array) -> None:
    """Changing a token changes the logits from its position on, and none before, by a single bit."""
    apply = jax.jit(lambda tokens: logits(model, tokens))
    before, after = apply(tokens), apply(with_other_token(tokens, 9))
    np.testing.assert_array_equal(before[:, :9], after[:, :9])
    assert jnp.all(jnp.any(before[:, 9:11] != after[:, 9:11], axis=-1))


def test_no_gradient_reaches_later_embeddings(make_model: MakeModel, gpt2: ModelConfig, tokens: jax.Array) -> None:
    """Each row of a table with one row per position belongs to one position, so its gradient says who used it."""
    model = make_model(gpt2)

    def early(positions: jax.Array) -> jax.Array:
        structure, state = nnx.split(model)
        params = nnx.to_pure_dict(state) | {"positions": positions}
        return jnp.sum(jnp.square(logits(nnx.merge(structure, params), tokens)[:, :9]))

    gradient = jax.jit(jax.grad(early))(model.positions[...])
    assert jnp.all(gradient[9:] == 0)
    assert jnp.all(jnp.any(gradient[:9] != 0, axis=-1))


def test_sliding_window_sees_the_latest_positions_only(
    make_model: MakeModel, mistral: ModelConfig, tokens: jax.Array
) -> None:
    """One layer with window 5: position 4 and later see a change of token 4 until position 8, none after."""
    model = make_model(dataclasses.replace(mistral, layers=1))
    before, after = logits(model, tokens), logits(model, with_other_token(tokens, 4))
    changed = np.asarray(jnp.any(before != after, axis=(0, 2)))
    assert changed.tolist() == [4 <= position <= 8 for position in range(16)]


def test_window_as_long_as_the_sequence_is_no_window(
    make_model: MakeModel, llama: ModelConfig, tokens: jax.Array
) -> None:
    windowed = make_model(dataclasses.replace(llama, sliding_window=16))
    np.testing.assert_array_equal(logits(windowed, tokens), logits(make_model(llama), tokens))


def unrolled(model: Transformer) -> Transformer:
    """The same weights, in a model that has a block for each layer."""
    config = dataclasses.replace(model.config, scan_layers=False)
    params = nnx.to_pure_dict(nnx.state(model))
    params["layers"] = {i: jax.tree.map(lambda stack: stack[i], params["layers"]) for i in range(config.layers)}  # noqa: B023
    abstract = nnx.eval_shape(lambda: Transformer(config, rngs=nnx.Rngs(0)))
    return nnx.merge(nnx.graphdef(abstract), params)


def test_scanned_equals_unrolled(model: Transformer, tokens: jax.Array) -> None:
    loss, gradients = loss_and_gradients(model, tokens)
    unrolled_loss, unrolled_gradients = loss_and_gradients(unrolled(model), tokens)
    layers = list(unrolled_gradients["layers"].values())
    unrolled_gradients["layers"] = jax.tree.map(lambda *parts: jnp.stack(parts), *layers)
    np.testing.assert_allclose(loss, unrolled_loss, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), gradients, unrolled_gradients)


@pytest.mark.parametrize("scan_layers", [True, False])
def test_remat_changes_no_result(
    make_model: MakeModel, llama: ModelConfig, scan_layers: bool, tokens: jax.Array
) -> None:
    config = dataclasses.replace(llama, scan_layers=scan_layers)
    expected = loss_and_gradients(make_model(config), tokens)
    for remat in ("full", "dots", {"save": ["q", "mlp_up"]}):
        found = loss_and_gradients(make_model(dataclasses.replace(config, remat=remat)), tokens)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), expected, found)


def saved_names(model: Transformer, capsys: pytest.CaptureFixture[str]) -> str:
    structure, state = nnx.split(model)
    tokens = jnp.zeros((2, 16), jnp.int32)
    jax.ad_checkpoint.print_saved_residuals(
        lambda params: jnp.sum(nnx.merge(structure, params).hidden(tokens)), nnx.to_pure_dict(state)
    )
    return capsys.readouterr().out


def test_named_activations_are_what_is_kept(
    make_model: MakeModel, llama: ModelConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    one = dataclasses.replace(llama, scan_layers=False, layers=1)
    kept = saved_names(make_model(dataclasses.replace(one, remat={"save": ["mlp_up", "attention_core"]})), capsys)
    assert "named 'mlp_up'" in kept
    assert "named 'attention_core'" in kept
    assert "f32[2,2,2,16,16]" not in kept, "scores are kept"
    assert "named" not in saved_names(make_model(dataclasses.replace(one, remat="full")), capsys)


def test_unknown_activation_is_an_error(make_model: MakeModel, llama: ModelConfig) -> None:
    model = make_model(dataclasses.replace(llama, remat={"save": ["mlp_upp"]}))
    with pytest.raises(UserError, match=r"model\.remat: no activation is called mlp_upp; there are q, k"):
        model.hidden(jnp.zeros((1, 4), jnp.int32))


def test_padding_of_the_vocabulary_never_wins(make_model: MakeModel, llama: ModelConfig, tokens: jax.Array) -> None:
    """With 4 shards 130 entries become 256 rows; the softmax is that of the first 130 alone."""
    mesh = jax.make_mesh((4,), ("tensor",), axis_types=(jax.sharding.AxisType.Auto,))
    config = dataclasses.replace(llama, vocab=130)
    padded = make_model(config, Layout(mesh, (("vocab", ("tensor",)),)))
    rows = {name: getattr(padded, name)[...][:130] for name in ("tokens", "unembed")}
    plain = nnx.merge(nnx.graphdef(make_model(config)), nnx.to_pure_dict(nnx.state(padded)) | rows)
    found, expected = (jax.jit(lambda tokens, model=model: logits(model, tokens))(tokens) for model in (padded, plain))
    assert found.shape[-1] == 256
    np.testing.assert_allclose(found[..., :130], expected, rtol=1e-5, atol=1e-6)
    assert jnp.all(jax.nn.softmax(found)[..., 130:] == 0)
    np.testing.assert_allclose(jax.nn.logsumexp(found, axis=-1), jax.nn.logsumexp(expected, axis=-1), rtol=1e-6)


def test_compute_and_storage_dtypes(model: Transformer) -> None:
    config = dataclasses.replace(model.config, dtype="bfloat16", param_dtype="bfloat16")
    narrow = nnx.eval_shape(lambda: Transformer(config, rngs=nnx.Rngs(0)))
    structure, state = nnx.split(narrow)
    assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {jnp.dtype("bfloat16")}

    def apply(state: Any, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
        narrow = nnx.merge(structure, state)
        return narrow.hidden(tokens), logits(narrow, tokens)

    hidden, scores = jax.eval_shape(apply, state, jax.ShapeDtypeStruct((2, 16), jnp.int32))
    assert (hidden.dtype, scores.dtype) == (jnp.bfloat16, jnp.float32)


def test_rotary_scores_depend_on_distance_only() -> None:
    """The property that the embedding was made for (RoFormer, equation 11)."""
    q, k = jax.random.normal(jax.random.key(0), (2, 1, 1, 1, 16))
    table = frequencies(16, 10000.0)

    def score(query_at: int, key_at: int) -> float:
        turned = [rotate(x, rotation(jnp.array([at]), table)) for x, at in ((q, query_at), (k, key_at))]
        return float(jnp.sum(turned[0] * turned[1]))

    assert score(7, 3) == pytest.approx(score(104, 100), rel=1e-4)
    assert score(3, 3) == pytest.approx(float(jnp.sum(q * k)), rel=1e-4)
    assert score(7, 3) != pytest.approx(score(7, 4), rel=1e-3)


def test_parts_are_named_in_the_program(make_model: MakeModel, llama: ModelConfig) -> None:
    model = make_model(llama)
    text = jax.jit(lambda tokens: logits(model, tokens)).lower(jnp.zeros((1, 8), jnp.int32)).compile().as_text()
    for scope in ("embed", "norm", "attention.qkv", "attention.core", "attention.out", "mlp", "unembed"):
        assert re.search(rf'op_name="jit[^"]*/{re.escape(scope)}/', text), scope
