"""A prefill step: read a prompt, fill the KV cache, choose the first new token."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxprof.attribution.facts import StepFacts
from jaxprof.config.schema import RunConfig
from jaxprof.hlo.program import Owner
from jaxprof.models.arrays import abstract_arrays, shardings
from jaxprof.models.layout import Layout
from jaxprof.workloads import text
from jaxprof.workloads.parameters import Parameters
from jaxprof.workloads.sampling import next_token
from jaxprof.workloads.workload import Workload


def prefill_workload(config: RunConfig, layout: Layout, parameters: Parameters, facts: StepFacts) -> Workload:
    """``prefill_step(params, cache, batch) -> (cache, token)``; ``batch`` is ``{"tokens"}``, ``token`` int32 [B].

    Logits are made for the last position only, as serving does.
    """
    step = config.step
    specs = parameters.bind(parameters.abstract).cache(step)

    def prefill_step(params: Any, cache: Any, batch: dict[str, jax.Array]) -> tuple[Any, jax.Array]:
        model = parameters.bind(params)
        x_BxTxD, cache = model.prefill(batch["tokens"], cache)
        logits_Bx1xV = model.logits(x_BxTxD[:, -1:])
        return cache, next_token(logits_Bx1xV, jnp.int32(step.seq_len), step, config.measure.seed)

    cache = abstract_arrays(specs, layout)
    tokens_shape = (step.batch, step.seq_len)
    tokens = jax.ShapeDtypeStruct(tokens_shape, jnp.int32, sharding=layout.sharding(("batch", None), tokens_shape))
    initial_params = initial_once(parameters, config.measure.seed)
    empty_cache = jax.jit(
        lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), cache), out_shardings=shardings(cache)
    )

    def make_arguments() -> tuple[Any, ...]:
        batch = {"tokens": text.tokens(0, step.batch, step.seq_len, layout)}
        return initial_params(), empty_cache(), batch

    return Workload(
        facts=facts,
        function=prefill_step,
        arguments=(parameters.abstract, cache, {"tokens": tokens}),
        owners=owner,
        out_shardings=(shardings(cache), layout.sharding(("batch",), (step.batch,))),
        donate_argnums=(1,),
        mesh=layout.mesh,
        make_arguments=make_arguments,
        next_arguments=lambda arguments, outputs: (arguments[0], outputs[0], arguments[2]),
    )


def initial_once(parameters: Parameters, seed: int) -> Callable[[], Any]:
    """Initial parameters on their devices, the same ones at every call: serving steps only read them."""

    @functools.cache
    def made() -> Any:
        return jax.jit(parameters.create, out_shardings=shardings(parameters.abstract))(jax.random.key(seed))

    return made


def owner(path: str) -> Owner:
    """Owners of the arguments of prefill and decode steps."""
    if path.startswith("0"):
        return "parameters"
    return "kv cache" if path.startswith("1") else "batch"
