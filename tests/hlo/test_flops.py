"""FLOPs against closed forms and published cases. MM(m, k, n) = 2mkn."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import ShapeDtypeStruct as Abstract
from jax import lax
from jax.experimental import pallas as pl
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxprof.hlo.costs import DeclaredCost, module_costs
from jaxprof.hlo.flops import attention_flops, window_positions
from jaxprof.hlo.module import WindowDim
from jaxprof.hlo.op_cost import Bounds
from jaxprof.hlo.text import parse_text


def f32(*dims: int, dtype=jnp.float32, **options) -> Abstract:
    return Abstract(dims, dtype, **options)


def exactly(flops: int) -> Bounds:
    return Bounds(flops, flops)


def other_flops(costs) -> int:
    return sum(op.other_flops * op.executions.low for op in costs.ops)


def test_a4_library_matmul_is_read_from_its_shapes():
    """The form of the public case: dimension numbers in the configuration, old and new nesting."""
    for config in ('{"dot_dimension_numbers":%s}', '{"gemm_backend_config":{"dot_dimension_numbers":%s}}'):
        numbers = '{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}'
        costs = module_costs(parse_text(GEMM.replace("CONFIG", config % numbers)))
        assert costs.flops == exactly(61_440)
        assert costs.ops[0].category == "matmul"
        assert costs.ops[0].hbm_bytes_written == 3 * 128 * 4, "the workspace is no result"
        (warning,) = costs.warnings
        assert "mystery_kernel" in warning
        assert "not counted" in warning


GEMM = """
HloModule gemm

ENTRY %main (a: f32[3,80], b: f32[80,128]) -> f32[3,128] {
  %a = f32[3,80]{1,0} parameter(0)
  %b = f32[80,128]{1,0} parameter(1)
  %cublas-gemm.1 = (f32[3,128]{1,0}, s8[4194304]{0}) custom-call(f32[3,80]{1,0} %a, f32[80,128]{1,0} %b), custom_call_target="__cublas$gemm", backend_config=CONFIG
  %r = f32[3,128]{1,0} get-tuple-element(%cublas-gemm.1), index=0
  ROOT %odd = f32[3,128]{1,0} custom-call(%r), custom_call_target="mystery_kernel"
}
"""  # noqa: E501


def test_a4_batched_and_onednn_matmuls():
    text = """
HloModule calls

ENTRY %main (a: bf16[2,8,32,64], b: bf16[2,8,64,16], c: f32[4,8]) -> f32[8,16] {
  %a = bf16[2,8,32,64] parameter(0)
  %b = bf16[2,8,64,16] parameter(1)
  %batched = (bf16[2,8,32,16], s8[32]) custom-call(%a, %b), custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["3"],"rhs_contracting_dimensions":["2"],"lhs_batch_dimensions":["0","1"],"rhs_batch_dimensions":["0","1"]}}}
  %c = f32[4,8] parameter(2)
  %w = f32[4,16] constant({...})
  ROOT %onednn = f32[8,16] custom-call(%c, %w), custom_call_target="__onednn$matmul", backend_config={"onednn_matmul_config":{"transpose_a":true}}
}
"""  # noqa: E501
    costs = module_costs(parse_text(text))
    assert [op.flops for op in costs.ops] == [{"bf16": 2 * 16 * 32 * 64 * 16}, {"f32": 2 * 8 * 4 * 16}]


def test_cudnn_calls_count_convolutions_and_attention():
    """Gradients of a convolution cost what the convolution costs; attention is 4 BHSSD, half of it causal."""
    conv = "window={size=3x3}, dim_labels=b01f_01io->b01f"
    text = f"""
HloModule cudnn

