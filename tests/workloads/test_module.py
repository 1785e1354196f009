"""Another model in the place of the transformer: what it must offer, and what is said when it does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax.sharding import PartitionSpec

from jaxprof.config.schema import ModelConfig, RunConfig, StepConfig
from jaxprof.errors import UserError
from jaxprof.models.arrays import ArraySpec
from jaxprof.models.flops import ParameterCount, StepFlops
from jaxprof.models.layout import Layout
from jaxprof.workloads import rules
from jaxprof.workloads.build import build_workload
from jaxprof.workloads.mesh import build_mesh
from jaxprof.workloads.workload import Workload

MakeConfig = Callable[..., RunConfig]
Compile = Callable[[Workload], Any]


class Bigram(nnx.Module):
    """A plain Flax module: an embedding, two linear layers, and nothing that knows of this package."""

    def __init__(self, config: ModelConfig, layout: Layout, *, rngs: nnx.Rngs) -> None:
        init = nnx.initializers.lecun_normal()
        self.table = nnx.Embed(
            config.vocab, config.d_model, embedding_init=nnx.with_partitioning(init, ("vocab", "embed")), rngs=rngs
        )
        self.up = nnx.Linear(
            config.d_model, config.d_ff, kernel_init=nnx.with_partitioning(init, ("embed", "ff")), rngs=rngs
        )
        self.out = nnx.Linear(config.d_ff, config.vocab, rngs=rngs)

    def hidden(self, tokens_BxT: jax.Array) -> jax.Array:
        with jax.named_scope("embed"):
            x_BxTxD = self.table(tokens_BxT)
        with jax.named_scope("mlp"):
            return jax.nn.relu(self.up(x_BxTxD))

    def logits(self, x_BxTxF: jax.Array) -> jax.Array:
        with jax.named_scope("unembed"):
            return self.out(x_BxTxF)


class MovingAverage(Bigram):
    """Keeps between tokens one vector per sequence instead of a KV cache, and counts its own FLOPs."""

    def cache(self, step: StepConfig) -> dict[str, ArraySpec]:
        return {"mean": ArraySpec((step.batch, self.up.out_features), ("batch", None))}

    def prefill(self, tokens_BxT: jax.Array, cache: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
        x_BxTxF = self.hidden(tokens_BxT)
        return x_BxTxF, {"mean": jnp.mean(x_BxTxF, axis=1)}

    def decode(
        self, token_B: jax.Array, position: jax.Array, cache: dict[str, jax.Array]
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        x_Bx1xF = self.hidden(token_B[:, None])
        mean_BxF = 0.9 * cache["mean"] + 0.1 * x_Bx1xF[:, 0]
        return x_Bx1xF + mean_BxF[:, None], {"mean": mean_BxF}

    def flops(self, step: StepConfig) -> StepFlops:
        parts = {"mlp": 2 * step.batch * step.new_tokens * self.up.in_features * self.up.out_features}
        return StepFlops(causal=parts["mlp"], full=parts["mlp"], parts=parts)

    def parameters(self) -> ParameterCount:
        return ParameterCount(total=1000, active=900, non_embedding=800)


class WithDropout(Bigram):
    def __init__(self, config: ModelConfig, layout: Layout, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, layout, rngs=rngs)
        self.statistics = nnx.BatchStat(jnp.zeros(3))


def run(workload: Workload, compiled: Compile, steps: int) -> list[Any]:
    assert workload.make_arguments is not None
    assert workload.next_arguments is not None
    step, arguments, outputs = compiled(workload), workload.make_arguments(), []
    for _ in range(steps):
        outputs.append(step(*arguments))
        arguments = workload.next_arguments(arguments, outputs[-1])
    return outputs


def test_a_plain_flax_module_trains_in_the_transformers_place(make_config: MakeConfig, compiled: Compile) -> None:
    config = make_config("train", model={"vocab": 128}, optimizer={"learning_rate": 1e-2})
    workload = build_workload(config, build_mesh(config.mesh), module=Bigram)
    table = workload.arguments[0]["params"]["table"]["embedding"]
    assert table.sharding.spec == PartitionSpec("tensor", "fsdp"), "Flax's own annotations are followed"
    assert workload.arguments[0]["params"]["out"]["kernel"].sharding.is_fully_replicated
    assert workload.facts.model is None
    assert "Bigram has no methods flops and parameters, so model FLOPs and MFU are unknown" in workload.facts.notes[0]
    losses = [float(output[1]["loss"]) for output in run(workload, compiled, 20)]
    assert losses[-1] < losses[0] - 0.3


def test_a_parameter_that_does_not_divide_stays_whole_and_is_said(make_config: MakeConfig) -> None:
    config = make_config("train", model={"vocab": 131})
    workload = build_workload(config, build_mesh(config.mesh), module=Bigram)
    assert workload.arguments[0]["params"]["table"]["embedding"].sharding.spec == PartitionSpec(None, "fsdp")
    assert "table.embedding: vocab 131 does not divide over 2 shards and stays whole on each" in workload.facts.notes


@pytest.mark.parametrize("kind", ["prefill", "decode"])
def test_another_kind_of_cache(kind: str, make_config: MakeConfig, compiled: Compile) -> None:
    config = make_config(kind)
    workload = build_workload(config, build_mesh(config.mesh), module=MovingAverage)
    assert workload.facts.model is not None
    assert workload.facts.model.active_parameters == 900
    assert workload.facts.model.flops_parts.keys() == {"mlp"}
    outputs = run(workload, compiled, 2)
    assert outputs[1][0]["mean"].shape == (8, 48)
    assert outputs[1][-1].dtype == jnp.int32


def test_a_module_is_found_by_name(make_config: MakeConfig, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_model.py").write_text(
        "from jaxprof.models.transformer import Transformer\n\n\nclass Mine(Transformer):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = make_config("train", model={"module": "my_model:Mine"})
    workload = build_workload(config, build_mesh(config.mesh))
    assert workload.facts.model is not None


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("no_such_package:Model", r"model\.module: 'no_such_package:Model' cannot be imported"),
        (
            "jaxprof.models.block:Blok",
            r"model\.module: jaxprof\.models\.block has no 'Blok'; write package\.module:Class",
        ),
        ("jaxprof.models.layout:Layout", r"is not a Flax NNX module"),
        ("jaxprof.models.block:Block", r"Block lacks hidden, logits, which a train step calls"),
    ],
)
def test_what_cannot_stand_in_is_refused(module: str, message: str, make_config: MakeConfig) -> None:
    config = make_config("train", model={"module": module})
    with pytest.raises(UserError, match=message):
        build_workload(config, build_mesh(config.mesh))


def test_a_training_model_cannot_decode(make_config: MakeConfig) -> None:
    config = make_config("decode")
    with pytest.raises(UserError, match="Bigram lacks cache, decode, which a decode step calls"):
        build_workload(config, build_mesh(config.mesh), module=Bigram)


def test_state_other_than_parameters_is_refused(make_config: MakeConfig) -> None:
    config = make_config("train")
    with pytest.raises(UserError, match=r"WithDropout holds BatchStat; only nnx\.Param can be profiled"):
        build_workload(config, build_mesh(config.mesh), module=WithDropout)


def test_text_needs_its_bytes_in_the_vocabulary(make_config: MakeConfig) -> None:
    config = make_config("train", model={"vocab": 100})
    with pytest.raises(UserError, match=r"model\.vocab: 100 is too small for text of single bytes; write 123 or more"):
        build_workload(config, build_mesh(config.mesh))


def test_too_few_devices_for_the_mesh(make_config: MakeConfig) -> None:
    mesh = dataclasses.replace(make_config("train").mesh, data=8)
    with pytest.raises(UserError, match="data 8 x fsdp 2 x tensor 2 = 32 devices, but there are 8"):
        build_mesh(mesh)


def test_every_rule_names_axes_of_the_mesh_and_gives_its_reason(make_config: MakeConfig) -> None:
    names = build_mesh(make_config("train").mesh).axis_names
    assert names == ("data", "fsdp", "tensor")
    for rule in rules.RULES:
        assert set(rule.mesh_axes) <= set(names)
        assert rule.why
    assert len({rule.logical for rule in rules.RULES}) == len(rules.RULES)
