"""From a run's configuration to its workload."""

from __future__ import annotations

from typing import Any

from jax.sharding import Mesh

from jaxprof.attribution.facts import ModelFacts, StepFacts
from jaxprof.config.check import check_run
from jaxprof.config.padding import kv_replicas, padded_vocab
from jaxprof.config.schema import TRANSFORMER, RunConfig
from jaxprof.models.flops import cache_slots, decode_calls
from jaxprof.models.layout import Layout
from jaxprof.workloads import parameters, rules, text
from jaxprof.workloads.decode import decode_workload
from jaxprof.workloads.module import check_module, load_module
from jaxprof.workloads.parameters import Parameters
from jaxprof.workloads.prefill import prefill_workload
from jaxprof.workloads.train import train_workload
from jaxprof.workloads.workload import Workload

WORKLOADS = {"train": train_workload, "prefill": prefill_workload, "decode": decode_workload}


def build_workload(config: RunConfig, mesh: Mesh | None, module: type[Any] | None = None) -> Workload:
    """The step that ``config`` describes, on ``mesh`` (None: one device).

    ``module`` stands in for the class that ``config.model.module`` names; ``jaxprof.workloads.module`` says what it
    must offer. Nothing is allocated until the workload's arguments are made. Raises UserError where the parts of the
    run do not go together, the module is unfit, or the sample text does not fit the vocabulary.
    """
    check_run(config)
    step = config.step
    layout = rules.layout(mesh)
    text.check_vocab(config.model.vocab)
    found = load_module(config.model.module, step.kind) if module is None else check_module(module, step.kind)
    described = parameters.describe(found, config.model, layout)
    return WORKLOADS[step.kind](config, layout, described, _facts(config, layout, described, found))


def _facts(config: RunConfig, layout: Layout, described: Parameters, module: type[Any]) -> StepFacts:
    step = config.step
    new_tokens, _, _ = decode_calls(step)
    a_sequence = new_tokens if step.kind == "decode" else step.seq_len
    model, notes = _model_facts(config, described, module)
    if f"{module.__module__}:{module.__qualname__}" == TRANSFORMER:
        notes += _transformer_notes(config, layout)
    else:
        notes += described.whole
    return StepFacts(
        name=config.name,
        step=step.kind,
        global_batch=step.batch,
        seq_len=step.context if step.kind == "decode" else step.seq_len,
        tokens_per_step=step.batch * a_sequence,
        model=model,
        notes=notes,
    )


def _model_facts(
    config: RunConfig, described: Parameters, module: type[Any]
) -> tuple[ModelFacts | None, tuple[str, ...]]:
    if not (hasattr(module, "flops") and hasattr(module, "parameters")):
        note = f"{module.__name__} has no methods flops and parameters, so model FLOPs and MFU are unknown"
        return None, (f"{note}; it holds {described.count} parameters",)
    model = described.bind(described.abstract)
    flops, count = model.flops(config.step), model.parameters()
    return ModelFacts(
        name=config.model.name,
        parameters=count.total,
        active_parameters=count.active,
        non_embedding_parameters=count.non_embedding,
        flops_causal=flops.causal,
        flops_full=flops.full,
        flops_parts=flops.parts,
    ), ()


def _transformer_notes(config: RunConfig, layout: Layout) -> tuple[str, ...]:
    """What the shipped model does unasked: padding, replication, a short cache, recomputed logits."""
    model, step = config.model, config.step
    notes = []
    shards = layout.shards("vocab")
    rows = padded_vocab(model.vocab, shards)
    if rows != model.vocab:
        notes.append(
            f"vocabulary of {model.vocab} padded to {rows} rows, so that {shards} tensor shards divide it; "
            "model FLOPs leave the padding out"
        )
    shards = layout.shards("kv_heads")
    replicas = kv_replicas(model.kv_heads, shards)
    if replicas > 1:
        notes.append(
            f"{model.kv_heads} key/value heads over {shards} tensor shards: each is computed and cached {replicas} "
            "times, and their weights lie whole on each shard; model FLOPs count them once"
        )
    if step.kind != "train" and cache_slots(model, step) == model.sliding_window:
        notes.append(f"the KV cache holds the {model.sliding_window} positions of the sliding window")
    if step.kind == "train" and step.loss_chunks > 1:
        notes.append(f"loss in {step.loss_chunks} chunks: the backward pass makes the logits again")
    return tuple(notes)