ENTRY %main (x: f32[1,8,8,16], w: f32[3,3,16,32], g: f32[1,6,6,32], q: bf16[2,128,4,64]) -> bf16[2,128,4,64] {{
  %x = f32[1,8,8,16] parameter(0)
  %w = f32[3,3,16,32] parameter(1)
  %g = f32[1,6,6,32] parameter(2)
  %q = bf16[2,128,4,64] parameter(3)
  %forward = (f32[1,6,6,32], u8[0]) custom-call(%x, %w), {conv}, custom_call_target="__cudnn$convForward"
  %input = (f32[1,8,8,16], u8[0]) custom-call(%g, %w), {conv}, custom_call_target="__cudnn$convBackwardInput"
  %filter = (f32[3,3,16,32], u8[0]) custom-call(%x, %g), {conv}, custom_call_target="__cudnn$convBackwardFilter"
  %attention = (bf16[2,128,4,64], u8[0]) custom-call(%q, %q, %q), custom_call_target="__cudnn$fmhaSoftmax", backend_config={{"cudnn_fmha_backend_config":{{"mask_type":"CAUSAL","intermediate_tensor_shape":{{"dimensions":["2","4","128","128"]}}}}}}
  ROOT %r = bf16[2,128,4,64] get-tuple-element(%attention), index=0
}}
"""  # noqa: E501
    ops = module_costs(parse_text(text)).ops
    assert [sum(op.flops.values()) for op in ops] == [331_776] * 3 + [16_908_288]
    assert [op.category for op in ops] == ["convolution"] * 3 + ["attention"]
    assert attention_flops((2, 4, 128, 128), 64, 64, causal=False) == 33_554_432
    assert attention_flops((1, 16, 4096, 4096), 192, 128, causal=False) == 171_798_691_840  # B9


def test_a5_host_callback_is_unknown_and_everything_else_kept(compile_module):
    def callback(x):
        return jax.pure_callback(lambda a: a @ a, jax.ShapeDtypeStruct((64, 64), jnp.float32), x @ x)

    costs = module_costs(compile_module(callback, f32(64, 64)))
    assert costs.flops == exactly(524_288)
    assert costs.warnings == ("FLOPs: unknown part: 1 host callback",)
    (call,) = (op for op in costs.ops if op.opcode == "custom-call")
    assert (call.unknown, call.category, call.flops) == ("host callback", "host", {})


@pytest.mark.parametrize(
    ("function", "arguments", "flops"),
    [
        (jnp.linalg.cholesky, [(256, 256)], 5_592_405),  # A6: n^3/3
        (functools.partial(jax.scipy.linalg.solve_triangular, lower=True), [(128, 128), (128, 32)], 128 * 128 * 32),
        # Householder vectors, then a thin Q from them: each 2n^2(m - n/3).
        (jnp.linalg.qr, [(256, 128)], 2 * int(2 * 128**2 * (256 - 128 / 3))),
    ],
)
def test_a6_factorisations_are_priced_by_formula(compile_module, function, arguments, flops: int):
    costs = module_costs(compile_module(function, *(f32(*dims) for dims in arguments)))
    assert costs.flops == exactly(flops)
    assert costs.warnings == ()


def test_a7_an_interpreted_kernel_is_a_loop_over_its_grid(compile_module):
    def kernel(a, b, out):
        out[...] = a[...] @ b[...]

    def matmul(a, b):
        return pl.pallas_call(
            kernel,
            grid=(4,),
            in_specs=[pl.BlockSpec((64, 256), lambda i: (i, 0)), pl.BlockSpec((256, 256), lambda i: (0, 0))],
            out_specs=pl.BlockSpec((64, 256), lambda i: (i, 0)),
            out_shape=jax.ShapeDtypeStruct((256, 256), jnp.float32),
            interpret=True,
        )(a, b)

    assert module_costs(compile_module(matmul, f32(256, 256), f32(256, 256))).flops == exactly(33_554_432)


def test_a8_elementwise_work_is_kept_apart(compile_module):
    total = module_costs(compile_module(jnp.sum, f32(1024)))
    running = module_costs(compile_module(jnp.cumsum, f32(1024)))
    assert total.flops == running.flops == exactly(0)
    assert other_flops(total) == 1023
    assert other_flops(running) > 1023


def test_a9_flops_and_bytes_come_from_the_same_compiled_module(compile_module):
    def chain(x, y):
        for _ in range(100):
            x = x + y
        return x

    costs = module_costs(compile_module(chain, f32(64, 64), f32(64, 64)))
    moved = sum((op.hbm_bytes_read + op.hbm_bytes_written) * op.executions.low for op in costs.ops)
    assert other_flops(costs) == 409_600
    assert moved == 49_152
    assert round(other_flops(costs) / moved, 2) == 8.33


def test_a10_complex_matmul_counts_real_flops(compile_module):
    x = f32(64, 64, dtype=jnp.complex64)
    costs = module_costs(compile_module(jnp.matmul, x, x))
    assert costs.flops == exactly(8 * 64**3)
    assert [op.flops for op in costs.ops if op.flops] == [{"c64": 2_097_152}]


CONV_INPUT, CONV_KERNEL = f32(1, 8, 8, 16), f32(3, 3, 16, 32)


def convolve(x, w, padding, **options):
    return lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"), **options)


@pytest.mark.parametrize(
    ("padding", "options", "flops"),
    [
        ("VALID", {}, 331_776),
        ("SAME", {}, 495_616),
        ("VALID", {"rhs_dilation": (2, 2)}, 147_456),
        ([(0, 0), (0, 0)], {"lhs_dilation": (2, 2)}, 409_600),
    ],
)
def test_a11_convolutions_count_positions_that_are_not_zero(compile_module, padding, options, flops: int):
    module = compile_module(lambda x, w: convolve(x, w, padding, **options), CONV_INPUT, CONV_KERNEL)
    assert module_costs(module).flops == exactly(flops)


def test_a11_positions_equal_a_count_by_hand():
    """Every window over a small base, against a loop over all pairs."""
    for base in (1, 4, 5):
        for size, stride, low, dilation, holes in np.ndindex(4, 3, 3, 2, 3):
            window = WindowDim(size + 1, stride + 1, low, 2, dilation + 1, holes + 1)
            dilated = (base - 1) * window.base_dilation + 1
            reach = size * window.window_dilation + 1
            outputs = max(0, (dilated + low + 2 - reach) // window.stride + 1)
            positions = (
                output * window.stride + element * window.window_dilation - low
                for output in range(outputs)
                for element in range(window.size)
            )
            counted = sum(0 <= p < dilated and p % window.base_dilation == 0 for p in positions)
            assert window_positions(base, outputs, window) == counted


def test_a12_both_gradients_of_a_convolution(compile_module):
    def gradients(x, w, g):
        return jax.vjp(lambda x, w: convolve(x, w, "VALID"), x, w)[1](g)

    module = compile_module(gradients, CONV_INPUT, CONV_KERNEL, f32(1, 6, 6, 32))
    assert module_costs(module).flops == exactly(2 * 331_776)


def test_grouped_convolutions_count_one_group_of_inputs(compile_module):
    module = compile_module(lambda x, w: convolve(x, w, "VALID", feature_group_count=4), CONV_INPUT, f32(3, 3, 4, 32))
    assert module_costs(module).flops == exactly(331_776 // 4)


def test_a13_masked_attention_executes_the_full_square(compile_module):
    def attention(q, k, v):
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
        scores = jnp.where(jnp.tril(jnp.ones((128, 128), bool)), scores, -1e9)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)

    q = f32(2, 128, 4, 64)
    assert module_costs(compile_module(attention, q, q, q)).flops == exactly(33_554_432)
    library = functools.partial(jax.nn.dot_product_attention, is_causal=True)
    assert module_costs(compile_module(library, q, q, q)).flops == exactly(33_554_432)


def test_a14_ragged_dot_useful_and_executed(compile_module):
    """CPU expands to dense: eight times the useful work. The HLO's own ragged-dot counts each row once."""
    module = compile_module(lax.ragged_dot, f32(128, 64), f32(8, 64, 32), Abstract((8,), jnp.int32))
    assert module_costs(module).flops == exactly(4_194_304)
    text = """
HloModule ragged

ENTRY %main (a: f32[128,64], b: f32[8,64,32], g: s32[8]) -> f32[128,32] {
  %a = f32[128,64]{1,0} parameter(0)
  %b = f32[8,64,32]{2,1,0} parameter(1)
  %g = s32[8]{0} parameter(2)
  ROOT %r = f32[128,32]{1,0} ragged-dot(%a, %b, %g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}
}
"""  # noqa: E501
    assert module_costs(parse_text(text)).flops == exactly(524_288)


