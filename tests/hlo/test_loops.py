"""Executions through loops, branches and calls."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from jax import ShapeDtypeStruct as Abstract
from jax import lax

from jaxprof.hlo.costs import module_costs
from jaxprof.hlo.loops import count_iterations, executions
from jaxprof.hlo.module import Computation, Module
from jaxprof.hlo.op_cost import Bounds
from jaxprof.hlo.text import parse_text

X = Abstract((64, 64), jnp.float32)
ONE = 2 * 64**3


def forget_trip_counts(module: Module) -> Module:
    """The module as a TPU compiler leaves it: without the trip counts in backend_config."""
    computations = {}
    for name, computation in module.computations.items():
        made = {}
        for i in computation.instructions:
            operands = tuple(made[o.name] for o in i.operands)
            made[i.name] = dataclasses.replace(i, operands=operands, backend_config="")
        computations[name] = Computation(name, tuple(made.values()), made[computation.root.name])
    return dataclasses.replace(module, computations=computations, entry=computations[module.entry.name])


@pytest.mark.parametrize("direction", ["LT", "LE", "GT", "GE", "NE", "EQ"])
def test_iterations_equal_those_of_the_loop_itself(direction: str):
    """Against a loop in Python that is run, for starts, bounds and steps of both signs."""
    holds = {
        "LT": int.__lt__, "LE": int.__le__, "GT": int.__gt__, "GE": int.__ge__, "NE": int.__ne__, "EQ": int.__eq__
    }[direction]  # fmt: skip
    for start in range(-3, 4):
        for bound in range(-4, 5):
            for step in (-3, -2, -1, 0, 1, 2, 3):
                value, count = start, 0
                while holds(value, bound) and count < 100:
                    value, count = value + step, count + 1
                assert count_iterations(direction, start, bound, step) == (None if count == 100 else count)


def test_a1_scan_counts_every_iteration(compile_module):
    weights = Abstract((8, 64, 64), jnp.float32)
    module = compile_module(lambda x, w: lax.scan(lambda c, w: (c @ w, None), x, w)[0], X, weights)
    assert module_costs(module).flops == Bounds(8 * ONE, 8 * ONE)
    assert module_costs(forget_trip_counts(module)).flops == Bounds(8 * ONE, 8 * ONE)


def test_a2_unknown_trip_count_is_flagged_and_can_be_given(compile_module):
    module = compile_module(lambda n, c, w: lax.fori_loop(0, n, lambda _, c: c @ w, c), Abstract((), jnp.int32), X, X)
    costs = module_costs(module)
    assert costs.flops == Bounds(ONE, None)
    (warning,) = costs.warnings
    assert "per iteration 524,288" in warning
    assert "trip count unknown" in warning
    loop = next(op.op for op in costs.ops if op.opcode == "while")
    assert loop in warning
    matmul = next(op for op in costs.ops if op.category == "matmul")
    assert (matmul.executions.low, matmul.executions.high) == (1, None)
    assert loop in (matmul.executions.why or "")
    given = module_costs(module, trip_counts={loop: 10})
    assert given.flops == Bounds(5_242_880, 5_242_880)
    assert given.warnings == ()


def test_a3_one_branch_runs_so_the_cost_is_a_range(compile_module):
    module = compile_module(
        lambda p, x, w: lax.cond(p, lambda: x @ w, lambda: ((x @ w) @ w) @ w), Abstract((), jnp.bool_), X, X
    )
    costs = module_costs(module)
    assert costs.flops == Bounds(524_288, 1_572_864)
    (warning,) = costs.warnings
    assert "524,288 to 1,572,864" in warning
    assert all(op.executions.exact is None for op in costs.ops if op.flops)


def test_a3_a_branch_inside_a_loop_multiplies_its_range(compile_module):
    def loop(x, w):
        return lax.scan(lambda c, i: (lax.cond(i % 4 == 0, lambda c: c @ w, lambda c: c, c), None), x, jnp.arange(8))[0]

    costs = module_costs(compile_module(loop, X, X))
    assert costs.flops == Bounds(0, 8 * ONE)
    matmul = next(op for op in costs.ops if op.flops)
    assert (matmul.executions.low, matmul.executions.high) == (0, 8)
    assert matmul.executions.why is not None


def test_nested_loops_multiply(compile_module):
    def nested(x, w):
        return lax.fori_loop(0, 3, lambda _, c: lax.fori_loop(2, 7, lambda _, d: d @ w, c), x)

    module = compile_module(nested, X, X)
    assert module_costs(module).flops == Bounds(15 * ONE, 15 * ONE)
    assert module_costs(forget_trip_counts(module)).flops == Bounds(15 * ONE, 15 * ONE)


def test_f9_a_loop_on_the_device_counts_each_token(compile_module):
    c, w = Abstract((1, 256), jnp.float32), Abstract((256, 256), jnp.float32)
    module = compile_module(lambda c, w: lax.fori_loop(0, 32, lambda _, c: jnp.tanh(c @ w), c), c, w)
    assert module_costs(module).flops == Bounds(4_194_304, 4_194_304)


LOOP = """
HloModule loop

