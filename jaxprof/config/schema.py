"""What a run can say, as typed frozen dataclasses. The doc of a field stands under it and is what --help prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Dtype = Literal["float32", "bfloat16", "float16"]
Remat = Literal["none", "full", "dots"]

ACTIVATIONS = ("q", "k", "v", "attention_core", "attention_out", "mlp_up", "mlp_gate", "mlp_down")
"""Names that ``remat = {save = [...]}`` can keep in the models shipped here, in the order they are computed."""

TRANSFORMER = "jaxprof.models.transformer:Transformer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A decoder-only transformer. Letters: D d_model, L layers, H heads, K kv_heads, F d_ff, V vocab."""

    name: str = ""
    """Left out: the preset's name, or the run's where the model is written inline."""
    description: str = ""
    d_model: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    d_ff: int
    vocab: int
    mlp: Literal["gelu", "swiglu"] = "swiglu"
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norm_eps: float = 1e-5
    position: Literal["rope", "learned"] = "rope"
    rope_theta: float = 10000.0
    rope_scaling: dict[str, float] | None = None
    """Llama 3.1's frequency scaling: factor, low_freq_factor, high_freq_factor, original_max_position; or None."""
    learned_positions: int = 0
    """Rows of the learned position table."""
    attention_bias: bool = False
    mlp_bias: bool = False
    tied_output: bool = False
    sliding_window: int | None = None
    """Each position attends to this many latest positions, itself included; None for all."""
    dtype: Dtype = "bfloat16"
    """Activations and matmuls."""
    param_dtype: Dtype = "float32"
    """Stored parameters."""
    scan_layers: bool = True
    remat: Remat | dict[str, list[str]] = "none"
    """none, full, dots, or {save = [names of activations kept]}."""
    attention: Literal["xla"] = "xla"
    module: str = TRANSFORMER
    """package.module:Class of the Flax module; another one with the same methods may stand here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshConfig:
    """Axis sizes, major to minor. Their product is the number of devices."""

    data: int = 1
    fsdp: int = 1
    tensor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """optax AdamW."""

    learning_rate: float = 3e-4
    weight_decay: float = 0.1
    b1: float = 0.9
    b2: float = 0.95
    eps: float = 1e-8
    moment_dtype: Dtype = "float32"
    clip_norm: float | None = 1.0
    """Global gradient norm; None for no clipping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConfig:
    """What one call of the program does."""

    kind: Literal["train", "prefill", "decode"]
    batch: int
    """Sequences over all devices."""
    seq_len: int = 0
    """Train, prefill: tokens a sequence."""
    context: int = 0
    """Decode: positions of the preallocated KV cache."""
    prompt: int = 0
    """Decode: cache positions already filled when the loop starts; 0 means half of context."""
    loop: Literal["token", "device"] = "device"
    """Decode: one call per token, or a loop on the device of new_tokens tokens a call."""
    new_tokens: int = 32
    """Decode: tokens a call where loop is "device"."""
    sampling: Literal["greedy", "sample"] = "greedy"
    temperature: float = 1.0
    cache_dtype: Dtype = "bfloat16"
    loss_chunks: int = 1
    """Train: logits are made for 1/loss_chunks of the tokens at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureConfig:
    """How the program is run."""

    warmup_steps: int = 2
    timed_steps: int = 10
    """Untraced steps a throughput window, no synchronising inside."""
    traced_steps: int = 4
    windows: int = 2
    """Alternations of an untraced and a traced window."""
    seed: int = 0
    platform: Literal["auto", "cpu", "gpu", "tpu"] = "auto"
    """auto takes accelerators where there are enough of them, else simulates the mesh on the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """A whole run."""

    name: str = ""
    """Left out: the preset's name, or the file's without its ending."""
    description: str = ""
    model: ModelConfig
    step: StepConfig
    mesh: MeshConfig = field(default_factory=MeshConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    written: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Where each key was written (``file:line: key``, ``command line: key``). Not a key itself."""

    def where(self, key: str) -> str:
        """Where ``key`` was written; the key alone where it has its default."""
        return self.written.get(key, key)
