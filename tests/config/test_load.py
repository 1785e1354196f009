"""Runs from files, presets and overrides."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from jaxprof.config.check import check_devices, check_run
from jaxprof.config.load import load_model, load_run, to_toml
from jaxprof.config.padding import kv_replicas, padded_vocab
from jaxprof.config.presets import model_presets, run_presets
from jaxprof.errors import UserError

RUN_NAMES = [preset.name for preset in run_presets()]
PUBLISHED = {
    "gpt2": 124.4e6,
    "gpt3-175b": 175e9,
    "llama2-7b": 6.74e9,
    "llama2-70b": 68.98e9,
    "llama3.1-8b": 8.03e9,
    "llama3.1-70b": 70.55e9,
    "llama3.1-405b": 405.85e9,
    "mistral-7b": 7.24e9,
}
"""Parameters as the models' authors give them; OpenAI rounds GPT-3's to 175 billion."""


@pytest.mark.parametrize("name", RUN_NAMES)
def test_every_preset_holds_together_and_survives_a_round_trip(name: str, tmp_path: Path) -> None:
    config = load_run(name)
    check_run(config)
    copy = tmp_path / f"{name}.toml"
    copy.write_text(to_toml(config))
    again = load_run(str(copy))
    assert to_toml(again) == to_toml(config)


def test_presets_follow_one_scheme_of_names_and_describe_themselves() -> None:
    families = ("gpt2", "gpt3", "llama2", "llama3", "mistral")
    for family in families:
        assert {f"{family}-tiny-{kind}" for kind in ("train", "prefill", "decode")} <= set(RUN_NAMES)
    for model in PUBLISHED:
        assert {f"{model}-{kind}" for kind in ("train", "prefill", "decode")} <= set(RUN_NAMES)
    for preset in (*run_presets(), *model_presets()):
        assert len(preset.description) > 10
        assert preset.path.is_file()


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_models_have_their_published_number_of_parameters(name: str, parameters: float) -> None:
    model = load_model(name)
    gated, norm, bias = model.mlp == "swiglu", 1 if model.norm == "rmsnorm" else 2, model.attention_bias
    attention = model.d_model * model.head_dim * 2 * (model.heads + model.kv_heads)
    attention += (model.head_dim * (model.heads + 2 * model.kv_heads) + model.d_model) * bias
    mlp = (3 if gated else 2) * model.d_model * model.d_ff + (model.d_ff + model.d_model) * model.mlp_bias
    layer = attention + mlp + 2 * norm * model.d_model
    tables = model.vocab * model.d_model * (1 if model.tied_output else 2) + model.learned_positions * model.d_model
    assert model.layers * layer + tables + norm * model.d_model == pytest.approx(parameters, rel=6e-3)


def test_overrides_reach_every_table_and_keep_their_types() -> None:
    config = load_run(
        "llama3-tiny-train",
        ["mesh.fsdp=4", "mesh.data=1", "step.batch=16", "model.remat=full", "optimizer.learning_rate=1e-3"],
    )
    assert (config.mesh.fsdp, config.step.batch, config.model.remat) == (4, 16, "full")
    assert config.optimizer.learning_rate == 1e-3
    saved = load_run("llama3-tiny-train", ['model.remat={"save": ["attention_out"]}'])
    assert saved.model.remat == {"save": ["attention_out"]}


def test_a_file_extends_a_preset_and_files_extend_files(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text('extends = "llama3-tiny-train"\n[step]\nbatch = 32\n')
    (tmp_path / "mine.toml").write_text('extends = "base.toml"\n[mesh]\ntensor = 4\ndata = 1\n')
    config = load_run(str(tmp_path / "mine.toml"))
    assert (config.name, config.step.batch, config.mesh.tensor, config.mesh.fsdp) == ("mine", 32, 4, 2)


def test_what_real_systems_pad_or_replicate_is_done_and_said() -> None:
    assert (padded_vocab(50257, 1), padded_vocab(50257, 8), padded_vocab(32000, 8)) == (50257, 50304, 32000)
    assert (kv_replicas(8, 4), kv_replicas(2, 8), kv_replicas(1, 4)) == (1, 4, 4)
    notes = check_run(load_run("gpt2-tiny-train", ["model.vocab=50257"]))
    assert len(notes) == 1
    assert "50257 padded to 50304" in notes[0]
    notes = check_run(load_run("llama3-tiny-train", ["mesh.tensor=8", "mesh.data=1", "mesh.fsdp=1"]))
    assert len(notes) == 1
    assert "each is replicated 2 times" in notes[0]


def test_a_mesh_of_another_size_than_the_devices_names_one_that_fits() -> None:
    config = load_run("llama3-tiny-train")
    check_devices(config, 8)
    with pytest.raises(UserError, match=r"= 8 devices, but there are 4; write mesh\.fsdp=1"):
        check_devices(config, 4)


def test_the_docs_name_every_key_and_every_model() -> None:
    text = (Path(__file__).parents[2] / "docs" / "configs.md").read_text(encoding="utf-8")
    config = load_run("llama3-tiny-train")
    for table in ("model", "step", "mesh", "optimizer", "measure"):
        for field in dataclasses.fields(getattr(config, table)):
            if field.name not in ("name", "description"):
                assert f"`{field.name}`" in text, f"{table}.{field.name}"
    for preset in model_presets():
        assert f"`{preset.name}`" in text