def test_a15_a_look_up_is_no_matmul(compile_module):
    table, ids = f32(1000, 64), Abstract((32,), jnp.int32)
    gathered = module_costs(compile_module(lambda t, i: t[i], table, ids))
    assert gathered.flops == exactly(0)
    assert {op.category for op in gathered.ops} == {"gather/scatter"}
    one_hot = module_costs(compile_module(lambda t, i: jax.nn.one_hot(i, 1000) @ t, table, ids))
    assert one_hot.flops == exactly(4_096_000)


def test_a16_costs_are_those_of_one_device(compile_module, make_mesh):
    mesh = make_mesh(x=8)
    rows, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
    sharded = compile_module(jnp.matmul, f32(1024, 512, sharding=rows), f32(512, 256, sharding=whole))
    assert module_costs(sharded).flops == exactly(33_554_432)
    replicated = compile_module(jnp.matmul, f32(1024, 512, sharding=whole), f32(512, 256, sharding=whole))
    assert module_costs(replicated).flops == exactly(268_435_456)


def test_a17_conversions_and_reductions_stay_out_of_matmul_flops(compile_module, make_mesh):
    float8 = jnp.float8_e4m3fn
    dot = functools.partial(jnp.dot, preferred_element_type=jnp.float32)
    narrow = module_costs(compile_module(dot, f32(64, 128, dtype=float8), f32(128, 32, dtype=float8)))
    assert narrow.flops == exactly(524_288)
    assert other_flops(narrow) == 0
    mesh = make_mesh(x=8)
    columns, rows = NamedSharding(mesh, P(None, "x")), NamedSharding(mesh, P("x"))
    summed = module_costs(
        compile_module(
            jnp.matmul,
            f32(64, 64, sharding=columns),
            f32(64, 64, sharding=rows),
            out_shardings=NamedSharding(mesh, P()),
        )
    )
    assert summed.flops == exactly(2 * 64 * 8 * 64)
    assert other_flops(summed) == 64 * 64, "one addition an element"


