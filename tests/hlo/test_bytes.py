"""HBM bytes: what an instruction touches, not the size of what it names."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import ShapeDtypeStruct as Abstract
from jax import lax

from jaxprof.hlo.costs import module_costs
from jaxprof.hlo.text import parse_text


def traffic(costs) -> tuple[int, int]:
    """(read, written) bytes of arrays in one call; scalars such as loop counters and indices left out."""
    large = [op for op in costs.ops if op.hbm_bytes_read + op.hbm_bytes_written > 64]
    return (
        sum(op.hbm_bytes_read * op.executions.low for op in large),
        sum(op.hbm_bytes_written * op.executions.low for op in large),
    )


def test_c11_an_update_in_place_counts_its_region(compile_module):
    """Cache of 2 MiB, 512 of its 2048 rows written: 524,288 bytes each way, not 2 MiB."""
    cache, update = Abstract((2, 2048, 4, 32), jnp.float32), Abstract((2, 512, 4, 32), jnp.float32)
    module = compile_module(
        lambda c, u, i: lax.dynamic_update_slice(c, u, (0, i, 0, 0)),
        cache,
        update,
        Abstract((), jnp.int32),
        donate_argnums=0,
    )
    read, written = traffic(module_costs(module))
    assert (read, written) == (524_288 + 4, 524_288)


def test_c12_a_cache_updated_in_a_loop_moves_only_the_tokens(compile_module):
    """In float32: older CPU compilers widen bf16 around the update, and then truly rewrite the whole cache."""
    cache, token = Abstract((4, 2, 2, 256, 4, 32), jnp.float32), Abstract((2, 2, 1, 4, 32), jnp.float32)

    def update(cache, token):
        def layer(i, cache):
            return lax.dynamic_update_slice(cache, token[None], (i, 0, 0, 3, 0, 0))

        return lax.fori_loop(0, 4, layer, cache)

    _, written = traffic(module_costs(compile_module(update, cache, token, donate_argnums=0)))
    assert written == 4 * 2 * 2 * 4 * 32 * 4


def test_a_scan_reads_each_layers_weights_once(compile_module):
    """Eight layers of 64 x 64 float32: the slices add up to the stack, never eight times the stack."""
    module = compile_module(
        lambda x, w: lax.scan(lambda c, w: (c @ w, None), x, w)[0],
        Abstract((64, 64), jnp.float32),
        Abstract((8, 64, 64), jnp.float32),
    )
    slices = [op for op in module_costs(module).ops if "dynamic_slice" in op.scope and op.hbm_bytes_written > 64]
    assert sum(op.hbm_bytes_written * op.executions.low for op in slices) == 8 * 16_384
    assert sum(op.hbm_bytes_read * op.executions.low for op in slices) == 8 * (16_384 + 4)


def test_a15_a_gather_reads_the_rows_it_takes(compile_module):
    table, ids = Abstract((1000, 64), jnp.float32), Abstract((32,), jnp.int32)
    read, written = traffic(module_costs(compile_module(lambda t, i: t[i], table, ids)))
    assert (read, written) == (32 * 64 * 4 + 32 * 4, 32 * 64 * 4)


def test_a_matmul_reads_its_operands_and_writes_its_result(compile_module):
    module = compile_module(jnp.matmul, Abstract((256, 512), jnp.float32), Abstract((512, 128), jnp.float32))
    assert traffic(module_costs(module)) == ((256 * 512 + 512 * 128) * 4, 256 * 128 * 4)


def test_an_operand_used_twice_is_read_once(compile_module):
    module = compile_module(lambda x: jnp.exp(x) * x, Abstract((1024,), jnp.float32))
    assert traffic(module_costs(module)) == (4096, 4096)


FUSED = """
HloModule fused

%slices (p0: f32[100,64], p1: s32[], p2: f32[64]) -> f32[1,64] {
  %p0 = f32[100,64]{1,0} parameter(0)
  %double = f32[100,64]{1,0} add(%p0, %p0)
  %p1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %row = f32[1,64]{1,0} dynamic-slice(%double, %p1, %zero), dynamic_slice_sizes={1,64}
  %p2 = f32[64]{0} parameter(2)
  %row2 = f32[1,64]{1,0} bitcast(%p2)
  ROOT %sum = f32[1,64]{1,0} add(%row, %row2)
}

%nested (q0: f32[100,64], q1: s32[], q2: f32[64]) -> f32[1,64] {
  %q0 = f32[100,64]{1,0} parameter(0)
  %q1 = s32[] parameter(1)
  %q2 = f32[64]{0} parameter(2)
  ROOT %inner = f32[1,64]{1,0} fusion(%q0, %q1, %q2), kind=kLoop, calls=%slices
}

