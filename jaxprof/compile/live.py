"""Compiles for the devices that are here."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, Sharding

from jaxprof.compile.advice import check_divisible, explained
from jaxprof.compile.arguments import arguments_of, leaf_paths
from jaxprof.compile.diagnostics import Compilation, watch_compilation
from jaxprof.compile.executable import Executable
from jaxprof.compile.figures import memory_stats, xla_cost
from jaxprof.compile.owners import owner_by_name
from jaxprof.errors import UserError
from jaxprof.hlo.module import parse_module
from jaxprof.hlo.program import MeshAxes, Owner, Program
from jaxprof.workloads.workload import Workload


def compile_workload(workload: Workload, compiler_options: Mapping[str, Any] | None = None) -> Executable:
    """Compiles a workload's step for the devices of its shardings, without running it.

    Raises UserError where a sharding does not fit, with what to write instead.
    """
    options = {} if workload.out_shardings is None else {"out_shardings": workload.out_shardings}
    jitted = jax.jit(workload.function, donate_argnums=workload.donate_argnums, **options)
    return _compile(
        jitted,
        workload.arguments,
        {},
        mesh=workload.mesh,
        name=workload.facts.name,
        owner=lambda path, _: workload.owners(path),
        compiler_options=compiler_options,
    )


def compile_function(
    function: Callable[..., Any],
    *args: Any,
    mesh: Mesh | None = None,
    name: str | None = None,
    donate_argnums: int | tuple[int, ...] = (),
    owners: Callable[[str], Owner] = owner_by_name,
    compiler_options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Executable:
    """Compiles any function for the devices that are here, without running it.

    ``function`` is plain, or already jitted (``jax.jit``, ``jax.pmap``, ``nnx.jit``) with its own donation and
    shardings. Arguments are arrays or ``jax.ShapeDtypeStruct``, with or without shardings. ``mesh`` stands around
    tracing, for bare PartitionSpecs. ``owners`` gives the owner of an argument by its path (``params.layers.q``); by
    default the names in it say it.

    Raises UserError where a sharding does not fit, or for donation given twice.
    """
    jitted = hasattr(function, "lower")
    if jitted and donate_argnums != ():
        raise UserError("the function is jitted already: give donate_argnums to its jax.jit", where="donate_argnums")
    if not jitted and not callable(function):
        raise UserError(f"expected a function, got {type(function).__name__}; pass the function itself, not its result")
    return _compile(
        function if jitted else jax.jit(function, donate_argnums=donate_argnums),
        args,
        kwargs,
        mesh=mesh,
        name=name or getattr(function, "__name__", type(function).__name__),
        owner=lambda _, shown: owners(shown),
        compiler_options=compiler_options,
    )


def _compile(
    jitted: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    mesh: Mesh | None,
    name: str,
    owner: Callable[[str, str], Owner],
    compiler_options: Mapping[str, Any] | None,
) -> Executable:
    jax.devices()  # a backend that cannot start says so on standard error, which must not be captured
    given = jax.tree_util.tree_flatten_with_path((args, dict(kwargs)))[0]
    check_divisible((jax.tree_util.keystr(path[1:], simple=True, separator="."), leaf) for path, leaf in given)
    context = jax.set_mesh(mesh) if mesh is not None else nullcontext()
    with explained(mesh or _mesh_of(getattr(leaf, "sharding", None) for _, leaf in given)), context:
        with warnings.catch_warnings():
            # A finding says this with the bytes and the reason.
            warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
            lowered = jitted.lower(*args, **kwargs)
        with watch_compilation() as compilation:
            call = lowered.compile(dict(compiler_options)) if compiler_options else lowered.compile()
    lowered, compiled = getattr(lowered, "lowered", lowered), getattr(call, "compiled", call)  # nnx.jit wraps both
    program = _program(jitted, args, kwargs, lowered, compiled, name, mesh, owner, compilation)
    return Executable(program, call, compiled)


def _program(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    lowered: Any,
    compiled: Any,
    name: str,
    mesh: Mesh | None,
    owner: Callable[[str, str], Owner],
    compilation: Compilation,
) -> Program:
    module_bytes = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    entry = parse_module(module_bytes).entry
    infos = jax.tree.leaves(lowered.args_info)
    shardings = jax.tree.leaves(compiled.input_shardings, is_leaf=lambda leaf: leaf is None)
    leaves = jax.tree.leaves((args, dict(kwargs)))
    arguments = arguments_of(
        leaf_paths(function, args, kwargs, lowered.args_info),
        infos,
        shardings,
        leaves if len(leaves) == len(infos) else [None] * len(infos),
        owner,
        parameters=sum(len(list(parameter.shape.leaves())) for parameter in entry.parameters().values()),
    )
    all_shardings = [sharding for sharding in (*shardings, *jax.tree.leaves(compiled.output_shardings)) if sharding]
    devices = max((sharding.device_set for sharding in all_shardings), key=len, default={jax.devices()[0]})
    device = next(iter(devices))
    analysis = compiled.memory_analysis()
    return Program(
        name=name,
        hlo_module=module_bytes,
        num_devices=len(devices),
        mesh=_axes(mesh if mesh is not None and mesh.size == len(devices) else _mesh_of(all_shardings)),
        platform=device.platform,
        device_kind=device.device_kind,
        arguments=arguments,
        buffer_assignment=getattr(analysis, "serialized_buffer_assignment_proto", None) or None,
        memory=memory_stats(
            analysis, sum(argument.device_bytes for argument in arguments if argument.parameter is not None)
        ),
        xla_cost=xla_cost(compiled.cost_analysis()),
        compile_s=compilation.seconds,
        compile_cached=compilation.cached,
        diagnostics=tuple(compilation.diagnostics),
    )


def _mesh_of(shardings: Iterable[Sharding | None]) -> Mesh | None:
    """The mesh with most axes among the shardings. JAX lets no two with another order of devices into one program."""
    meshes = [sharding.mesh for sharding in shardings if isinstance(sharding, NamedSharding)]
    concrete = [mesh for mesh in meshes if isinstance(mesh, Mesh) and mesh.size > 1]
    return max(concrete, key=lambda mesh: len(mesh.axis_names), default=None)


def _axes(mesh: Mesh | None) -> MeshAxes | None:
    return MeshAxes(tuple(map(str, mesh.axis_names)), tuple(mesh.devices.shape)) if mesh is not None else None
