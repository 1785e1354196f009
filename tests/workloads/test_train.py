"""The training step: it learns, in place, and its chunks and dtypes change nothing they should not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxprof.config.schema import MeshConfig, OptimizerConfig, RunConfig
from jaxprof.models.transformer import Transformer
from jaxprof.workloads import parameters, rules, text
from jaxprof.workloads.build import build_workload
from jaxprof.workloads.loss import next_token_loss
from jaxprof.workloads.mesh import build_mesh
from jaxprof.workloads.optimizer import adamw
from jaxprof.workloads.workload import Workload

MakeConfig = Callable[..., RunConfig]
Compile = Callable[[Workload], Any]


@pytest.fixture(scope="module")
def trained(make_config: MakeConfig, compiled: Compile) -> tuple[Workload, Any, list[float], tuple[Any, ...]]:
    """The workload, its executable, the losses of 50 steps on the shipped text, and the arguments after them."""
    config = make_config("train", seq_len=64, optimizer={"learning_rate": 1e-2})
    workload = build_workload(config, build_mesh(config.mesh))
    assert workload.make_arguments is not None
    assert workload.next_arguments is not None
    step = compiled(workload)
    arguments, losses = workload.make_arguments(), []
    for _ in range(50):
        outputs = step(*arguments)
        losses.append(float(outputs[1]["loss"]))
        arguments = workload.next_arguments(arguments, outputs)
    return workload, step, losses, arguments


def test_loss_falls_on_the_shipped_text(trained: tuple[Workload, Any, list[float], tuple[Any, ...]]) -> None:
    """It starts at that of guessing among the vocabulary and ends below that of knowing each letter's frequency."""
    _, _, losses, _ = trained
    letters = np.bincount(text.sample_tokens()) / len(text.sample_tokens())
    entropy = -np.sum(letters[letters > 0] * np.log(letters[letters > 0]))
    assert losses[0] == pytest.approx(np.log(130), rel=0.02)
    assert np.mean(losses[-5:]) < entropy


def test_state_is_updated_in_place(trained: tuple[Workload, Any, list[float], tuple[Any, ...]]) -> None:
    """What is donated on one device is all of the state, and all of it is reused for the output."""
    workload, step, _, _ = trained
    state_bytes = sum(
        np.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(workload.arguments[0])
    )
    assert step.memory_analysis().alias_size_in_bytes == state_bytes


def test_outputs_feed_the_next_call(trained: tuple[Workload, Any, list[float], tuple[Any, ...]]) -> None:
    """Real arguments, first and later ones, look exactly like the abstract ones: nothing is compiled again."""
    workload, _, _, arguments = trained

    def same(abstract: Any, real: jax.Array) -> None:
        assert (real.shape, real.dtype) == (abstract.shape, abstract.dtype)
        assert real.sharding.is_equivalent_to(abstract.sharding, real.ndim)

    jax.tree.map(same, workload.arguments, arguments)
    assert workload.make_arguments is not None
    jax.tree.map(same, workload.arguments, workload.make_arguments())


def test_every_argument_has_its_owner(trained: tuple[Workload, Any, list[float], tuple[Any, ...]]) -> None:
    workload, _, _, _ = trained
    paths = [
        jax.tree_util.keystr(path, simple=True, separator=".")
        for path, _ in jax.tree_util.tree_leaves_with_path(workload.arguments)
    ]
    assert "0.params.layers.attention.q" in paths
    owners = [workload.owners(path) for path in paths]
    parameters_held = len(jax.tree.leaves(workload.arguments[0]["params"]))
    assert owners.count("parameters") == parameters_held
    assert owners.count("optimizer state") == 2 * parameters_held + 1, "two moments each, and a count"
    assert owners.count("batch") == 2


def test_targets_are_the_tokens_that_follow(trained: tuple[Workload, Any, list[float], tuple[Any, ...]]) -> None:
    workload, _, _, _ = trained
    assert workload.make_arguments is not None
    batch = jax.device_get(workload.make_arguments()[1])
    np.testing.assert_array_equal(batch["tokens"][:, 1:], batch["targets"][:, :-1])
    np.testing.assert_array_equal(batch["tokens"][1:, 0], batch["targets"][:-1, -1])