%two_updates (u0: f32[100,64], u1: f32[1,64], u2: s32[], u3: f32[50,64]) -> (f32[100,64], f32[50,64]) {
  %u0 = f32[100,64]{1,0} parameter(0)
  %u1 = f32[1,64]{1,0} parameter(1)
  %u2 = s32[] parameter(2)
  %zero.1 = s32[] constant(0)
  %first = f32[100,64]{1,0} dynamic-update-slice(%u0, %u1, %u2, %zero.1)
  %u3 = f32[50,64]{1,0} parameter(3)
  %negated = f32[50,64]{1,0} negate(%u3)
  ROOT %out = (f32[100,64]{1,0}, f32[50,64]{1,0}) tuple(%first, %negated)
}

%not_in_place (n0: f32[100,64], n1: f32[1,64], n2: s32[]) -> f32[100,64] {
  %n0 = f32[100,64]{1,0} parameter(0)
  %n1 = f32[1,64]{1,0} parameter(1)
  %n2 = s32[] parameter(2)
  %zero.2 = s32[] constant(0)
  %scaled = f32[100,64]{1,0} negate(%n0)
  ROOT %update = f32[100,64]{1,0} dynamic-update-slice(%scaled, %n1, %n2, %zero.2)
}

ENTRY %main (t: f32[100,64], i: s32[], v: f32[64], w: f32[1,64], x: f32[50,64]) -> f32[1,64] {
  %t = f32[100,64]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %v = f32[64]{0} parameter(2)
  %w = f32[1,64]{1,0} parameter(3)
  %x = f32[50,64]{1,0} parameter(4)
  %sliced = f32[1,64]{1,0} fusion(%t, %i, %v), kind=kLoop, calls=%slices
  %deep = f32[1,64]{1,0} fusion(%t, %i, %v), kind=kLoop, calls=%nested
  %updated = (f32[100,64]{1,0}, f32[50,64]{1,0}) fusion(%t, %w, %i, %x), kind=kLoop, calls=%two_updates
  %whole = f32[100,64]{1,0} fusion(%t, %w, %i), kind=kLoop, calls=%not_in_place
  ROOT %scattered = f32[1,64]{1,0} copy(%sliced)
}
"""


@pytest.mark.parametrize(
    ("op", "read", "written"),
    [
        ("sliced", 256 + 4 + 256, 256),
        ("deep", 256 + 4 + 256, 256),
        ("updated", 256 + 4 + 12_800, 256 + 12_800),
        ("whole", 25_600 + 256 + 4, 25_600),
        ("scattered", 256, 256),
    ],
)
def test_a_fusion_counts_what_crosses_its_boundary(op: str, read: int, written: int):
    """Slices through elementwise work and nested fusions; updates in place, beside other outputs, and not in place."""
    row = next(row for row in module_costs(parse_text(FUSED)).ops if row.op == op)
    assert (row.hbm_bytes_read, row.hbm_bytes_written) == (read, written)


def test_other_memory_spaces_are_not_hbm():
    """On TPU S(1) is VMEM and S(5) the host: a prefetch reads HBM, an offload too, a VMEM add neither."""
    text = """
HloModule spaces

ENTRY %main (a: f32[8,128]) -> f32[8,128] {
  %a = f32[8,128]{1,0:T(8,128)} parameter(0)
  %prefetch = (f32[8,128]{1,0:T(8,128)S(1)}, f32[8,128]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%a)
  %near = f32[8,128]{1,0:T(8,128)S(1)} copy-done(%prefetch)
  %sum = f32[8,128]{1,0:T(8,128)S(1)} add(%near, %near)
  %offload = (f32[8,128]{1,0:T(8,128)S(5)}, f32[8,128]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%a)
  %far = f32[8,128]{1,0:T(8,128)S(5)} copy-done(%offload)
  ROOT %back = f32[8,128]{1,0:T(8,128)} copy(%sum)
}
"""
    rows = {op.op: (op.hbm_bytes_read, op.hbm_bytes_written, op.category) for op in module_costs(parse_text(text)).ops}
    assert rows == {
        "prefetch": (4096, 0, "data movement"),
        "near": (0, 0, "data movement"),
        "sum": (0, 0, "elementwise"),
        "offload": (4096, 0, "host"),
        "far": (0, 0, "host"),
        "back": (0, 4096, "data movement"),
    }


def test_a_scatter_reads_and_writes_its_rows(compile_module):
    table, ids, rows = Abstract((1000, 64), jnp.float32), Abstract((32,), jnp.int32), Abstract((32, 64), jnp.float32)
    module = compile_module(lambda t, i, u: t.at[i].add(u), table, ids, rows, donate_argnums=0)
    scatter = next(op for op in module_costs(module).ops if op.category == "gather/scatter")
    assert scatter.hbm_bytes_written == 32 * 64 * 4
    assert scatter.hbm_bytes_read == 2 * 32 * 64 * 4 + 32 * 4


def test_control_flow_moves_nothing_itself(compile_module):
    module = compile_module(lambda x: jax.lax.fori_loop(0, 3, lambda _, c: c @ c, x), Abstract((64, 64), jnp.float32))
    control = [op for op in module_costs(module).ops if op.category == "control"]
    assert control
    assert all(op.hbm_bytes_read == op.hbm_bytes_written == 0 for op in control)
