"""Scope, part, phase and source of instructions."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import ShapeDtypeStruct as Abstract
from jax import lax

from jaxprof.hlo.costs import module_costs
from jaxprof.hlo.metadata import part_of, phase_of, source_of
from jaxprof.hlo.module import Computation, Frame, Instruction, Module
from jaxprof.hlo.shapes import Shape


@pytest.mark.parametrize(
    ("op_name", "part"),
    [
        ("jit(step)/jvp(embed)/gather", "embed"),
        ("jit(step)/jvp()/while/body/attention.qkv/dot_general", "attention.qkv"),
        ("jit(step)/transpose(jvp(attention))/core/dot_general", "attention.core"),
        ("jit(step)/mlp/norm/mul", "norm"),
        ("jit(step)/norm/mlp/mul", "mlp"),
        ("jit(loss)/mul", "other"),
        ("jit(step)/moe.experts/ragged_dot", "moe.experts"),
        ("jit(step)/mlp/jit(norm)/mul", "mlp"),
        ("jit(step)/mlp/mul;remat2", "mlp"),
        ("state.params['mlp']", "other"),
        ("", "other"),
    ],
)
def test_the_innermost_scope_that_is_a_part_counts(op_name: str, part: str):
    assert part_of(op_name) == part


@pytest.mark.parametrize(
    ("op_name", "phase"),
    [
        ("jit(step)/jvp()/while/body/mlp/dot_general", "forward"),
        ("jit(step)/mlp/dot_general", "forward"),
        ("jit(step)/transpose(jvp())/while/body/checkpoint/mlp/transpose", "backward"),
        ("jit(step)/transpose(jvp())/while/body/checkpoint/rematted_computation/mlp/dot_general", "recompute"),
        ("jit(step)/optimizer/mul", "optimizer"),
    ],
)
def test_transformations_tell_the_phase(op_name: str, phase: str):
    assert phase_of(op_name, None) == phase
    assert phase_of(op_name, "train") == phase
    assert phase_of(op_name, "decode") == "decode"


def layer(x, w):
    with jax.named_scope("attention.qkv"):
        x = x @ w
    with jax.named_scope("mlp"):
        with jax.named_scope("norm"):
            x = x * lax.rsqrt(jnp.mean(x * x))
        return jnp.tanh(x @ w), None


def step(w, x):
    def loss(w, x):
        with jax.named_scope("embed"):
            x = jnp.exp(x)
        y, _ = lax.scan(jax.checkpoint(layer), x, w)
        with jax.named_scope("loss"):
            return jnp.sum(y**2)

    value, gradient = jax.value_and_grad(loss)(w, x)
    with jax.named_scope("optimizer"):
        return w - 0.1 * gradient, value


@pytest.fixture(scope="module")
def ops(compile_module):
    return module_costs(compile_module(step, Abstract((4, 64, 64), jnp.float32), Abstract((8, 64), jnp.float32))).ops


def test_matmuls_of_a_train_step_by_part_and_phase(ops):
    """Forward one, recompute one, backward two for each of the two matmuls of a layer."""
    count = {}
    for op in ops:
        if op.flops:
            count[op.part, op.phase] = count.get((op.part, op.phase), 0) + 1
    assert count == {
        ("attention.qkv", "forward"): 1, ("mlp", "forward"): 1, ("attention.qkv", "recompute"): 1,
        ("mlp", "recompute"): 1, ("attention.qkv", "backward"): 2, ("mlp", "backward"): 2,
    }  # fmt: skip


def test_every_part_and_phase_of_the_program_is_found(ops):
    assert {op.part for op in ops} >= {"embed", "attention.qkv", "mlp", "norm", "loss", "optimizer"}
    assert {op.phase for op in ops if op.part == "optimizer"} == {"optimizer"}
    assert {op.phase for op in ops if op.part == "embed"} == {"forward"}


def test_weights_that_scan_slices_belong_to_who_uses_them(ops):
    slices = [op for op in ops if op.scope.endswith("dynamic_slice") and op.hbm_bytes_written == 64 * 64 * 4]
    assert slices
    assert {op.part for op in slices} <= {"attention.qkv", "mlp"}


def test_source_lines_are_the_users(ops):
    lines = {op.source.rpartition(":")[0] for op in ops if op.flops}
    assert lines == {__file__}
    forward = next(op for op in ops if op.part == "attention.qkv" and op.phase == "forward" and op.flops)
    line = int(forward.source.rpartition(":")[2])
    assert line == layer.__code__.co_firstlineno + 2


def test_a_copy_without_metadata_says_what_its_neighbours_say(ops):
    silent = [op for op in ops if op.opcode == "copy"]
    assert silent
    assert all(op.phase != "unknown" for op in silent)


def test_decode_is_one_phase(compile_module):
    module = compile_module(
        functools.partial(jnp.matmul), Abstract((8, 64), jnp.float32), Abstract((64, 64), jnp.float32)
    )
    assert {op.phase for op in module_costs(module, step="decode").ops} == {"decode"}


def test_library_frames_are_passed_over():
    frames = (
        Frame("/home/me/train.py", "main", 3, 0),
        Frame("/venv/lib/python3.12/site-packages/jaxprof/models/mlp.py", "mlp", 9, 1),
        Frame("/venv/lib/python3.12/site-packages/flax/nnx/linear.py", "__call__", 80, 2),
        Frame("/venv/lib/python3.12/site-packages/jax/_src/numpy.py", "dot", 7, 0),
    )
    root = Instruction(name="a", opcode="add", shape=Shape("f32"), frame=3)
    entry = Computation("main", (root,), root)
    module = Module("m", {"main": entry}, entry, frames)
    assert source_of(root, module) == "/venv/lib/python3.12/site-packages/jaxprof/models/mlp.py:9"
    only_library = Instruction(name="b", opcode="add", shape=Shape("f32"), frame=4)
    assert source_of(only_library, module) == "/venv/lib/python3.12/site-packages/jax/_src/numpy.py:7"
    older = Instruction(name="c", opcode="add", shape=Shape("f32"), source_file="/home/me/old.py", source_line=5)
    assert source_of(older, module) == "/home/me/old.py:5"
