"""Measure a configured run from end to end: build, compile, time, trace, analyse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from jaxprof.attribution.analysis import analyze
from jaxprof.compile.live import compile_workload
from jaxprof.config.check import check_devices, check_run
from jaxprof.config.load import to_dict
from jaxprof.config.schema import RunConfig
from jaxprof.errors import Refused, UserError
from jaxprof.hardware.book import device_of_kind
from jaxprof.hardware.calibration import read_calibration, save_calibration
from jaxprof.hardware.device import DeviceSpec
from jaxprof.hlo.buffers import memory_by_owner
from jaxprof.hlo.costs import module_costs
from jaxprof.hlo.findings import findings
from jaxprof.hlo.module import parse_module
from jaxprof.hlo.program import Program
from jaxprof.measure.calibrate import calibrate
from jaxprof.measure.run import measure
from jaxprof.report.report import Report
from jaxprof.report.text import size
from jaxprof.trace.read import UnreadDevices, read_timeline
from jaxprof.workloads.build import build_workload
from jaxprof.workloads.mesh import build_mesh

Progress = Callable[[str], None]


def profile(config: RunConfig, *, progress: Progress | None = None) -> Report:
    """Run ``config`` on the devices that are here and return what was found.

    ``progress`` is called with a short text as each stage begins. Raises UserError where the mesh needs more devices
    than there are, and Refused where the compiled step needs more memory than a device has: nothing has run then.
    """
    say = progress or (lambda text: None)
    check_run(config)
    devices = _devices(config)
    mesh = build_mesh(config.mesh, devices)

    say(f"building {config.name}")
    workload = build_workload(config, mesh)
    say("compiling")
    executable = compile_workload(workload)
    program = executable.program
    module = parse_module(program.hlo_module)
    costs = module_costs(module, program.mesh, step=config.step.kind)
    memory = memory_by_owner(program, costs)
    device, device_warnings = _device_spec(program, say)
    _check_memory(config.name, memory.peak_bytes, program.num_devices, device)

    measurement = measure(executable, workload, config.measure, progress=say)

    timeline = None
    unread: tuple[str, ...] = ()
    if measurement.xspace is not None:
        say("reading the trace")
        try:
            timeline = read_timeline(measurement.xspace, {costs.module: costs}, num_devices=program.num_devices)
        except UnreadDevices as error:
            unread = (f"times per op are unknown: {error}; it is kept in the run's trace/ folder",)

    say("attributing")
    analysis = analyze(
        program,
        costs,
        device=device,
        facts=workload.facts,
        timeline=timeline,
        timing=measurement.timing,
        memory=memory,
        warnings=(*unread, *device_warnings, *measurement.notes, *findings(program, module, costs)),
    )
    return Report(
        analysis=analysis,
        program=program,
        timeline=timeline,
        config=to_dict(config),
        trace=measurement.xspace,
        hlo_text=executable.compiled.as_text(),
    )


def _devices(config: RunConfig) -> list[Any]:
    """The devices of the mesh: all accelerators where enough are here, else as many of the CPU's (simulated) ones."""
    needed = config.mesh.data * config.mesh.fsdp * config.mesh.tensor
    wanted = config.measure.platform
    platforms = dict.fromkeys([jax.default_backend(), "cpu"]) if wanted == "auto" else [wanted]
    found = {}
    for platform in platforms:
        try:
            devices = jax.devices(platform)
        except RuntimeError:
            devices = []
        if platform == "cpu" and len(devices) >= needed:
            return devices[:needed]
        if len(devices) >= needed:
            check_devices(config, len(devices))
            return devices
        found[platform] = len(devices)
    here = " and ".join(f"{count} {platform}" for platform, count in found.items())
    raise UserError(
        f"the mesh needs {needed} devices, and JAX has started with {here}; call "
        f"jaxprof.measure.flags.simulate_devices({needed}) before JAX is imported, or write a smaller mesh",
        where="mesh",
    )


def _device_spec(program: Program, say: Progress) -> tuple[DeviceSpec | None, tuple[str, ...]]:
    """Peaks to hold the step against, with warnings: the hardware book's, or this machine's calibration for a
    simulated mesh, made on first need."""
    if program.platform != "cpu":
        spec = device_of_kind(program.device_kind)
        unknown = f"no peak is known for device kind {program.device_kind!r}: MFU and roofline figures are unknown"
        return spec, (unknown,) if spec is None else ()
    stored = read_calibration(program.num_devices)
    warnings = (stored.warning,) if stored.warning else ()
    if stored.spec is not None:
        return stored.spec, warnings
    spec = calibrate(program.num_devices, progress=say)
    save_calibration(spec, program.num_devices)
    return spec, warnings


def _check_memory(name: str, peak_bytes: int | None, devices: int, device: DeviceSpec | None) -> None:
    """Raises Refused where it does not fit: simulated devices would take all of the machine's memory before failing."""
    if device is None or device.hbm_bytes is None or peak_bytes is None or peak_bytes <= device.hbm_bytes:
        return
    raise Refused(
        f"{name} does not fit: at its peak it holds {size(peak_bytes)} on each of {devices} devices, and a "
        f"{device.name} has {size(device.hbm_bytes)}; write a smaller step.batch, model.remat=full or a larger mesh"
    )
