"""Collectives: sizes, groups and mesh axes against values worked out by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import ShapeDtypeStruct as Abstract
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxprof.hlo.collectives import bandwidths, wire_bytes
from jaxprof.hlo.costs import module_costs
from jaxprof.hlo.module import parse_module
from jaxprof.hlo.op_cost import OpCost
from jaxprof.hlo.program import MeshAxes
from jaxprof.hlo.text import parse_text

AXES = MeshAxes(("dp", "tp"), (2, 4))


def collectives(costs) -> list[OpCost]:
    return [op for op in costs.ops if op.collective]


def on(mesh, *spec) -> NamedSharding:
    return NamedSharding(mesh, P(*spec))


def f32(*dims: int, sharding) -> Abstract:
    return Abstract(dims, jnp.float32, sharding=sharding)


def loss(w, x):
    return jnp.sum((x @ w) ** 2)


def test_data_parallel_gradients_are_all_reduced_over_data(compile_module, make_mesh):
    """w f32[512,256] on each of 8 devices: S = 524,288, 2S(n-1)/n on the wire, over 'data'."""
    mesh = make_mesh(data=8)
    module = compile_module(
        lambda w, x: w - 0.1 * jax.grad(loss)(w, x),
        f32(512, 256, sharding=on(mesh)),
        f32(64, 512, sharding=on(mesh, "data")),
        out_shardings=on(mesh),
    )
    (op,) = collectives(module_costs(module, MeshAxes(("data",), (8,))))
    assert (op.collective, op.mesh_axes, op.group_size) == ("all-reduce", ("data",), 8)
    assert (op.payload_bytes, op.wire_bytes) == (524_288, 2 * 524_288 * 7 // 8)
    assert (op.phase, op.executions.exact) == ("backward", 1)


def test_d6_fsdp_gathers_parameters_and_reduces_gradients(compile_module, make_mesh):
    """CPU writes the reduce-scatter as an all-reduce: twice the bytes, and a line that says so."""
    mesh = make_mesh(fsdp=8)
    module = compile_module(
        lambda w, x: w - 0.1 * jax.grad(loss)(w, x),
        f32(512, 512, sharding=on(mesh, "fsdp")),
        f32(64, 512, sharding=on(mesh, "fsdp")),
        out_shardings=on(mesh, "fsdp"),
    )
    costs = module_costs(module, MeshAxes(("fsdp",), (8,)))
    gather, reduce = collectives(costs)
    assert (gather.collective, gather.mesh_axes, gather.payload_bytes) == ("all-gather", ("fsdp",), 1_048_576)
    assert gather.wire_bytes == 1_048_576 * 7 // 8
    assert (reduce.collective, reduce.mesh_axes, reduce.payload_bytes) == ("all-reduce", ("fsdp",), 1_048_576)
    assert reduce.wire_bytes == 2 * wire_bytes("reduce-scatter", 1_048_576, 8)
    (warning,) = costs.warnings
    assert "1 all-reduce of which each device keeps only its own shard" in warning


def test_combined_all_reduces_are_judged_by_each_part():
    """Two arrays in one all-reduce: only where every part is sliced is it a reduce-scatter in disguise."""
    body = """
  %y = f32[1024]{0} negate(%x)
  %both = (f32[1024]{0}, f32[1024]{0}) all-reduce(%x, %y), channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%sum
  %one = f32[1024]{0} get-tuple-element(%both), index=0
  %two = f32[1024]{0} get-tuple-element(%both), index=1
  %start = s32[] constant(0)
  %kept = f32[128]{0} dynamic-slice(%one, %start), dynamic_slice_sizes={128}
  %also = f32[SIZE]{0} dynamic-slice(%two, %start), dynamic_slice_sizes={SIZE}
  ROOT %r = (f32[128]{0}, f32[SIZE]{0}) tuple(%kept, %also)"""  # noqa: E501
    for size, warnings in (("128", 1), ("1024", 0)):
        costs = module_costs(parse_text(in_entry(body.replace("SIZE", size))), AXES)
        assert costs.ops[1].payload_bytes == 8192
        assert len(costs.warnings) == warnings


def test_tensor_parallel_activations_are_all_reduced_over_tensor(compile_module, make_mesh):
    """Columns then rows of a two-layer MLP: one all-reduce of y f32[32,128] a data shard, S = 16,384."""
    mesh = make_mesh(data=2, tensor=4)
    module = compile_module(
        lambda x, up, down: jnp.tanh(x @ up) @ down,
        f32(64, 128, sharding=on(mesh, "data")),
        f32(128, 512, sharding=on(mesh, None, "tensor")),
        f32(512, 128, sharding=on(mesh, "tensor")),
        out_shardings=on(mesh, "data"),
    )
    costs = module_costs(module, MeshAxes(("data", "tensor"), (2, 4)))
    (op,) = collectives(costs)
    assert (op.collective, op.mesh_axes, op.group_size) == ("all-reduce", ("tensor",), 4)
    assert (op.payload_bytes, op.wire_bytes) == (32 * 128 * 4, 2 * 32 * 128 * 4 * 3 // 4)
    assert op.groups == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert costs.warnings == ()


def test_d7_a_promoted_collective_says_what_it_was(compile_module, make_mesh):
    mesh = make_mesh(dp=2, tp=4)
    module = compile_module(
        jnp.matmul,
        Abstract((64, 64), jnp.bfloat16, sharding=on(mesh, "dp", "tp")),
        Abstract((64, 64), jnp.bfloat16, sharding=on(mesh, "tp", None)),
        out_shardings=on(mesh, "dp", None),
    )
    costs = module_costs(module, AXES)
    (op,) = collectives(costs)
    assert (op.payload_bytes, op.promoted_from, op.mesh_axes) == (8_192, "bf16", ("tp",))
    (warning,) = costs.warnings
    assert "promoted from bf16" in warning


def test_a_float32_collective_is_not_called_promoted(compile_module, make_mesh):
    mesh = make_mesh(dp=2, tp=4)
    x, w = f32(64, 64, sharding=on(mesh, "dp", "tp")), f32(64, 64, sharding=on(mesh, "tp", None))
    costs = module_costs(compile_module(jnp.matmul, x, w, out_shardings=on(mesh, "dp", None)), AXES)
    assert [op.promoted_from for op in collectives(costs)] == [None]


def test_d8_one_build_many_notations(compile_module, make_mesh):
    """tp/4, dp/2, dp/2 and a ring of 4 over tp, whichever way the build prints them."""
    mesh = make_mesh(dp=2, tp=4)
    x = f32(64, 64, sharding=on(mesh, "dp", "tp"))
    cases = [
        compile_module(jnp.matmul, x, f32(64, 64, sharding=on(mesh, "tp")), out_shardings=on(mesh, "dp")),
        compile_module(
            jnp.matmul, f32(64, 64, sharding=on(mesh, "tp", "dp")), f32(64, 64, sharding=on(mesh, "dp")),
            out_shardings=on(mesh, "tp"),
        ),
        compile_module(
            jax.shard_map(
                lambda a: lax.psum_scatter(a, "dp", tiled=True),
                mesh=mesh, in_specs=P("tp", "dp"), out_specs=P(("tp", "dp")),
            ),
            f32(64, 64, sharding=on(mesh, "tp", "dp")),
        ),
        compile_module(
            jax.shard_map(
                lambda a: lax.ppermute(a, "tp", [(i, (i + 1) % 4) for i in range(4)]),
                mesh=mesh, in_specs=P("dp", "tp"), out_specs=P("dp", "tp"),
            ),
            x,
        ),
    ]  # fmt: skip
    found = [op for module in cases for op in collectives(module_costs(module, AXES))]
    assert [(op.collective, op.mesh_axes, op.group_size) for op in found] == [
        ("all-reduce", ("tp",), 4),
        ("all-reduce", ("dp",), 2),
        ("reduce-scatter", ("dp",), 2),
        ("collective-permute", ("tp",), 4),
    ]
    scatter, permute = found[2:]
    assert (scatter.payload_bytes, scatter.wire_bytes) == (16 * 32 * 4, 16 * 32 * 4 // 2)
    assert permute.payload_bytes == permute.wire_bytes == 32 * 16 * 4


def test_d8_a_mesh_whose_devices_are_reordered(make_mesh):
    """x over b then a, gathered along each: the groups' own mesh is a transposed iota, in the proto and in the text."""
    mesh = make_mesh(a=2, b=4)

    def gather(x):
        return lax.with_sharding_constraint(x * 2, on(mesh, None, ("a", "b"), None)) + 1

    compiled = jax.jit(gather).lower(f32(8, 32, 24, sharding=on(mesh, "b", None, "a"))).compile()
    proto = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    for module in (parse_module(proto), parse_text(compiled.as_text())):
        found = collectives(module_costs(module, MeshAxes(("a", "b"), (2, 4))))
        assert [(op.mesh_axes, op.group_size) for op in found] == [(("a",), 2), (("b",), 4)]


