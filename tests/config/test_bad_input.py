"""Wrong configs and wrong command lines: each gives one error that says where, what, and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from jaxprof.config.check import check_devices, check_run
from jaxprof.config.load import load_run
from jaxprof.errors import UserError

GOOD = """\
model = "llama3-tiny"

[step]
kind = "train"
batch = 8
seq_len = 128

[mesh]
fsdp = 2
tensor = 2
"""


@dataclass(frozen=True)
class Bad:
    """A wrong input; ``where`` and ``says`` (in this order) must stand in its message."""

    id: str
    where: str
    says: tuple[str, ...]
    text: str = GOOD
    overrides: tuple[str, ...] = ()
    reference: str = "run.toml"


FILES = (
    Bad("not-toml", "run.toml:1", ("not valid TOML", "column"), "model = llama3-tiny\n"),
    Bad("unclosed-table", "run.toml:3", ("not valid TOML",), GOOD.replace("[step]", "[step")),
    Bad(
        "key-twice",
        "run.toml:7",
        ("not valid TOML", "Cannot overwrite"),
        GOOD.replace("\n\n[mesh]", "\nbatch = 9\n[mesh]"),
    ),
    Bad("empty-file", "run.toml: model", ("missing", 'model = "NAME"'), ""),
    Bad("no-step", "run.toml: step.kind", ("missing", "step.batch", "kind = ... under [step]"), 'model = "gpt2"\n'),
    Bad("no-batch", "run.toml: step.batch", ("missing", "batch = ..."), GOOD.replace("batch = 8\n", "")),
    Bad("unknown-table", "run.toml:12: mehs", ("unknown key", "did you mean mesh"), GOOD + "\n[mehs]\ndata = 2\n"),
    Bad("unknown-key", "run.toml:11: mesh.tensr", ("did you mean tensor", "data, fsdp"), GOOD + "tensr = 2\n"),
    Bad("key-of-another-table", "run.toml:11: mesh.batch", ("did you mean step.batch",), GOOD + "batch = 2\n"),
    Bad(
        "text-for-number", "run.toml:5: step.batch", ("whole number", "write 8, without"), GOOD.replace("= 8", '= "8"')
    ),
    Bad("fraction", "run.toml:5: step.batch", ("is 8.0", "a whole number", "write 8"), GOOD.replace("= 8", "= 8.0")),
    Bad("list-for-number", "run.toml:5: step.batch", ("is [8, 8]", "a whole number"), GOOD.replace("= 8", "= [8, 8]")),
    Bad(
        "unknown-kind",
        "run.toml:4: step.kind",
        ("train, prefill, decode", "did you mean train"),
        GOOD.replace("train", "trian"),
    ),
    Bad("date", "run.toml:5: step.batch", ("2026-01-02", "a whole number"), GOOD.replace("= 8", "= 2026-01-02")),
    Bad(
        "number-for-table", "run.toml:1: mesh", ("is a table", "[mesh]", "fsdp"), "mesh = 4\n" + GOOD.split("[mesh]")[0]
    ),
    Bad("array-of-tables", "run.toml:8: mesh", ("is a table", "[mesh]"), GOOD.replace("[mesh]", "[[mesh]]")),
    Bad(
        "unknown-model",
        "run.toml:1: model",
        ("no model preset", "did you mean llama3-tiny"),
        GOOD.replace("llama3", "lama3"),
    ),
    Bad(
        "run-for-model",
        "run.toml:1: model",
        ("no model preset", "it is a run"),
        GOOD.replace("llama3-tiny", "gpt2-train"),
    ),
    Bad("model-number", "run.toml:1: model", ("is 8", "name of a preset"), GOOD.replace('"llama3-tiny"', "8")),
    Bad("unknown-extends", "run.toml:1: extends", ("no run preset", "did you mean"), 'extends = "llama3-tiny-tran"\n'),
    Bad("extends-nothing", "absent.toml", ("cannot be read", "No such file"), 'extends = "absent.toml"\n'),
    Bad("extends-itself", "run.toml:1: extends", ("in a circle", "run.toml -> run.toml"), 'extends = "run.toml"\n'),
    Bad("extends-list", "run.toml:1: extends", ("name of a preset",), 'extends = ["gpt2-train"]\n'),
    Bad("model-key", "run.toml:3: model.layer", ("did you mean layers",), '[model]\nextends = "gpt2"\nlayer = 3\n'),
    Bad(
        "bad-remat",
        "run.toml:3: model.remat",
        ("none, full, dots", "did you mean full"),
        '[model]\nextends = "gpt2"\nremat = "ful"\n',
    ),
    Bad(
        "half-a-model",
        "run.toml: model.d_model",
        ("missing", "model.layers"),
        GOOD.replace('model = "llama3-tiny"', "[model]\nheads = 4"),
    ),
    Bad(
        "remat-not-texts",
        "run.toml:3: model.remat",
        ("at save", "list of texts"),
        '[model]\nextends = "gpt2"\nremat = {save = "q"}\n',
    ),
    Bad(
        "scaling-text",
        "run.toml:3: model.rope_scaling",
        ("at factor", "a number"),
        '[model]\nextends = "gpt2"\nrope_scaling = {factor = "8"}\n',
    ),
    Bad("not-a-number", "run.toml:12: optimizer.eps", ("nan", "a number"), GOOD + "[optimizer]\neps = nan\n"),
)

COMMAND_LINES = (
    Bad(
        "unknown-preset",
        "command line",
        ("no run preset", "did you mean llama3-tiny-train"),
        reference="llama3-tiny-trian",
    ),
    Bad("model-for-run", "command line", ("it is a model", "llama3-tiny-train"), reference="llama3-tiny"),
    Bad("no-such-file", "absent.toml", ("cannot be read",), reference="absent.toml"),
    Bad("not-a-toml-path", "command line", ("ends in .toml",), reference="configs/absent.json"),
    Bad("no-equals", "command line: mesh.fsdp", ("no '='", "step.batch=16"), overrides=("mesh.fsdp",)),
    Bad("no-key", "command line: =4", ("no key",), overrides=("=4",)),
    Bad("no-value", "command line: mesh.fsdp", ("no value", "mesh.fsdp=VALUE"), overrides=("mesh.fsdp=",)),
    Bad("misspelt", "command line: mesh.fdsp", ("did you mean fsdp",), overrides=("mesh.fdsp=4",)),
    Bad("no-table", "command line: batch", ("did you mean step.batch",), overrides=("batch=4",)),
    Bad("wrong-table", "command line: mesh.batch", ("did you mean step.batch",), overrides=("mesh.batch=4",)),
    Bad(
        "unknown", "command line: step.frobnicate", ("unknown key", "batch, seq_len"), overrides=("step.frobnicate=1",)
    ),
    Bad("whole-table", "command line: mesh", ("is a table", "mesh.fsdp=..."), overrides=("mesh=4",)),
    Bad(
        "inside-a-value",
        "command line: model.remat.save",
        ("set as a whole", "'model.remat={save"),
        overrides=("model.remat.save=q",),
    ),
    Bad("word-for-number", "command line: step.batch", ("a whole number",), overrides=("step.batch=many",)),
    Bad(
        "capital-true",
        "command line: model.scan_layers",
        ("true or false", "write true"),
        overrides=("model.scan_layers=True",),
    ),
    Bad("expression", "command line: step.batch", ('is "2*8"', "a whole number"), overrides=("step.batch=2*8",)),
    Bad("two-lines", "command line: step.batch", ("a whole number",), overrides=("step.batch=8\nseq_len = 9",)),
    Bad("short-dtype", "command line: model.dtype", ("did you mean bfloat16",), overrides=("model.dtype=bf16",)),
    Bad(
        "unquoted-braces",
        "command line: model.remat",
        ("neither TOML nor JSON", "quote"),
        overrides=("model.remat={save:[q]}",),
    ),
    Bad("model-table", "command line: model", ("model preset", "model.KEY"), overrides=("model={layers = 2}",)),
    Bad("extends", "command line: extends", ("only in files",), overrides=("extends=gpt2-train",)),
)

IMPOSSIBLE = (
    Bad("zero-batch", "command line: step.batch", ("is 0", "1 or more"), overrides=("step.batch=0",)),
    Bad("negative-axis", "command line: mesh.fsdp", ("is -2", "1 or more"), overrides=("mesh.fsdp=-2",)),
    Bad(
        "negative-warmup",
        "command line: measure.warmup_steps",
        ("not be negative",),
        overrides=("measure.warmup_steps=-1",),
    ),
    Bad("zero-temperature", "command line: step.temperature", ("more than 0",), overrides=("step.temperature=0",)),
    Bad("momentum-of-one", "command line: optimizer.b1", ("from 0 to below 1",), overrides=("optimizer.b1=1",)),
    Bad(
        "zero-window", "command line: model.sliding_window", ('"none" for all',), overrides=("model.sliding_window=0",)
    ),
    Bad(
        "zero-clip",
        "command line: optimizer.clip_norm",
        ('"none" for no clipping',),
        overrides=("optimizer.clip_norm=0",),
    ),
    Bad(
        "batch-over-shards",
        "command line: step.batch",
        ("7 sequences", "data 1 x fsdp 2", "write 6 or 8"),
        overrides=("step.batch=7",),
    ),
    Bad(
        "heads-over-tensor",
        "command line: model.heads",
        ("tensor 2", "write 6 or 8"),
        overrides=("model.heads=7", "model.kv_heads=7"),
    ),
    Bad(
        "width-over-fsdp",
        "command line: model.d_model",
        ("fsdp 2", "write 190 or 192"),
        overrides=("model.d_model=191",),
    ),
    Bad("mlp-over-tensor", "command line: model.d_ff", ("tensor 2", "mesh.tensor"), overrides=("model.d_ff=671",)),
    Bad("kv-heads", "command line: model.kv_heads", ("do not divide 8", "1, 2, 4, 8"), overrides=("model.kv_heads=3",)),
    Bad("odd-head", "command line: model.head_dim", ("pairs", "write 24 or 26"), overrides=("model.head_dim=25",)),
    Bad("no-length", "step.seq_len", ("train step needs it", "step.seq_len=1024"), GOOD.replace("seq_len = 128\n", "")),
    Bad(
        "no-context",
        "step.context",
        ("decode step needs it",),
        GOOD.replace("seq_len = 128\n", "").replace("train", "decode"),
    ),
    Bad(
        "positions",
        "command line: step.seq_len",
        ("learned table has 1024",),
        overrides=("model=gpt2", "step.seq_len=2048"),
    ),
    Bad("no-positions", "model.learned_positions", ("write 128 or more",), overrides=("model.position=learned",)),
    Bad(
        "chunks", "command line: step.loss_chunks", ("do not divide 128", "write 2"), overrides=("step.loss_chunks=3",)
    ),
    Bad(
        "cache-too-short",
        "command line: step.context",
        ("prompt of 100", "write at least 132"),
        GOOD.replace("seq_len = 128\n", ""),
        ("step.kind=decode", "step.context=128", "step.prompt=100"),
    ),
    Bad(
        "half-a-cache",
        "command line: step.context",
        ("half of it", "write at least 63"),
        GOOD.replace("seq_len = 128\n", ""),
        ("step.kind=decode", "step.context=62"),
    ),
    Bad(
        "decode-seq-len",
        "run.toml:6: step.seq_len",
        ("decode", "step.context"),
        overrides=("step.kind=decode", "step.context=512"),
    ),
    Bad("train-context", "command line: step.context", ("train", "step.seq_len"), overrides=("step.context=128",)),
    Bad(
        "activation",
        "command line: model.remat",
        ("did you mean attention_out", "mlp_up"),
        overrides=('model.remat={"save":["attention.out"]}',),
    ),
    Bad("remat-key", "command line: model.remat", ("{save = [names]}",), overrides=('model.remat={keep=["q"]}',)),
    Bad(
        "scaling-key",
        "command line: model.rope_scaling",
        ("unknown key fctor", "did you mean factor"),
        overrides=("model.rope_scaling={fctor = 8}",),
    ),
    Bad(
        "scaling-missing",
        "command line: model.rope_scaling",
        ("lacks low_freq_factor",),
        overrides=("model.rope_scaling={factor = 8}",),
    ),
    Bad(
        "scaling-order",
        "command line: model.rope_scaling",
        ("less than high",),
        overrides=("model.rope_scaling={factor=8, low_freq_factor=4, high_freq_factor=1, original_max_position=8192}",),
    ),
    Bad("module", "command line: model.module", ("package.module:Class",), overrides=("model.module=transformer.py",)),
)


def one_error(bad: Bad, folder: Path, monkeypatch: pytest.MonkeyPatch, *, check: bool) -> str:
    monkeypatch.chdir(folder)
    (folder / "run.toml").write_text(bad.text)
    with pytest.raises(UserError) as caught:
        config = load_run(bad.reference, bad.overrides)
        assert check, "loaded without an error"
        check_run(config)
    assert caught.value.where is not None
    return str(caught.value)


def expect(message: str, bad: Bad) -> None:
    assert message.startswith(f"{bad.where}: "), message
    place = 0
    for part in bad.says:
        place = message.find(part, place)
        assert place >= 0, f"{part!r} in its place in: {message}"
    assert "\n" not in message.replace("8\nseq_len", ""), message


@pytest.mark.parametrize("bad", FILES, ids=lambda bad: bad.id)
def test_wrong_file(bad: Bad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expect(one_error(bad, tmp_path, monkeypatch, check=False), bad)


@pytest.mark.parametrize("bad", COMMAND_LINES, ids=lambda bad: bad.id)
def test_wrong_command_line(bad: Bad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expect(one_error(bad, tmp_path, monkeypatch, check=False), bad)


@pytest.mark.parametrize("bad", IMPOSSIBLE, ids=lambda bad: bad.id)
def test_parts_that_do_not_go_together(bad: Bad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expect(one_error(bad, tmp_path, monkeypatch, check=True), bad)


@pytest.mark.parametrize(
    ("overrides", "devices", "suggestion"),
    [
        ([], 4, "write mesh.fsdp=1"),
        ([], 16, "write mesh.fsdp=4"),
        (["mesh.fsdp=1", "mesh.data=4"], 4, "write mesh.data=2"),
        (["mesh.data=3", "mesh.fsdp=1"], 7, "write mesh.data=1 mesh.fsdp=7 mesh.tensor=1"),
    ],
)
def test_mesh_that_does_not_multiply_to_the_devices(overrides: list[str], devices: int, suggestion: str) -> None:
    config = load_run("llama3-tiny-train", overrides)
    with pytest.raises(UserError, match=f"but there are {devices}; {suggestion}"):
        check_devices(config, devices)


def test_a_file_that_is_not_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"^run\.toml: not a text file in UTF-8"):
        load_run("run.toml")


def test_a_folder_in_place_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").mkdir()
    with pytest.raises(UserError, match=r"^run\.toml: cannot be read: Is a directory"):
        load_run("run.toml")


def test_a_circle_of_two_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text('model = "a.toml"\n')
    Path("a.toml").write_text('extends = "b.toml"\n')
    Path("b.toml").write_text('layers = 2\nextends = "a.toml"\n')
    with pytest.raises(UserError, match=r"^b\.toml:2: extends: .*a\.toml -> b\.toml -> a\.toml"):
        load_run("run.toml")