%body (p: (s32[], f32[8,8], s32[])) -> (s32[], f32[8,8], s32[]) {{
  %p = (s32[], f32[8,8]{{1,0}}, s32[]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8,8]{{1,0}} get-tuple-element(%p), index=1
  %n = s32[] get-tuple-element(%p), index=2
  %step = s32[] constant({step})
  %next = s32[] add(%i, %step)
  %y = f32[8,8]{{1,0}} dot(%x, %x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT %out = (s32[], f32[8,8]{{1,0}}, s32[]) tuple(%next, %y, %n)
}}

%condition (q: (s32[], f32[8,8], s32[])) -> pred[] {{
  %q = (s32[], f32[8,8]{{1,0}}, s32[]) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %bound = s32[] {bound}
  ROOT %less = pred[] compare({sides}), direction={direction}
}}

ENTRY %main (x0: f32[8,8]) -> f32[8,8] {{
  %x0 = f32[8,8]{{1,0}} parameter(0)
  %start = s32[] constant({start})
  %limit = s32[] constant(9)
  %copied = s32[] copy(%start)
  %init = (s32[], f32[8,8]{{1,0}}, s32[]) tuple(%copied, %x0, %limit)
  %while.1 = (s32[], f32[8,8]{{1,0}}, s32[]) while(%init), condition=%condition, body=%body
  ROOT %r = f32[8,8]{{1,0}} get-tuple-element(%while.1), index=1
}}
"""


@pytest.mark.parametrize(
    ("start", "bound", "step", "direction", "sides", "trips"),
    [
        (0, "constant(9)", 1, "LT", "%j, %bound", 9),
        (1, "constant(9)", 1, "LT", "%j, %bound", 8),  # peeled
        (0, "constant(9)", 2, "LT", "%j, %bound", 5),  # two steps of a collective matmul in one iteration
        (1, "constant(9)", 2, "LE", "%j, %bound", 5),
        (0, "constant(9)", 3, "NE", "%j, %bound", 3),
        (9, "constant(0)", -1, "GT", "%j, %bound", 9),
        (9, "constant(0)", -2, "GE", "%j, %bound", 5),
        (0, "constant(9)", 1, "GT", "%bound, %j", 9),  # bound on the left
        (0, "get-tuple-element(%q), index=2", 1, "LT", "%j, %bound", 9),  # bound carried unchanged
        (12, "constant(9)", 1, "LT", "%j, %bound", 0),
        (0, "constant(9)", 4, "NE", "%j, %bound", None),  # steps over its bound
        (0, "constant(9)", -1, "LT", "%j, %bound", None),  # runs away
    ],
)
def test_trip_count_from_the_loops_own_condition(start, bound, step, direction, sides, trips):
    text = LOOP.format(start=start, bound=bound, step=step, direction=direction, sides=sides)
    assert executions(parse_text(text)).trips == {"while.1": trips}


def test_a_call_hands_the_loop_its_start():
    """CPU modules wrap small loops in a call; the start value then stands with the caller."""
    text = LOOP.format(start=2, bound="constant(9)", step=1, direction="LT", sides="%j, %bound")
    entry = "ENTRY %main (x0: f32[8,8]) -> f32[8,8] {"
    text = text.replace(entry, """%called (t: (s32[], f32[8,8], s32[])) -> f32[8,8] {
  %t = (s32[], f32[8,8]{1,0}, s32[]) parameter(0)
  %while.1 = (s32[], f32[8,8]{1,0}, s32[]) while(%t), condition=%condition, body=%body
  ROOT %r1 = f32[8,8]{1,0} get-tuple-element(%while.1), index=1
}

""" + entry)  # fmt: skip
    text = text[: text.rindex("  %while.1 =")] + "  ROOT %c = f32[8,8]{1,0} call(%init), to_apply=%called\n}\n"
    assert executions(parse_text(text)).trips == {"while.1": 7}


def test_a_loop_that_goes_on_where_another_ended():
    """Peeling splits a loop in two: i = 0, 3, 6, 9 in the first; 9, 12 in the second, up to 14."""
    text = LOOP.format(start=0, bound="constant(9)", step=3, direction="LT", sides="%j, %bound")
    second = """%condition.2 (q2: (s32[], f32[8,8], s32[])) -> pred[] {
  %q2 = (s32[], f32[8,8]{1,0}, s32[]) parameter(0)
  %j2 = s32[] get-tuple-element(%q2), index=0
  %bound.2 = s32[] constant(14)
  ROOT %less.2 = pred[] compare(%j2, %bound.2), direction=LT
}

ENTRY"""
    text = text.replace("ENTRY", second).replace("  ROOT %r =", """  %i1 = s32[] get-tuple-element(%while.1), index=0
  %x1 = f32[8,8]{1,0} get-tuple-element(%while.1), index=1
  %init.2 = (s32[], f32[8,8]{1,0}, s32[]) tuple(%i1, %x1, %limit)
  %while.2 = (s32[], f32[8,8]{1,0}, s32[]) while(%init.2), condition=%condition.2, body=%body
  ROOT %r =""")  # fmt: skip
    assert executions(parse_text(text)).trips == {"while.1": 3, "while.2": 2}


def test_conditions_run_once_more_than_bodies(compile_module):
    module = compile_module(lambda x: jax.lax.fori_loop(0, 5, lambda _, c: c @ c, x), X)
    runs = executions(module).executions
    loop = next(i for i in module.instructions() if i.opcode == "while")
    assert [runs[name].exact for name in loop.called] == [5, 6]
