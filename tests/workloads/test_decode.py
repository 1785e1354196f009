"""Prefill and decode: the cache gives what recomputing everything gives, in place."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxprof.config.schema import MeshConfig, RunConfig, StepConfig
from jaxprof.models.transformer import Transformer
from jaxprof.workloads import parameters, rules, text
from jaxprof.workloads.build import build_workload
from jaxprof.workloads.mesh import build_mesh
from jaxprof.workloads.sampling import next_token
from jaxprof.workloads.workload import Workload

MakeConfig = Callable[..., RunConfig]
Compile = Callable[[Workload], Any]
PROMPT, NEW = 12, 12


def recomputed(config: RunConfig, params: Any, tokens_BxT: np.ndarray) -> np.ndarray:
    """``NEW`` tokens after the prompt, each from a forward pass over all before it. Causality lets one length do."""
    described = parameters.describe(Transformer, config.model, rules.layout(build_mesh(config.mesh)))

    @jax.jit
    def choose(params: Any, tokens: jax.Array, position: jax.Array) -> jax.Array:
        model = described.bind(params)
        x_BxTxD = model.hidden(tokens)
        scores = model.logits(jax.lax.dynamic_slice_in_dim(x_BxTxD, position, 1, axis=1))
        return jnp.argmax(scores[:, 0], axis=-1)

    padded = np.zeros((len(tokens_BxT), PROMPT + NEW), np.int32)
    padded[:, :PROMPT] = tokens_BxT
    for position in range(PROMPT, PROMPT + NEW):
        padded[:, position] = choose(params, padded, position - 1)
    return padded[:, PROMPT:]


@dataclasses.dataclass(frozen=True, slots=True)
class Prefilled:
    """A prompt, and what the prefill step made of it."""

    params: Any
    prompt: np.ndarray
    cache: Any
    token: jax.Array


def prefilled(config: RunConfig, compiled: Compile, random_values: Callable[[Any], Any]) -> Prefilled:
    mesh = build_mesh(config.mesh)
    workload = build_workload(config, mesh)
    params, stale = random_values(workload.arguments[0]), random_values(workload.arguments[1])
    tokens = text.tokens(0, config.step.batch, config.step.seq_len, rules.layout(mesh))
    cache, token = compiled(workload)(params, stale, {"tokens": tokens})
    return Prefilled(params, jax.device_get(tokens), cache, token)


def continued(start: Prefilled, config: RunConfig, compiled: Compile) -> tuple[np.ndarray, Workload, Any]:
    """``NEW`` tokens, the first of which the prefill has chosen; the decode workload and its executable."""
    workload = build_workload(config, build_mesh(config.mesh))
    assert workload.next_arguments is not None

    def lengthened(part: jax.Array, whole: jax.ShapeDtypeStruct) -> jax.Array:
        """Slots that the prompt does not need are added behind its own."""
        return jnp.pad(part, [(0, to - size) for size, to in zip(part.shape, whole.shape, strict=True)])

    cache = jax.tree.map(lengthened, start.cache, workload.arguments[1])
    arguments = (start.params, cache, {"token": start.token, "position": jnp.int32(PROMPT)})
    arguments = jax.device_put(arguments, jax.tree.map(lambda leaf: leaf.sharding, workload.arguments))
    step = compiled(workload)
    new = [jax.device_get(start.token)[:, None]]
    while sum(part.shape[1] for part in new) < NEW:
        outputs = step(*arguments)
        new.append(jax.device_get(outputs[2]))
        arguments = workload.next_arguments(arguments, outputs)
    return np.concatenate(new, axis=1), workload, step


@pytest.fixture(scope="module")
def start(
    make_config: MakeConfig, compiled: Compile, random_values: Callable[[Any], Any]
) -> Callable[[str], Prefilled]:
    return functools.cache(lambda family: prefilled(make_config("prefill", family), compiled, random_values))


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
def test_cached_decode_equals_recomputing(
    family: str, start: Callable[[str], Prefilled], make_config: MakeConfig, compiled: Compile
) -> None:
    """Mistral's window of 6 makes its cache go round twice in the prompt and twice again in the new tokens.

    All of the cache is donated and reused, and what the step needs besides is less than the cache once more.
    """
    config = make_config("decode", family, context=PROMPT + NEW, new_tokens=NEW - 1)
    found, workload, step = continued(start(family), config, compiled)
    expected = recomputed(config, start(family).params, start(family).prompt)
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(expected)) > 3, "a constant answer compares nothing"
    cache_bytes = sum(
        np.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(workload.arguments[1])
    )
    assert step.memory_analysis().alias_size_in_bytes == cache_bytes


@pytest.mark.parametrize("sampling", ["greedy", "sample"])
def test_one_call_per_token_equals_the_loop_on_the_device(
    sampling: str, start: Callable[[str], Prefilled], make_config: MakeConfig, compiled: Compile
) -> None:
    """Sampled tokens too: each position has its own key."""
    config = make_config("decode", context=PROMPT + NEW, new_tokens=NEW - 1, sampling=sampling, temperature=0.5)
    on_device, _, _ = continued(start("llama"), config, compiled)
    by_token = dataclasses.replace(config, step=dataclasses.replace(config.step, loop="token"))
    np.testing.assert_array_equal(continued(start("llama"), by_token, compiled)[0], on_device)


def test_a_long_cache_is_held_once(make_config: MakeConfig, compiled: Compile) -> None:
    """Carried through the layers and updated in place; handed through a scan as xs and ys it would be held twice."""
    config = make_config("decode", mesh=MeshConfig(), model={"layers": 8}, context=2048)
    workload = build_workload(config, build_mesh(config.mesh))
    cache_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(workload.arguments[1]))
    memory = compiled(workload).memory_analysis()
    assert memory.alias_size_in_bytes == cache_bytes
    assert memory.temp_size_in_bytes < cache_bytes / 2


def test_sampling_follows_the_temperature() -> None:
    """Frequencies of 20,000 draws are the softmax of logits over temperature; four standard errors are allowed."""
    logits = jnp.log(jnp.array([0.7, 0.2, 0.1]))
    step = StepConfig(kind="decode", batch=1, sampling="sample", temperature=2.0)
    draws = jax.jit(lambda: next_token(jnp.tile(logits, (20_000, 1, 1)), jnp.int32(3), step, 0))()
    expected = np.sqrt([0.7, 0.2, 0.1]) / np.sum(np.sqrt([0.7, 0.2, 0.1]))
    found = np.bincount(draws, minlength=3) / 20_000
    np.testing.assert_allclose(found, expected, atol=4 * np.sqrt(0.25 / 20_000))


def test_rounds_end_when_the_cache_is_full(make_config: MakeConfig) -> None:
    config = make_config("decode", context=24, prompt=12, new_tokens=5)
    workload = build_workload(config, build_mesh(config.mesh))
    assert workload.steps_per_round == 2
    assert workload.facts.tokens_per_step == 8 * 5
    assert workload.make_arguments is not None
    params, cache, turn = workload.make_arguments()
    assert int(turn["position"]) == 12
    assert all(jnp.std(part) > 0.5 for part in cache.values()), "the prompt's place holds values"
    assert workload.make_arguments()[0] is params, "a new round must not hold the parameters twice"
