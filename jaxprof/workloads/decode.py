"""A decode step: one new token per sequence and call, or a loop on the device that makes several."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxprof.attribution.facts import StepFacts
from jaxprof.config.schema import RunConfig
from jaxprof.models.arrays import abstract_arrays, shardings
from jaxprof.models.flops import decode_calls
from jaxprof.models.layout import Layout
from jaxprof.workloads import text
from jaxprof.workloads.parameters import Parameters
from jaxprof.workloads.prefill import initial_once, owner
from jaxprof.workloads.sampling import next_token
from jaxprof.workloads.workload import Workload


def decode_workload(config: RunConfig, layout: Layout, parameters: Parameters, facts: StepFacts) -> Workload:
    """``decode_step(params, cache, turn) -> (cache, turn, tokens)``.

    ``turn`` is ``{"token", "position"}``: the latest token of each sequence, int32 [B], and the position that all of
    them have reached, int32. ``tokens`` are the new ones, int32 [B, new tokens]. The cache is donated and updated in
    place.
    """
    step = config.step
    new_tokens, prompt, calls = decode_calls(step)
    specs = parameters.bind(parameters.abstract).cache(step)

    def decode_step(params: Any, cache: Any, turn: dict[str, jax.Array]) -> tuple[Any, dict[str, jax.Array], jax.Array]:
        model = parameters.bind(params)

        def one(carry: tuple[Any, dict[str, jax.Array]], _: None) -> tuple[tuple[Any, dict[str, jax.Array]], jax.Array]:
            cache, turn = carry
            x_Bx1xD, cache = model.decode(turn["token"], turn["position"], cache)
            position = turn["position"] + 1
            token_B = next_token(model.logits(x_Bx1xD), position, step, config.measure.seed)
            return (cache, {"token": token_B, "position": position}), token_B

        if step.loop == "token":
            (cache, turn), token_B = one((cache, turn), None)
            return cache, turn, token_B[:, None]
        (cache, turn), tokens_NxB = jax.lax.scan(one, (cache, turn), None, length=new_tokens)
        return cache, turn, tokens_NxB.T

    cache = abstract_arrays(specs, layout)
    by_sequence, replicated = layout.sharding(("batch",), (step.batch,)), layout.sharding((), ())
    turn = {
        "token": jax.ShapeDtypeStruct((step.batch,), jnp.int32, sharding=by_sequence),
        "position": jax.ShapeDtypeStruct((), jnp.int32, sharding=replicated),
    }
    initial_params = initial_once(parameters, config.measure.seed)
    filled_cache = jax.jit(lambda key: _random_like(key, cache), out_shardings=shardings(cache))

    def make_arguments() -> tuple[Any, ...]:
        start = {
            "token": text.tokens(0, step.batch, 1, layout)[:, 0],
            "position": jax.device_put(jnp.int32(prompt), replicated),
        }
        return initial_params(), filled_cache(jax.random.key(config.measure.seed)), start

    return Workload(
        facts=facts,
        function=decode_step,
        arguments=(parameters.abstract, cache, turn),
        owners=owner,
        out_shardings=(
            shardings(cache),
            shardings(turn),
            layout.sharding(("batch", None), (step.batch, new_tokens)),
        ),
        donate_argnums=(1,),
        mesh=layout.mesh,
        make_arguments=make_arguments,
        next_arguments=lambda arguments, outputs: (arguments[0], outputs[0], outputs[1]),
        steps_per_round=calls,
    )


def _random_like(key: jax.Array, abstract: Any) -> Any:
    """Random values in the place of a prompt's: a prefill of the whole batch at once may need more memory than the
    decode step that is to be profiled, and what a step costs does not depend on them."""
    leaves, structure = jax.tree.flatten(abstract)
    keys = jax.random.split(key, len(leaves))
    return structure.unflatten(
        [jax.random.normal(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
    )
