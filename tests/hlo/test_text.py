"""HLO text gives the same module as the proto, whatever it spreads over several lines."""

from __future__ import annotations

import dataclasses
import gzip
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax import ShapeDtypeStruct as Abstract
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxprof.errors import UserError
from jaxprof.hlo.costs import module_costs
from jaxprof.hlo.groups import expand
from jaxprof.hlo.module import Module, parse_module
from jaxprof.hlo.program import MeshAxes
from jaxprof.hlo.text import parse_text

DATA = Path(__file__).parents[1] / "data" / "hlo"


def facts(module: Module) -> dict[str, tuple]:
    """Every field of every instruction; groups as what they mean, without configurations (text orders their keys)."""
    rows = {}
    for i in module.instructions():
        fields = {field.name: getattr(i, field.name) for field in dataclasses.fields(i)}
        fields["operands"] = [operand.name for operand in i.operands]
        fields["groups"] = expand(i.groups) if i.groups is not None else None
        del fields["backend_config"]
        rows[i.name] = fields
    return rows


def train(mesh):
    def layer(x, w):
        with jax.named_scope("mlp"):
            return jnp.tanh(x @ w), None

    def loss(w, x):
        return jnp.sum(lax.scan(jax.checkpoint(layer), x, w)[0] ** 2)

    weights = Abstract((4, 64, 64), jnp.float32, sharding=NamedSharding(mesh, P(None, "fsdp", "tensor")))
    x = Abstract((32, 64), jnp.float32, sharding=NamedSharding(mesh, P("fsdp")))
    return jax.jit(lambda w, x: w - jax.grad(loss)(w, x), donate_argnums=0), (weights, x)


def convolve(_mesh):
    def both(x, w):
        y = lax.conv_general_dilated(x, w, (2, 1), [(1, 0), (2, 2)], (1, 1), (1, 2), ("NHWC", "HWIO", "NHWC"))
        return y, lax.reduce_window(y, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")

    return jax.jit(both), (Abstract((2, 8, 8, 4), jnp.float32), Abstract((3, 3, 4, 8), jnp.float32))


def branch(_mesh):
    def choose(i, x, table):
        y = lax.switch(i, [lambda x: x @ x, jnp.sin, lambda x: jnp.fft.fft(x).real], x)
        return lax.while_loop(lambda c: c[0] < i, lambda c: (c[0] + 1, c[1] @ x), (0, y))[1] + table[i]

    x = Abstract((16, 16), jnp.float32)
    return jax.jit(choose), (Abstract((), jnp.int32), x, Abstract((5, 16), jnp.float32))


def library(_mesh):
    def calls(x):
        y = jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct((8, 8), jnp.float32), jnp.linalg.cholesky(x))
        with jax.named_scope('quotes "and" é {braces} /slash'):
            return lax.top_k(y @ y, 3), jnp.array([[1, -2], [3, 4]]), jnp.sort(y)

    return jax.jit(calls), (Abstract((8, 8), jnp.float32),)


def route(mesh):
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]

    def exchange(x):
        y = lax.ppermute(lax.psum_scatter(x, "tensor", tiled=True), "fsdp", ring)
        return lax.all_to_all(lax.all_gather(y, "tensor", tiled=True), "fsdp", 1, 0, tiled=True)

    mapped = jax.shard_map(exchange, mesh=mesh, in_specs=P(None, "fsdp"), out_specs=P("fsdp"), check_vma=False)
    return jax.jit(mapped), (Abstract((16, 64), jnp.float32),)


@pytest.mark.parametrize("program", [train, convolve, branch, library, route])
def test_text_and_proto_give_the_same_module_and_costs(program, make_mesh):
    function, arguments = program(make_mesh(fsdp=4, tensor=2))
    compiled = function.lower(*arguments).compile()
    hlo = compiled.runtime_executable().hlo_modules()[0]
    from_proto, from_text = parse_module(hlo.as_serialized_hlo_module_proto()), parse_text(compiled.as_text())
    assert facts(from_text) == facts(from_proto)
    assert from_text.frames == from_proto.frames
    assert from_text.aliases == from_proto.aliases
    assert (from_text.replicas, from_text.partitions) == (from_proto.replicas, from_proto.partitions)
    axes = MeshAxes(("fsdp", "tensor"), (4, 2))
    assert module_costs(from_text, axes) == module_costs(from_proto, axes)


HARD = """
HloModule hard, input_output_alias={ {0}: (1, {}, may-alias), {1}: (0, {2}) }

FileNames
1 "/home/me/train.py"

FunctionNames
1 "main"

FileLocations
1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=4 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY %main (x: f32[2,2], y: f32[2,2]) -> (f32[2,2], f32[2,2]) {
  %x = f32[2,2]{1,0} parameter(0)
  %y = f32[2,2]{1,0} parameter(1)
  %table = f32[2,2]{1,0} constant({
    { 1, 2 },
    { 3, 4 }
  })
  %kernel = f32[2,2]{1,0} custom-call(%x, /*index=1*/%table), custom_call_target="tpu_custom_call", frontend_attributes={kernel_metadata={
"blocks": "} {"
}}, metadata={op_name="jit(f)/mlp/odd \\"name\\" \\303\\251" stack_frame_id=1}, backend_config={"custom_call_config":{"cost_estimate":{"flops":"77"}}}
  ROOT %both = (f32[2,2]{1,0}, f32[2,2]{1,0}) tuple(%kernel, %y)
}
"""  # noqa: E501


def test_lines_that_start_with_a_brace_end_nothing():
    module = parse_text(HARD)
    assert [i.name for i in module.entry.instructions] == ["x", "y", "table", "kernel", "both"]
    (kernel,) = module_costs(module).ops
    assert kernel.flops == {"f32": 77}
    assert kernel.scope == 'jit(f)/mlp/odd "name" é'
    assert kernel.source == "/home/me/train.py:12"
    assert [(a.output_index, a.operand, a.operand_index) for a in module.aliases] == [((0,), 1, ()), ((1,), 0, (2,))]


@pytest.mark.parametrize(
    "text", ["", "not HLO", "HloModule empty\n", "HloModule cut\n\nENTRY %main (x: f32[2]) -> f32[2] {\n"]
)
def test_text_that_is_no_module_is_refused(text: str):
    with pytest.raises(UserError, match="HLO text"):
        parse_text(text)


def test_an_operand_that_does_not_exist_is_named():
    text = "HloModule m\n\nENTRY %main () -> f32[2] {\n  ROOT %a = f32[2]{0} negate(%gone)\n}\n"
    with pytest.raises(UserError, match="instruction a uses 'gone'"):
        parse_text(text)


@pytest.mark.parametrize("data", [b"", b"\xff\xff\xff", b"HloModule text"])
def test_bytes_that_are_no_module_are_refused(data: bytes):
    with pytest.raises(UserError, match="HLO module"):
        parse_module(data)


def test_a_dump_with_its_buffer_assignment_holds_the_same_module():
    """An HloProto has the module in its field 1."""
    data = gzip.decompress((DATA / "reduce_scatter_v5e.pb.gz").read_bytes())
    length, prefix = len(data), bytearray([0x0A])
    while length > 127:
        prefix.append(length & 127 | 128)
        length >>= 7
    prefix.append(length)
    assert facts(parse_module(bytes(prefix) + data)) == facts(parse_module(data))
