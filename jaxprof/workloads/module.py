"""What a model must offer to be profiled, and how one is found by name.

Any Flax NNX module with these methods can stand in ``model.module``. Its state must be ``nnx.Param`` only. A parameter
that names its logical axes the Flax way, with ``nnx.with_partitioning`` or ``nnx.Param(..., out_sharding=axes)``, is
sharded by ``workloads.rules``; one that does not is replicated. A model from elsewhere is wrapped: hold its parameters
in ``nnx.Param`` and call its functions from the methods.

A train step needs ``hidden`` and ``logits``. Prefill and decode need ``cache``, ``prefill``, ``decode`` and ``logits``.
``flops`` and ``parameters`` may be left out: what only they can say is then reported as unknown. Work done under
``jax.named_scope`` of embed, attention.qkv, attention.core, attention.out, mlp, norm or unembed is reported under that
part.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol

import jax
from flax import nnx

from jaxprof.config.schema import ModelConfig, StepConfig
from jaxprof.errors import UserError
from jaxprof.models.flops import ParameterCount, StepFlops
from jaxprof.models.layout import Layout


class LanguageModel(Protocol):
    """Shape letters as in ``jaxprof.models``. ``Cache`` is any pytree of arrays; ``cache`` describes its leaves."""

    def __init__(self, config: ModelConfig, layout: Layout, *, rngs: nnx.Rngs) -> None:
        """``layout`` constrains activations (``layout.constrain``); a module may ignore it."""
        ...

    def hidden(self, tokens_BxT: jax.Array) -> jax.Array:
        """Features of each position, [B, T, D]."""
        ...

    def logits(self, x_BxTxD: jax.Array) -> jax.Array:
        """Float32 scores of the next token, [B, T, V]; V may exceed the vocabulary if the excess can never win."""
        ...

    def cache(self, step: StepConfig) -> Any:
        """A pytree of ``ArraySpec``: what is kept between tokens."""
        ...

    def prefill(self, tokens_BxT: jax.Array, cache: Any) -> tuple[jax.Array, Any]:
        """Features of a prompt, [B, T, D], and the filled cache."""
        ...

    def decode(self, token_B: jax.Array, position: jax.Array, cache: Any) -> tuple[jax.Array, Any]:
        """Features of one token per sequence at a position, [B, 1, D], and the cache with it written in."""
        ...

    def flops(self, step: StepConfig) -> StepFlops:
        """The architecture's own FLOPs for one step over all devices."""
        ...

    def parameters(self) -> ParameterCount:
        """The architecture's own count, padding left out."""
        ...


REQUIRED = {
    "train": ("hidden", "logits"),
    "prefill": ("cache", "prefill", "logits"),
    "decode": ("cache", "decode", "logits"),
}


def load_module(reference: str, kind: str) -> type[LanguageModel]:
    """The class that ``package.module:Class`` names. Raises UserError where there is none."""
    package, _, name = reference.partition(":")
    try:
        found = getattr(importlib.import_module(package), name)
    except ImportError as error:
        raise UserError(
            f"{reference!r} cannot be imported ({error}); write package.module:Class of something on the Python path",
            where="model.module",
        ) from error
    except AttributeError as error:
        raise UserError(f"{package} has no {name!r}; write package.module:Class", where="model.module") from error
    return check_module(found, kind)


def check_module(found: Any, kind: str) -> type[Any]:
    """``found`` itself. Raises UserError where it is no module or lacks what a step of this kind needs."""
    if not (isinstance(found, type) and issubclass(found, nnx.Module)):
        raise UserError(f"{found!r} is not a Flax NNX module; give a subclass of flax.nnx.Module", where="model.module")
    missing = [method for method in REQUIRED[kind] if not hasattr(found, method)]
    if missing:
        raise UserError(
            f"{found.__name__} lacks {', '.join(missing)}, which a {kind} step calls; "
            "jaxprof.workloads.module says what each must do",
            where="model.module",
        )
    return found
