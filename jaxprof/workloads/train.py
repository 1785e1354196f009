"""A training step: forward, loss, backward and optimizer in one function whose state is donated."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxprof.attribution.facts import StepFacts
from jaxprof.config.schema import RunConfig
from jaxprof.hlo.program import Owner
from jaxprof.models.arrays import shardings
from jaxprof.models.layout import Layout
from jaxprof.workloads import text
from jaxprof.workloads.loss import next_token_loss
from jaxprof.workloads.optimizer import adamw
from jaxprof.workloads.parameters import Parameters
from jaxprof.workloads.workload import Workload

BATCHES = 8
"""Batches that lie ready on the devices and are used in turn: steps differ, and no step waits for the host."""


def train_workload(config: RunConfig, layout: Layout, parameters: Parameters, facts: StepFacts) -> Workload:
    """``train_step(state, batch) -> (state, metrics)``.

    ``state`` is ``{"params", "optimizer"}``, ``batch`` is ``{"tokens", "targets"}``, each int32 [B, T], ``metrics`` is
    ``{"loss"}``.
    """
    step = config.step
    optimizer = adamw(config.optimizer)

    def train_step(state: dict[str, Any], batch: dict[str, jax.Array]) -> tuple[dict[str, Any], dict[str, jax.Array]]:
        def loss_of(params: Any) -> jax.Array:
            return next_token_loss(parameters.bind(params), batch["tokens"], batch["targets"], step.loss_chunks)

        loss, gradients = jax.value_and_grad(loss_of)(state["params"])
        with jax.named_scope("optimizer"):
            updates, moments = optimizer.update(gradients, state["optimizer"], state["params"])
            params = optax.apply_updates(state["params"], updates)
        return {"params": params, "optimizer": moments}, {"loss": loss}

    def make_state(key: jax.Array) -> dict[str, Any]:
        params = parameters.create(key)
        return {"params": params, "optimizer": optimizer.init(params)}

    state = {"params": parameters.abstract, "optimizer": _moments(optimizer, parameters, layout)}
    tokens = jax.ShapeDtypeStruct(
        (step.batch, step.seq_len), jnp.int32, sharding=layout.sharding(("batch", None), (step.batch, step.seq_len))
    )
    initial_state = jax.jit(make_state, out_shardings=shardings(state))
    batch = functools.cache(lambda index: batch_of_text(index, config, layout))
    turns = itertools.cycle(range(BATCHES))

    return Workload(
        facts=facts,
        function=train_step,
        arguments=(state, {"tokens": tokens, "targets": tokens}),
        owners=_owner,
        out_shardings=(shardings(state), {"loss": layout.sharding((), ())}),
        donate_argnums=(0,),
        mesh=layout.mesh,
        make_arguments=lambda: (initial_state(jax.random.key(config.measure.seed)), batch(next(turns))),
        next_arguments=lambda arguments, outputs: (outputs[0], batch(next(turns))),
    )


def batch_of_text(index: int, config: RunConfig, layout: Layout) -> dict[str, jax.Array]:
    """The ``index``-th batch of the sample text: tokens, and as targets the token after each."""
    batch, seq_len = config.step.batch, config.step.seq_len
    first = index * batch
    return {
        "tokens": text.tokens(first, batch, seq_len, layout),
        "targets": text.tokens(first, batch, seq_len, layout, shift=1),
    }


def _moments(optimizer: optax.GradientTransformation, parameters: Parameters, layout: Layout) -> Any:
    """The optimizer's abstract state: a moment lies where its parameter does, everything else on every device."""
    replicated = layout.sharding((), ())
    state = jax.eval_shape(optimizer.init, parameters.abstract)
    return optax.tree.map_params(
        optimizer,
        lambda moment, param: jax.ShapeDtypeStruct(moment.shape, moment.dtype, sharding=param.sharding),
        state,
        parameters.abstract,
        transform_non_params=lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=replicated),
    )


def _owner(path: str) -> Owner:
    if path.startswith("0.params"):
        return "parameters"
    return "optimizer state" if path.startswith("0.optimizer") else "batch"
