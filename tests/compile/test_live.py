"""A compiled program as plain data: its arguments, mesh and module, for every kind of function."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxprof.attribution.facts import StepFacts
from jaxprof.compile.live import compile_function, compile_workload
from jaxprof.errors import UserError
from jaxprof.hlo.module import parse_module
from jaxprof.hlo.program import MeshAxes
from jaxprof.workloads.workload import Workload

S = jax.ShapeDtypeStruct
f32 = jnp.float32


def test_arguments_have_names_global_shapes_and_bytes_on_a_device(mesh24: Mesh) -> None:
    def step(params, tokens, *, scale):
        return (params["layers"]["w"] * scale)[tokens]

    w = S((64, 32), jnp.bfloat16, sharding=NamedSharding(mesh24, P("tp")))
    tokens = S((8,), jnp.int32, sharding=NamedSharding(mesh24, P("dp")))
    program = compile_function(step, {"layers": {"w": w}}, tokens, scale=S((), f32)).program
    weights, ids, scale = program.arguments
    assert (weights.path, ids.path, scale.path) == ("params.layers.w", "tokens", "scale")
    assert (weights.dtype, weights.shape, weights.device_bytes, weights.replicas) == ("bf16", (64, 32), 1024, 2)
    assert (ids.dtype, ids.device_bytes, ids.replicas) == ("s32", 16, 4)
    assert (weights.owner, ids.owner, scale.owner) == ("parameters", "batch", "other arguments")
    assert program.mesh == MeshAxes(("dp", "tp"), (2, 4))
    assert (program.num_devices, program.platform) == (8, "cpu")


def test_parameter_numbers_skip_unused_arguments() -> None:
    """C7: an unused argument takes no part in the compiled program."""
    program = compile_function(lambda a, b, c: a + c, S((2,), f32), S((3,), f32), S((2,), f32)).program
    assert [argument.parameter for argument in program.arguments] == [0, None, 1]
    shapes = {n: p.shape.dims for n, p in parse_module(program.hlo_module).entry.parameters().items()}
    assert shapes == {0: (2,), 1: (2,)}


@pytest.mark.parametrize(
    ("dtype", "hlo", "size"),
    [(jnp.bool_, "pred", 16), (jnp.int4, "s4", 8), (jnp.float8_e4m3fn, "f8e4m3fn", 16), (jnp.complex64, "c64", 128)],
)
def test_dtypes_in_hlo_spelling(dtype, hlo: str, size: int) -> None:
    (argument,) = compile_function(lambda x: x.T, S((4, 4), dtype)).program.arguments
    assert (argument.dtype, argument.device_bytes) == (hlo, size)


def test_random_key_is_what_lies_in_memory() -> None:
    (key,) = compile_function(lambda k: jax.random.normal(k, (3,)), jax.random.key(0)).program.arguments
    assert (key.dtype, key.shape, key.device_bytes) == ("u32", (2,), 8)


def test_workload_states_owners_by_path(mesh8: Mesh) -> None:
    asked = []

    def owners(path: str):
        asked.append(path)
        return "kv cache" if path.startswith("1.") else "parameters"

    sharded = NamedSharding(mesh8, P("x"))
    workload = Workload(
        facts=StepFacts(name="tiny", step="decode"),
        function=lambda params, cache: (params["w"].sum(), {"k": cache["k"] + 1}),
        arguments=({"w": S((8, 4), f32, sharding=sharded)}, {"k": S((8, 4), f32, sharding=sharded)}),
        owners=owners,
        out_shardings=(NamedSharding(mesh8, P()), {"k": sharded}),
        donate_argnums=(1,),
        mesh=mesh8,
    )
    executable = compile_workload(workload)
    assert asked == ["0.w", "1.k"]
    assert [(a.path, a.owner, a.donated) for a in executable.program.arguments] == [
        ("params.w", "parameters", False),
        ("cache.k", "kv cache", True),
    ]
    assert executable.program.name == "tiny"
    ones = [jax.device_put(np.ones((8, 4), np.float32), sharded) for _ in range(2)]
    total, cache = executable.call({"w": ones[0]}, {"k": ones[1]})
    assert (float(total), float(cache["k"].sum())) == (32.0, 64.0)


def test_function_jitted_with_its_own_donation_and_static_arguments() -> None:
    program = compile_function(jax.jit(lambda n, x: x * n, static_argnums=0, donate_argnums=1), 3, jnp.ones(5)).program
    (argument,) = program.arguments
    assert (argument.shape, argument.donated, argument.parameter) == ((5,), True, 0)


def test_shard_map_without_shardings_on_its_arguments_finds_its_mesh(mesh8: Mesh) -> None:
    mapped = jax.shard_map(lambda a: jax.lax.psum(a, "x"), mesh=mesh8, in_specs=P("x"), out_specs=P())
    program = compile_function(lambda a: mapped(a).sum(), S((16, 4), f32)).program
    assert program.mesh == MeshAxes(("x",), (8,))
    assert program.arguments[0].device_bytes == 2 * 4 * 4


def test_pmap() -> None:
    program = compile_function(jax.pmap(lambda a: jax.lax.psum(a, "i"), axis_name="i"), S((8, 4), f32)).program
    assert program.num_devices == 8
    assert program.arguments[0].device_bytes == 16


def test_nnx_jit_keeps_the_names_of_a_modules_variables() -> None:
    @nnx.jit
    def step(model, optimizer, x):
        gradients = nnx.grad(lambda model: (model(x) ** 2).sum())(model)
        optimizer.update(model, gradients)

    model = nnx.Linear(16, 32, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
    executable = compile_function(step, model, optimizer, S((4, 16), f32))
    by_path = {argument.path: argument for argument in executable.program.arguments}
    assert by_path["model.kernel"].device_bytes == 16 * 32 * 4
    assert by_path["model.kernel"].owner == "parameters"
    assert by_path["optimizer.opt_state.0.mu.kernel"].owner == "optimizer state"
    executable.call(model, optimizer, jnp.ones((4, 16)))


def test_bare_partition_specs_take_the_given_mesh(mesh24: Mesh) -> None:
    def constrained(x):
        return jax.lax.with_sharding_constraint(x * 2, P("dp"))

    program = compile_function(constrained, S((8, 8), f32), mesh=mesh24).program
    assert program.mesh == MeshAxes(("dp", "tp"), (2, 4))


def test_mesh_in_another_order_than_the_devices_ids() -> None:
    """The order of a mesh's devices is the order of the program's, whatever their ids."""
    turned = Mesh(np.array(jax.devices()).reshape(2, 4).T, ("tp", "dp"))
    x = S((8, 8), f32, sharding=NamedSharding(turned, P("tp", "dp")))
    executable = compile_function(lambda x: x.sum(0), x)
    assert executable.program.mesh == MeshAxes(("tp", "dp"), (4, 2))
    assert executable.compiled.runtime_executable().local_devices() == list(turned.devices.flat)


def test_c6_same_buffer_donated_twice_and_donated_buffer_used_again() -> None:
    both = compile_function(jax.jit(lambda x, y: x + y, donate_argnums=(0, 1)), S((8,), f32), S((8,), f32))
    z = jnp.ones(8)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"INVALID_ARGUMENT.*argument 1"):
        jax.block_until_ready(both.call(z, z))
    one = compile_function(jax.jit(lambda x: x + 1, donate_argnums=0), S((8,), f32))
    used = jnp.ones(8)
    one.call(used)
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        one.call(used)


def test_donation_given_twice_is_refused() -> None:
    with pytest.raises(UserError, match="jitted already"):
        compile_function(jax.jit(lambda x: x), S((2,), f32), donate_argnums=0)


def test_result_passed_instead_of_function_is_refused() -> None:
    with pytest.raises(UserError, match="expected a function, got float"):
        compile_function(3.0)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_f6_entry_points_that_are_gone_are_not_needed() -> None:
    """Old recipes fail in current JAX; nothing here uses them."""
    assert not hasattr(jax, "xla_computation")
    assert not hasattr(jax.sharding, "PositionalSharding")
    with pytest.raises(ImportError):
        from jax.experimental import maps  # noqa: F401