def test_all_to_all_and_several_axes_at_once(compile_module, make_mesh):
    mesh = make_mesh(dp=2, tp=4)
    x = f32(64, 64, sharding=on(mesh, ("dp", "tp")))
    exchange = jax.shard_map(
        lambda a: lax.all_to_all(a, "tp", 1, 0, tiled=True),
        mesh=mesh,
        in_specs=P(("dp", "tp")),
        out_specs=P("dp", "tp"),
    )
    (op,) = collectives(module_costs(compile_module(exchange, x), AXES))
    assert (op.collective, op.mesh_axes, op.group_size) == ("all-to-all", ("tp",), 4)
    assert (op.payload_bytes, op.wire_bytes) == (8 * 64 * 4, 8 * 64 * 4 * 3 // 4)
    everyone = jax.shard_map(lambda a: lax.psum(a, ("dp", "tp")), mesh=mesh, in_specs=P(("dp", "tp")), out_specs=P())
    (op,) = collectives(module_costs(compile_module(everyone, x), AXES))
    assert (op.mesh_axes, op.group_size) == (("dp", "tp"), 8)


def test_a_reordered_mesh_names_the_same_axes(compile_module):
    """Groups name positions in the program, not device ids, so the order of a mesh's devices changes nothing."""
    devices = [jax.devices()[i] for i in (0, 2, 1, 3, 4, 6, 5, 7)]
    mesh = jax.sharding.Mesh(np.array(devices).reshape(2, 2, 2), ("a", "b", "c"))
    reduce = jax.shard_map(lambda x: lax.psum(x, "b"), mesh=mesh, in_specs=P("a", "b"), out_specs=P("a"))
    module = compile_module(reduce, Abstract((64, 64), jnp.float32))
    (op,) = collectives(module_costs(module, MeshAxes(("a", "b", "c"), (2, 2, 2))))
    assert (op.mesh_axes, op.groups) == (("b",), ((0, 2), (1, 3), (4, 6), (5, 7)))


HEAD = """
HloModule collectives, num_partitions=8

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}
"""


def in_entry(body: str, before: str = "") -> str:
    entry = "ENTRY %main (x: f32[1024]) -> f32[1024] {\n  %x = f32[1024]{0} parameter(0)"
    return f"{HEAD}\n{before}\n{entry}\n{body}\n}}\n"


def test_d9_malformed_groups_are_named_and_the_rest_is_kept():
    text = in_entry("""
  %bad = f32[1024]{0} all-reduce(%x), channel_id=1, replica_groups=[4,2]<=[12], use_global_device_ids=true, to_apply=%sum
  %worse = f32[1024]{0} all-reduce(%bad), channel_id=2, replica_groups=[4,two], use_global_device_ids=true, to_apply=%sum
  ROOT %good = f32[1024]{0} all-reduce(%worse), channel_id=3, replica_groups=[2,4]<=[8], use_global_device_ids=true, to_apply=%sum
""")  # noqa: E501
    costs = module_costs(parse_text(text), AXES)
    bad, worse, good = collectives(costs)
    assert (bad.group_size, bad.payload_bytes) == (None, 4096)
    assert (worse.group_size, worse.payload_bytes) == (None, 4096)
    assert (good.mesh_axes, good.group_size) == (("tp",), 4)
    assert costs.warnings[0].startswith("bad: group shape 4x2 does not match 12 devices")
    assert costs.warnings[1].startswith("worse: replica_groups=[4,two] cannot be read")


def test_d10_a_collective_behind_an_async_wrapper_counts_once():
    wrapped = """
%ac (p: f32[1024]) -> f32[1024] {
  %p = f32[1024]{0} parameter(0)
  ROOT %hidden = f32[1024]{0} all-reduce(%p), channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%sum
}"""  # noqa: E501
    body = """
  %fusion-start = ((f32[1024]{0}), f32[1024]{0}) async-start(%x), calls=%ac
  ROOT %fusion-done = f32[1024]{0} async-done(%fusion-start), calls=%ac"""
    start, done = module_costs(parse_text(in_entry(body, wrapped)), AXES).ops
    assert (start.collective, start.category, start.payload_bytes) == ("all-reduce", "collective", 4096)
    assert "hidden" in start.contains
    assert (done.collective, done.category, done.payload_bytes) == (None, "collective", 0)


def test_d10_the_short_form_of_an_async_collective():
    """as_text() folds the wrapper away: ``reduce-scatter-start`` stands alone."""
    body = """
  %rs = ((f32[1024]{0}), f32[128]{0}) reduce-scatter-start(%x), channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true, dimensions={0}, to_apply=%sum
  %rs-done = f32[128]{0} reduce-scatter-done(%rs)
  ROOT %ag = f32[1024]{0} all-gather(%rs-done), channel_id=2, replica_groups=[1,8]<=[8], dimensions={0}, use_global_device_ids=true"""  # noqa: E501
    costs = module_costs(parse_text(in_entry(body)), AXES)
    assert [(op.op, op.collective, op.payload_bytes) for op in collectives(costs)] == [
        ("rs", "reduce-scatter", 4096),
        ("ag", "all-gather", 4096),
    ]


def test_d11_a_start_answers_to_its_plain_name_and_integers_count():
    body = """
  %i = s32[8]{0} constant({...})
  %all-gather-start.7 = (s32[8]{0}, s32[64]{0}) all-gather-start(%i), channel_id=1, replica_groups=[1,8]<=[8], dimensions={0}, use_global_device_ids=true
  %all-gather-done.7 = s32[64]{0} all-gather-done(%all-gather-start.7)
  ROOT %c = f32[1024]{0} copy(%x)"""  # noqa: E501
    (op,) = collectives(module_costs(parse_text(in_entry(body)), AXES))
    assert op.payload_bytes == 256
    assert "all-gather.7" in op.contains


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter"])
def test_d12_bandwidths_as_nccl_tests_define_them(kind: str):
    algorithm, bus = bandwidths(kind, 8 * 2**20, 8, 100e-6)
    assert round(algorithm / 1e9, 1) == 83.9
    assert round(bus / 1e9, 1) == 73.4
    assert bandwidths("all-reduce", 1000, 4, 1.0) == (1000, 1500)
    assert bandwidths("collective-permute", 1000, 4, 1.0) == (1000, 1000)


def test_groups_of_one_device_are_free_and_no_groups_means_everyone():
    body = """
  %alone = f32[1024]{0} all-reduce(%x), channel_id=1, replica_groups=[8,1]<=[8], use_global_device_ids=true, to_apply=%sum
  %self = f32[1024]{0} collective-permute(%alone), channel_id=2, source_target_pairs={{0,0},{1,1}}
  %all = f32[1024]{0} all-reduce(%self), channel_id=3, replica_groups={}, to_apply=%sum
  ROOT %replicas = f32[1024]{0} all-reduce(%all), replica_groups={}, to_apply=%sum"""  # noqa: E501
    alone, itself, everyone, replicas = collectives(module_costs(parse_text(in_entry(body)), AXES))
    assert (alone.group_size, alone.wire_bytes, alone.mesh_axes) == (1, 0, ())
    assert (itself.group_size, itself.wire_bytes, itself.mesh_axes) == (1, 0, ())
    assert (everyone.group_size, everyone.mesh_axes) == (8, ("dp", "tp"))
    assert (replicas.group_size, replicas.wire_bytes) == (1, 0), "one replica: its ids are not partitions"


def test_partition_and_replica_ids_become_positions():
    """2 replicas of 4 partitions: position = replica x 4 + partition."""
    text = in_entry("""
  %partitions = f32[1024]{0} all-to-all(%x), channel_id=1, replica_groups={{0,1},{2,3}}, dimensions={0}
  %replicas = f32[1024]{0} all-reduce(%partitions), replica_groups={{0,1}}, to_apply=%sum
  ROOT %both = f32[1024]{0} all-reduce(%replicas), channel_id=2, replica_groups={{0},{1}}, to_apply=%sum""")
    text = text.replace("num_partitions=8", "replica_count=2, num_partitions=4")
    partitions, replicas, both = collectives(module_costs(parse_text(text), AXES))
    assert partitions.groups == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert replicas.groups == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert both.groups == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_send_and_recv_carry_their_pairs():
    """The form in which collectives cross TPU slices."""
    body = """
  %token = token[] after-all()
  %send = (f32[1024]{0}, u32[], token[]) send(%x, %token), channel_id=1, is_host_transfer=true, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,4},{1,5}}"}
  %sent = token[] send-done(%send), channel_id=1, is_host_transfer=true
  %recv = (f32[1024]{0}, u32[], token[]) recv(%token), channel_id=2, is_host_transfer=true
  %received = (f32[1024]{0}, token[]) recv-done(%recv), channel_id=2, is_host_transfer=true
  ROOT %r = f32[1024]{0} get-tuple-element(%received), index=0"""  # noqa: E501
    send, recv = collectives(module_costs(parse_text(in_entry(body)), AXES))
    assert (send.collective, send.payload_bytes, send.wire_bytes, send.mesh_axes) == ("send", 4096, 4096, ("dp",))
    assert (recv.collective, recv.payload_bytes, recv.wire_bytes) == ("recv", 4096, 0)
