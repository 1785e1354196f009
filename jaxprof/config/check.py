"""Whether the parts of a run go together: what cannot be is refused, what is padded or replicated is said."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from jaxprof.config.padding import kv_replicas, padded_vocab
from jaxprof.config.schema import ACTIVATIONS, TRANSFORMER, RunConfig
from jaxprof.config.values import closest, show
from jaxprof.errors import UserError

ROPE_SCALING = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position")

Problem = tuple[str, str]
"""A key, and what is wrong with it."""


def check_run(config: RunConfig) -> tuple[str, ...]:
    """Notes on what is padded or replicated as real systems do. Raises UserError on the first thing that cannot be."""
    for rule in RULES:
        for key, message in rule(config):
            raise UserError(message, where=config.where(key))
    return tuple(_notes(config))


def check_devices(config: RunConfig, devices: int) -> None:
    """Raises UserError where the mesh does not multiply to ``devices``, with a mesh that does."""
    mesh = config.mesh
    needed = mesh.data * mesh.fsdp * mesh.tensor
    if needed == devices:
        return
    sizes = {"fsdp": mesh.fsdp, "data": mesh.data, "tensor": mesh.tensor}
    fitting = [
        f"mesh.{axis}={devices * size // needed}" for axis, size in sizes.items() if devices * size % needed == 0
    ]
    suggestion = fitting[0] if fitting else f"mesh.data=1 mesh.fsdp={devices} mesh.tensor=1"
    where = next((config.where(f"mesh.{axis}") for axis in sizes if f"mesh.{axis}" in config.written), "mesh")
    raise UserError(
        f"data {mesh.data} x fsdp {mesh.fsdp} x tensor {mesh.tensor} = {needed} devices, but there are {devices}; "
        f"write {suggestion}",
        where=where,
    )


def _sizes(config: RunConfig) -> Iterator[Problem]:
    at_least_one = {
        "model": ("d_model", "layers", "heads", "kv_heads", "head_dim", "d_ff", "vocab"),
        "mesh": ("data", "fsdp", "tensor"),
        "step": ("batch", "new_tokens", "loss_chunks"),
        "measure": ("timed_steps", "traced_steps", "windows"),
    }
    not_negative = {
        "model": ("learned_positions",),
        "step": ("seq_len", "context", "prompt"),
        "measure": ("warmup_steps", "seed"),
        "optimizer": ("learning_rate", "weight_decay"),
    }
    above_zero = {"model": ("norm_eps", "rope_theta"), "step": ("temperature",), "optimizer": ("eps",)}
    for table, names in at_least_one.items():
        yield from _bounded(config, table, names, lambda value: value >= 1, "must be 1 or more")
    for table, names in not_negative.items():
        yield from _bounded(config, table, names, lambda value: value >= 0, "must not be negative")
    for table, names in above_zero.items():
        yield from _bounded(config, table, names, lambda value: value > 0, "must be more than 0")
    yield from _bounded(config, "optimizer", ("b1", "b2"), lambda value: 0 <= value < 1, "must be from 0 to below 1")
    if config.model.sliding_window is not None and config.model.sliding_window < 1:
        yield (
            "model.sliding_window",
            f'is {config.model.sliding_window}; must be 1 or more, or "none" for all positions',
        )
    if config.optimizer.clip_norm is not None and config.optimizer.clip_norm <= 0:
        yield "optimizer.clip_norm", f'is {config.optimizer.clip_norm}; must be more than 0, or "none" for no clipping'


def _bounded(
    config: RunConfig, table: str, names: tuple[str, ...], holds: Callable[[float], bool], rule: str
) -> Iterator[Problem]:
    for name in names:
        value = getattr(getattr(config, table), name)
        if not holds(value):
            yield f"{table}.{name}", f"is {value}, but {rule}"


def _mesh(config: RunConfig) -> Iterator[Problem]:
    model, mesh, batch = config.model, config.mesh, config.step.batch
    parts = mesh.data * mesh.fsdp
    if batch % parts:
        yield (
            "step.batch",
            f"{batch} sequences do not divide over data {mesh.data} x fsdp {mesh.fsdp} = {parts} shards; "
            f"write {_multiples(batch, parts)}",
        )
    for name, axis, shards in (
        ("heads", "tensor", mesh.tensor),
        ("d_ff", "tensor", mesh.tensor),
        ("d_model", "fsdp", mesh.fsdp),
    ):
        size = getattr(model, name)
        if size % shards:
            yield (
                f"model.{name}",
                f"{size} does not divide over {axis} {shards}; "
                f"write {_multiples(size, shards)}, or another mesh.{axis}",
            )


def _heads(config: RunConfig) -> Iterator[Problem]:
    model = config.model
    if model.heads % model.kv_heads:
        known = [count for count in range(1, model.heads + 1) if model.heads % count == 0]
        yield (
            "model.kv_heads",
            f"{model.kv_heads} key/value heads do not divide {model.heads} query heads evenly; "
            f"write one of {', '.join(map(str, known))}",
        )
    if model.position == "rope" and model.head_dim % 2:
        yield (
            "model.head_dim",
            f"is {model.head_dim}, but rotary embedding turns pairs of channels; write {_multiples(model.head_dim, 2)}",
        )


def _positions(config: RunConfig) -> Iterator[Problem]:
    model, step = config.model, config.step
    length, key = (step.context, "step.context") if step.kind == "decode" else (step.seq_len, "step.seq_len")
    if not length:
        yield key, f"a {step.kind} step needs it; write {key}=1024 or another number of tokens"
    if model.position == "learned":
        if not model.learned_positions:
            yield "model.learned_positions", f"position = learned needs the table's rows; write {length} or more"
        elif length > model.learned_positions:
            yield (
                key,
                f"{length} positions, but the learned table has {model.learned_positions}; "
                f"write at most {model.learned_positions}, or a larger model.learned_positions",
            )
        if model.rope_scaling is not None:
            yield "model.rope_scaling", 'learned positions are not scaled; write "none", or position = "rope"'
    if model.rope_scaling is not None:
        yield from _rope_scaling(model.rope_scaling)


def _rope_scaling(scaling: dict[str, float]) -> Iterator[Problem]:
    for name in scaling:
        if name not in ROPE_SCALING:
            yield (
                "model.rope_scaling",
                f"unknown key {name}{closest(name, ROPE_SCALING)}; it has {', '.join(ROPE_SCALING)}",
            )
    missing = [name for name in ROPE_SCALING if name not in scaling]
    if missing:
        yield "model.rope_scaling", f"lacks {', '.join(missing)}; write all of {', '.join(ROPE_SCALING)}"
    for name, value in scaling.items():
        if value <= 0:
            yield "model.rope_scaling", f"{name} is {value}, but must be more than 0"
    if scaling["low_freq_factor"] >= scaling["high_freq_factor"]:
        yield "model.rope_scaling", "low_freq_factor must be less than high_freq_factor"


def _step(config: RunConfig) -> Iterator[Problem]:
    step = config.step
    if step.kind == "train" and step.seq_len % step.loss_chunks:
        divisors = [count for count in range(1, step.loss_chunks + 1) if step.seq_len % count == 0]
        yield (
            "step.loss_chunks",
            f"{step.loss_chunks} chunks do not divide {step.seq_len} tokens evenly; write {divisors[-1]}",
        )
    if step.kind == "decode":
        if step.seq_len:
            yield "step.seq_len", "a decode step has no seq_len; its cache's length is step.context"
        prompt = step.prompt or step.context // 2
        tokens = step.new_tokens if step.loop == "device" else 1
        if prompt + tokens > step.context:
            filled = f"a prompt of {prompt}" if step.prompt else f"half of it filled ({prompt})"
            yield (
                "step.context",
                f"{step.context} positions do not hold {filled} and {tokens} new tokens; "
                f"write at least {_smallest_context(step.prompt, tokens)}",
            )
    elif step.context or step.prompt:
        key = "step.context" if step.context else "step.prompt"
        yield key, f"a {step.kind} step has no {key.removeprefix('step.')}; its length is step.seq_len"


def _smallest_context(prompt: int, tokens: int) -> int:
    return prompt + tokens if prompt else 2 * tokens - 1


def _remat(config: RunConfig) -> Iterator[Problem]:
    remat = config.model.remat
    if isinstance(remat, str):
        return
    if set(remat) != {"save"}:
        yield "model.remat", f"is {show(remat)}; write none, full, dots or {{save = [names]}}"
    if config.model.module != TRANSFORMER:
        return  # another module names its own activations
    for name in remat.get("save", []):
        if name not in ACTIVATIONS:
            yield (
                "model.remat",
                f"no activation is called {name}{closest(name, ACTIVATIONS)}; there are {', '.join(ACTIVATIONS)}",
            )


def _module(config: RunConfig) -> Iterator[Problem]:
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", config.model.module):
        yield "model.module", f"is {config.model.module!r}; write package.module:Class, as in {TRANSFORMER}"


RULES = (_sizes, _mesh, _heads, _positions, _step, _remat, _module)
"""In this order: later ones may divide by what earlier ones found positive."""


def _notes(config: RunConfig) -> Iterator[str]:
    model, mesh = config.model, config.mesh
    replicas = kv_replicas(model.kv_heads, mesh.tensor)
    if replicas > 1:
        yield (
            f"{model.kv_heads} key/value heads over tensor {mesh.tensor}: each is replicated {replicas} times, "
            "in weights used and in the KV cache"
        )
    rows = padded_vocab(model.vocab, mesh.tensor)
    if rows != model.vocab:
        yield f"vocabulary of {model.vocab} padded to {rows} rows, so that tensor {mesh.tensor} divides it"


def _multiples(size: int, of: int) -> str:
    """The multiples of ``of`` on both sides of ``size``, as a suggestion."""
    below = size // of * of
    return f"{below} or {below + of}" if below else f"{below + of}"
