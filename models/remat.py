"""What the forward pass of a layer keeps for its backward pass, and what is computed again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from jaxprof.config.schema import ACTIVATIONS
from jaxprof.errors import UserError


def rematerialized(
    layer: Callable[..., Any], remat: str | Mapping[str, Sequence[str]], *, in_scan: bool
) -> Callable[..., Any]:
    """``layer`` under the policy ``remat``.

    none: everything is kept. full: only the layer's input is. dots: so are the results of matmuls with weights, while
    attention and elementwise work are computed again. ``{"save": names}``: the activations of those names are kept.
    ``in_scan``: the loop already keeps the compiler from merging the recomputation with the first computation.
    """
    if remat == "none":
        return layer
    policies = jax.checkpoint_policies
    if remat == "full":
        policy = policies.nothing_saveable
    elif remat == "dots":
        policy = policies.dots_with_no_batch_dims_saveable
    elif isinstance(remat, Mapping) and set(remat) == {"save"}:
        unknown = [name for name in remat["save"] if name not in ACTIVATIONS]
        if unknown:
            raise UserError(
                f"no activation is called {', '.join(unknown)}; there are {', '.join(ACTIVATIONS)}", where="model.remat"
            )
        policy = policies.save_only_these_names(*remat["save"])
    else:
        raise UserError(f"unknown policy {remat!r}; write none, full, dots or {{save = [names]}}", where="model.remat")
    return jax.checkpoint(layer, policy=policy, prevent_cse=not in_scan)