def test_initial_values_do_not_depend_on_the_mesh(make_config: MakeConfig) -> None:
    def value(mesh: MeshConfig) -> np.ndarray:
        layout = rules.layout(build_mesh(mesh))
        described = parameters.describe(Transformer, make_config("train").model, layout)
        one = jax.jit(lambda key: described.create(key)["layers"]["attention"]["q"])
        return jax.device_get(one(jax.random.key(0)))

    np.testing.assert_array_equal(value(MeshConfig()), value(MeshConfig(data=2, fsdp=2, tensor=2)))


def chunked(config: RunConfig, chunks: int, random_values: Callable[[Any], Any]) -> tuple[Any, str]:
    """Loss with gradients on one device, and the program's text."""
    layout = rules.layout(None)
    described = parameters.describe(Transformer, config.model, layout)
    params = random_values(described.abstract)
    tokens, targets = (text.tokens(0, 8, 16, layout, shift=shift) for shift in (0, 1))
    step = jax.jit(jax.value_and_grad(lambda params: next_token_loss(described.bind(params), tokens, targets, chunks)))
    program = step.lower(params).compile()
    return jax.device_get(program(params)), program.as_text()


def test_chunks_of_the_loss_change_no_result_and_never_make_all_logits(
    make_config: MakeConfig, random_values: Callable[[Any], Any]
) -> None:
    config = make_config("train", mesh=MeshConfig())
    (loss, gradients), whole = chunked(config, 1, random_values)
    (chunked_loss, chunked_gradients), pieces = chunked(config, 4, random_values)
    np.testing.assert_allclose(chunked_loss, loss, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6), chunked_gradients, gradients)
    every_logit = ("f32[8,16,130]", "f32[128,130]")
    assert any(shape in whole for shape in every_logit)
    assert not any(shape in pieces for shape in every_logit)


def test_loss_is_the_mean_cross_entropy_of_optax(make_config: MakeConfig, random_values: Callable[[Any], Any]) -> None:
    config = make_config("train", mesh=MeshConfig())
    layout = rules.layout(None)
    described = parameters.describe(Transformer, config.model, layout)
    model = described.bind(random_values(described.abstract))
    tokens, targets = (text.tokens(0, 8, 16, layout, shift=shift) for shift in (0, 1))
    expected = optax.softmax_cross_entropy_with_integer_labels(model.logits(model.hidden(tokens)), targets).mean()
    np.testing.assert_allclose(next_token_loss(model, tokens, targets, 1), expected, rtol=1e-6)


@pytest.mark.parametrize("moment_dtype", ["float32", "bfloat16"])
def test_optimizer_is_adamw_of_optax(moment_dtype: str) -> None:
    config = OptimizerConfig(learning_rate=0.1, moment_dtype=moment_dtype)  # type: ignore[arg-type]
    ours = adamw(config)
    theirs = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1, b1=0.9, b2=0.95, eps=1e-8, weight_decay=0.1))
    params = {"w": jax.random.normal(jax.random.key(0), (64,))}
    states = [ours.init(params), theirs.init(params)]
    for seed in range(3):
        gradients = {"w": jax.random.normal(jax.random.key(seed + 1), (64,))}
        (found, states[0]), (expected, states[1]) = (
            transform.update(gradients, state, params) for transform, state in zip((ours, theirs), states, strict=True)
        )
        tolerance = 1e-6 if moment_dtype == "float32" else 0.05
        np.testing.assert_allclose(found["w"], expected["w"], rtol=tolerance, atol=tolerance / 10)
    floating = {leaf.dtype.name for leaf in jax.tree.leaves(states[0]) if jnp.issubdtype(leaf.dtype, jnp.floating)}
    assert floating == {moment_dtype}


def test_no_clipping_where_none_is_asked(make_config: MakeConfig) -> None:
    params = {"w": jnp.zeros(4)}
    gradients = {"w": jnp.full(4, 100.0)}
    free = adamw(dataclasses.replace(OptimizerConfig(), clip_norm=None, eps=1.0))
    clipped = adamw(dataclasses.replace(OptimizerConfig(), clip_norm=1.0, eps=1.0))
    updates = [transform.update(gradients, transform.init(params), params)[0]["w"] for transform in (free, clipped)]
    assert jnp.all(jnp.abs(updates[0]) > 2 * jnp.abs(updates[1]))
