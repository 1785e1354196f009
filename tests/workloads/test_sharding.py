"""A mesh changes where the numbers are computed, not what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from jaxprof.config.schema import MeshConfig, RunConfig
from jaxprof.models.arrays import shardings
from jaxprof.models.transformer import Transformer
from jaxprof.workloads import parameters, rules
from jaxprof.workloads.build import build_workload
from jaxprof.workloads.loss import next_token_loss
from jaxprof.workloads.mesh import build_mesh
from jaxprof.workloads.train import batch_of_text

MESHES = [
    MeshConfig(data=data, fsdp=fsdp, tensor=8 // data // fsdp)
    for data in (1, 2, 4, 8)
    for fsdp in (1, 2, 4, 8)
    if data * fsdp <= 8
]
MakeConfig = Callable[..., RunConfig]


def name(mesh: MeshConfig) -> str:
    return f"data{mesh.data}-fsdp{mesh.fsdp}-tensor{mesh.tensor}"


def loss_and_gradients(config: RunConfig, values: Any = None) -> tuple[Any, Any]:
    """On the mesh of ``config``, from ``values`` for the parameters or random ones where it is None."""
    layout = rules.layout(build_mesh(config.mesh))
    described = parameters.describe(Transformer, config.model, layout)
    if values is None:
        random = np.random.default_rng(0)
        values = jax.tree.map(lambda leaf: random.normal(0.0, 0.2, leaf.shape).astype(leaf.dtype), described.abstract)
    # a vocabulary that is padded here has more rows than the same one unpadded; the rows themselves are the same
    values = jax.tree.map(
        lambda value, leaf: np.resize(value, leaf.shape) if value.shape != leaf.shape else value,
        values,
        described.abstract,
    )
    params = jax.device_put(values, shardings(described.abstract))
    batch = batch_of_text(0, config, layout)

    @jax.jit
    def step(params: Any, batch: dict[str, jax.Array]) -> tuple[jax.Array, Any]:
        return jax.value_and_grad(
            lambda params: next_token_loss(described.bind(params), batch["tokens"], batch["targets"], 1)
        )(params)

    return values, jax.device_get(step(params, batch))


def assert_same(expected: tuple[Any, Any], found: tuple[Any, Any]) -> None:
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)

    def close(path: Any, a: np.ndarray, b: np.ndarray) -> None:
        if a.shape != b.shape:
            assert np.all(b[len(a) :] == 0), "padding has a gradient"
            b = b[: len(a)]
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-6 + 1e-4 * np.abs(a).max(), err_msg=str(path))

    jax.tree_util.tree_map_with_path(close, expected[1], found[1])


@pytest.fixture(scope="module")
def single(make_config: MakeConfig) -> tuple[Any, tuple[Any, Any]]:
    return loss_and_gradients(make_config("train", mesh=MeshConfig()))


@pytest.mark.parametrize("mesh", MESHES, ids=name)
def test_loss_and_gradients_equal_a_single_devices(
    mesh: MeshConfig, make_config: MakeConfig, single: tuple[Any, tuple[Any, Any]]
) -> None:
    """Two key/value heads and 130 tokens make the meshes with tensor 4 and 8 replicate heads and pad the vocabulary."""
    values, expected = single
    _, found = loss_and_gradients(make_config("train", mesh=mesh), values)
    assert_same(expected, found)


def test_gpt2_loss_and_gradients_equal_a_single_devices(make_config: MakeConfig) -> None:
    """Biases, learned positions and a tied output have shardings of their own."""
    values, expected = loss_and_gradients(make_config("train", "gpt2", mesh=MeshConfig()))
    _, found = loss_and_gradients(make_config("train", "gpt2", mesh=MeshConfig(fsdp=2, tensor=4)), values)
    assert_same(expected, found)


def test_replicated_heads_and_padding_are_said(make_config: MakeConfig) -> None:
    config = make_config("train", mesh=MeshConfig(data=2, tensor=4))
    notes = "\n".join(build_workload(config, build_mesh(config.mesh)).facts.notes)
    assert "2 key/value heads over 4 tensor shards: each is computed and cached 2 times" in notes
    assert "vocabulary of 130 padded to 256 rows" in notes
    assert build_workload(make_config("train"), build_mesh(make_config("train").mesh)).facts.notes == ()


def test_every_large_array_is_split_over_fsdp_and_tensor(make_config: MakeConfig) -> None:
    """Parameters and moments: a device holds a quarter of each matrix on fsdp 2, tensor 2, and data 2 copies it."""
    config = make_config("train")
    state = build_workload(config, build_mesh(config.mesh)).arguments[0]
    matrices = {
        jax.tree_util.keystr(path, simple=True, separator="."): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
        if leaf.size > 1000
    }
    assert len(matrices) == 9 * 3
    for path, leaf in matrices.items():
        local = leaf.sharding.shard_shape(leaf.shape)
        assert np.prod(local) * 4 == leaf.size, path


def test_cache_lies_beside_its_queries(make_config: MakeConfig) -> None:
    config = make_config("decode")
    cache = build_workload(config, build_mesh(config.mesh)).arguments[1]
    assert {leaf.sharding.shard_shape(leaf.shape) for leaf in cache.values()} == {(2, 8 // 4, 24, 2 // 2, 8)}
