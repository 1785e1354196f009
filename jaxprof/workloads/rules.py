"""Which logical axis lies on which mesh axes. The only place that says so."""

from __future__ import annotations

from dataclasses import dataclass

from jax.sharding import Mesh

from jaxprof.models.layout import Layout


@dataclass(frozen=True, slots=True)
class Rule:
    logical: str
    mesh_axes: tuple[str, ...]
    why: str


RULES = (
    Rule(
        "batch",
        ("data", "fsdp"),
        "sequences are independent, so every device that is not splitting a layer takes its own",
    ),
    Rule(
        "embed",
        ("fsdp",),
        "each weight has one dimension of size D; splitting it divides weights, gradients and moments",
    ),
    Rule(
        "heads",
        ("tensor",),
        "heads attend independently, so splitting them needs one all-reduce after the output matmul",
    ),
    Rule(
        "kv_heads", ("tensor",), "keys and values, and with them the cache, lie beside the query heads that read them"
    ),
    Rule("ff", ("tensor",), "both MLP matmuls split along F, so it needs one all-reduce after the second"),
    Rule(
        "vocab", ("tensor",), "logits are the widest activation, and the softmax over them needs two small all-reduces"
    ),
    Rule("layers", (), "layers run one after the other; splitting them would be pipeline parallelism"),
    Rule("head_dim", (), "every score sums over it"),
    Rule("features", (), "vectors of size D are so small that gathering them costs more than holding them"),
    Rule("positions", (), "attention reads all of them for each query"),
)


def layout(mesh: Mesh | None) -> Layout:
    """The rules, on ``mesh``."""
    return Layout(mesh, tuple((rule.logical, rule.mesh_axes) for rule in RULES))
