"""Reads a profiler trace into a timeline, whatever devices it is of."""

from __future__ import annotations

from collections.abc import Mapping

from jaxprof.errors import UserError
from jaxprof.hlo.op_cost import ModuleCosts
from jaxprof.trace.cpu import CPU_STATS, cpu_timeline
from jaxprof.trace.timeline import Timeline
from jaxprof.trace.tpu import TPU_STATS, is_tpu_plane, tpu_timeline
from jaxprof.trace.xspace import read_space


class UnreadDevices(UserError):
    """The trace is whole, but of devices whose planes are not understood yet."""


def read_timeline(xspace: bytes, costs: Mapping[str, ModuleCosts], *, num_devices: int | None = None) -> Timeline:
    """The timeline of a trace, from serialized XSpace bytes.

    ``costs`` by HLO module name give the replica groups of collectives and the executions by which incomplete steps are
    found; programs without costs are read too. ``num_devices`` lets missing devices be named. Raises UserError for what
    is no trace, or holds no ops, and UnreadDevices for what another reader may understand.
    """
    space = read_space(xspace, {**CPU_STATS, **TPU_STATS})
    devices = [plane.name for plane in space.planes if plane.name.startswith("/device:") and plane.events.height]
    if any(is_tpu_plane(name) for name in devices):
        return tpu_timeline(space, costs, num_devices)
    if devices:
        raise UnreadDevices(
            f"the trace is of {devices[0]}, and this version reads traces of CPU meshes and TPUs; "
            "`tensorboard --logdir` opens it"
        )
    return cpu_timeline(space, costs, num_devices)