def test_b11_micro_batches_count_each(compile_module):
    def accumulate(xs, w):
        def add(total, x):
            return total + jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w), None

        return lax.scan(add, jnp.zeros((64, 64)), xs)[0]

    assert module_costs(compile_module(accumulate, f32(4, 32, 64), f32(64, 64))).flops == exactly(2_097_152)


@pytest.mark.parametrize(("remat", "flops"), [(False, 25_165_824), (True, 33_554_432)])
def test_b15_recompute_is_executed_work(compile_module, remat: bool, flops: int):
    def layer(x, weights):
        return jnp.tanh(jnp.tanh(x @ weights[0]) @ weights[1]), None

    body = jax.checkpoint(layer) if remat else layer
    gradient = jax.grad(lambda weights, x: jnp.sum(lax.scan(body, x, weights)[0]))
    costs = module_costs(compile_module(gradient, (f32(4, 64, 256), f32(4, 256, 64)), f32(32, 64)))
    assert costs.flops == exactly(flops)
    recomputed = sum(sum(op.flops.values()) * op.executions.low for op in costs.ops if op.phase == "recompute")
    assert recomputed == flops - 25_165_824


def test_f8_scanned_nnx_layers(compile_module):
    class Block(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.linear = nnx.Linear(16, 16, rngs=rngs)

        def __call__(self, x):
            return self.linear(x)

    @nnx.split_rngs(splits=6)
    @nnx.vmap(in_axes=(0,), out_axes=0)
    def stack(rngs):
        return Block(rngs)

    graph, state = nnx.split(stack(nnx.Rngs(0)))

    def forward(state, x):
        apply = nnx.scan(lambda x, block: block(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        return apply(x, nnx.merge(graph, state))

    abstract = jax.tree.map(lambda leaf: Abstract(leaf.shape, leaf.dtype), state)
    assert module_costs(compile_module(forward, abstract, f32(4, 16))).flops == exactly(12_288)


def test_a_declared_cost_prices_a_kernel_by_name():
    text = GEMM.replace("CONFIG", "{}")
    unpriced = module_costs(parse_text(text))
    assert {op.unknown for op in unpriced.ops} == {"__cublas$gemm", "mystery_kernel"}
    declared = {"mystery_kernel": DeclaredCost(flops=1000, bytes=5000), "cublas-gemm": DeclaredCost(flops=61_440)}
    costs = module_costs(parse_text(text), declared=declared)
    assert costs.flops == exactly(62_440)
    assert costs.warnings == ()
    kernel = costs.ops[-1]
    assert kernel.hbm_bytes_read + kernel.hbm_bytes_written == 5000


def test_the_operands_dtype_decides_the_peak(compile_module):
    x = f32(64, 64, dtype=jnp.int8)
    costs = module_costs(compile_module(functools.partial(jnp.dot, preferred_element_type=jnp.int32), x, x))
    assert sum(costs.ops[-1].flops.values()) == 524_288
    assert set().union(*(op.flops for op in costs.ops)) <= {"s8", "s32"}
