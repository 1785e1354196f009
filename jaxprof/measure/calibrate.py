"""Measures what one simulated device can do, so that a CPU mesh has a roofline."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxprof.compile.live import compile_function
from jaxprof.errors import UserError
from jaxprof.hardware.device import DeviceSpec
from jaxprof.hlo.costs import module_costs
from jaxprof.hlo.module import parse_module
from jaxprof.measure.capture import Progress, trace
from jaxprof.trace.read import read_timeline

_AXIS = "device"
_QUANTILE = 0.95
"""Of the rates of all executions. The very best one can be an accident of the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    """What each device runs on its own shard, and the work that one execution is."""

    name: str
    figure: str
    """Which figure of the DeviceSpec its rate bounds: a dtype, ``memory`` or ``link``."""
    function: Callable[..., jax.Array]
    shapes: tuple[tuple[int, ...], ...]
    dtype: Any
    work: float
    """FLOPs or bytes on one device."""


def calibrate(devices: int, progress: Progress | None = None) -> DeviceSpec:
    """The peaks and bandwidths of one of ``devices`` simulated CPU devices, in about ten seconds.

    All devices run the same kernel at once, and each execution's own time is read from a trace, just as the times of a
    profiled program are. A figure is the rate of the fastest executions, over several sizes: what a device reaches
    **while it has the cores**. That makes it a ceiling for single ops. The devices share the cores, so together they
    cannot reach it: MFU on a simulated mesh stays below cores / devices, and the rest of the time shows up as waiting
    and idle, which is what a device without a core does. Small sizes are in cache, as a small model's arrays are, so
    the memory figure lies above the bandwidth of the machine's DRAM.

    Raises UserError where JAX has fewer CPU devices.
    """
    found = jax.devices("cpu")
    if len(found) < devices:
        raise UserError(f"calibrating {devices} devices needs as many, but JAX has {len(found)} CPU devices")
    mesh = Mesh(np.array(found[:devices]), (_AXIS,))
    kernels = tuple(_kernels(devices))
    best: dict[str, float] = {}
    for number, kernel in enumerate(kernels, start=1):
        if progress:
            progress(f"calibrating this machine, {number} of {len(kernels)}: {kernel.name}")
        best[kernel.figure] = max(best.get(kernel.figure, 0.0), _rate_per_s(kernel, mesh))
    cores = _cores()
    return DeviceSpec(
        name=f"cpu-mesh:{devices} device",
        peak_flops_per_s={dtype: best[dtype] for dtype in ("f32", "bf16")},
        hbm_bytes_per_s=best["memory"],
        hbm_bytes=_memory_bytes() / devices,
        link_bytes_per_s={"shared memory": best["link"]} if "link" in best else {},
        provenance="measured",
        source=f"calibration of this machine: {cores} cores, jax {jax.__version__}",
        notes=(
            f"{devices} simulated devices share {cores} cores: a device reaches these rates only while it has the "
            f"cores, and all together at most {min(1.0, cores / devices):.0%} of their sum",
        ),
    )


def _kernels(devices: int) -> Iterator[_Kernel]:
    for dtype, name, sizes in ((jnp.float32, "f32", (256, 512)), (jnp.bfloat16, "bf16", (256, 512, 1024))):
        for n in sizes:
            yield _Kernel(
                name=f"{name} matmul {n}",
                figure=name,
                function=lambda a, b: a @ b,
                shapes=((n, n), (n, n)),
                dtype=dtype,
                work=2 * n**3,
            )
    for kib in (16, 64, 256, 2048):
        count, size = kib * 256, kib * 1024
        yield _Kernel(
            name=f"stream triad {kib} KiB",
            figure="memory",
            function=lambda a, b: a + 2 * b,
            shapes=((count,), (count,)),
            dtype=jnp.float32,
            work=3 * size,
        )
        yield _Kernel(
            name=f"copy {kib} KiB",
            figure="memory",
            function=lambda a: jnp.roll(a, len(a) // 2),
            shapes=((count,),),
            dtype=jnp.float32,
            work=2 * size,
        )
    for kib in (256, 4096) if devices > 1 else ():
        yield _Kernel(
            name=f"all-reduce {kib} KiB",
            figure="link",
            function=lambda a: jax.lax.psum(a, _AXIS),
            shapes=((kib * 256,),),
            dtype=jnp.float32,
            work=2 * kib * 1024 * (devices - 1) / devices,  # a ring's, as OpCost.wire_bytes
        )


def _rate_per_s(kernel: _Kernel, mesh: Mesh, repeats: int = 30) -> float:
    """Work per second of the fastest executions, the wait for other devices left out."""
    sharding = NamedSharding(mesh, P(_AXIS))
    arguments = [jax.device_put(jnp.full((mesh.size, *shape), 0.5, kernel.dtype), sharding) for shape in kernel.shapes]
    on_shards = jax.shard_map(
        lambda *shards: kernel.function(*(shard[0] for shard in shards))[None],
        mesh=mesh,
        in_specs=(P(_AXIS),) * len(arguments),
        out_specs=P(_AXIS),
    )
    executable = compile_function(on_shards, *arguments, name=kernel.name)
    module = parse_module(executable.program.hlo_module)
    jax.block_until_ready(executable.call(*arguments))
    with trace(name="calibration") as capture:
        for repeat in range(repeats):
            with jax.profiler.StepTraceAnnotation("repeat", step_num=repeat):
                outputs = executable.call(*arguments)
            jax.block_until_ready(outputs)
    timeline = read_timeline(capture.xspace, {module.name: module_costs(module)})
    busy_s = (
        timeline.intervals.group_by("device", "step")
        .agg(((pl.col("end_ps") - pl.col("start_ps") - pl.col("wait_ps")).sum() / 1e12).alias("busy_s"))["busy_s"]
        .to_numpy()
    )
    return float(np.quantile(kernel.work / busy_s[busy_s > 0], _QUANTILE))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
