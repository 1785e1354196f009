"""``jaxprof.inspect``: what the compiler made of a function, without running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jax.sharding import Mesh

from jaxprof.attribution.analysis import analyze
from jaxprof.attribution.facts import StepFacts
from jaxprof.compile.live import compile_function
from jaxprof.compile.owners import owner_by_name
from jaxprof.hardware.book import device_of_kind
from jaxprof.hardware.calibration import load_calibration
from jaxprof.hlo.buffers import memory_by_owner
from jaxprof.hlo.costs import module_costs
from jaxprof.hlo.findings import findings
from jaxprof.hlo.module import parse_module
from jaxprof.hlo.op_cost import DeclaredCost
from jaxprof.hlo.program import Owner
from jaxprof.report.report import Report


def inspect(
    function: Callable[..., Any],
    *args: Any,
    mesh: Mesh | None = None,
    name: str | None = None,
    donate_argnums: int | tuple[int, ...] = (),
    owners: Callable[[str], Owner] = owner_by_name,
    declared: Mapping[str, DeclaredCost] | None = None,
    trip_counts: Mapping[str, int] | None = None,
    **kwargs: Any,
) -> Report:
    """Compile ``function(*args, **kwargs)`` for the devices that are here and report on it, without running it.

    ``function`` is plain or jitted (``jax.jit``, ``nnx.jit``, ``jax.pmap``); arguments are arrays or
    ``jax.ShapeDtypeStruct``, with or without shardings. The report has FLOPs (of one call over all devices), bytes and
    collectives by mesh axis per instruction, memory by owner, and warnings.

    ``mesh`` stands around tracing, for bare PartitionSpecs. ``owners`` gives the owner of an argument by its path
    (``params.layers.q``); by default the names in it decide. ``declared`` gives the cost of kernels that the compiler
    does not see into, by name; ``trip_counts`` the iterations of loops whose length depends on data, by the name of the
    ``while`` instruction as the report's warnings have it. A function that has keyword arguments of these names takes
    them through ``functools.partial``.

    Raises UserError where a sharding does not fit its argument or the devices.
    """
    executable = compile_function(
        function, *args, mesh=mesh, name=name, donate_argnums=donate_argnums, owners=owners, **kwargs
    )
    program = executable.program
    module = parse_module(program.hlo_module)
    costs = module_costs(module, program.mesh, declared=declared or {}, trip_counts=trip_counts or {})
    is_cpu = program.platform == "cpu"
    analysis = analyze(
        program,
        costs,
        device=load_calibration(program.num_devices) if is_cpu else device_of_kind(program.device_kind),
        facts=StepFacts(name=program.name, step="function"),
        memory=memory_by_owner(program, costs),
        warnings=findings(program, module, costs),
    )
    return Report(analysis=analysis, program=program, hlo_text=executable.compiled.as_text())
