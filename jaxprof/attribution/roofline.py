"""The least time that one execution of an op can take on a device, and the resource that sets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from jaxprof.hardware.device import DeviceSpec
from jaxprof.hlo.op_cost import OpCost

Resource = Literal["compute", "hbm", "collective", "host", "control"]

_COMPUTES = ("matmul", "convolution", "attention")
_GPUS_IN_A_HOST = 8
_LINKS = {"tpu": ("ici",), "gpu": ("nvlink", "pcie"), "cpu": ("shared memory",)}
"""Links inside one host or slice by platform, the fastest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Seconds of one execution on one device at full speed; None where a peak or the work is unknown."""

    compute_s: float | None
    """FLOPs / dense peak of their operands' dtype."""
    hbm_s: float | None
    link: str | None
    link_s: float | None
    resource: Resource
    """What the op keeps busy: decides where its time stands in the step breakdown."""


def price(cost: OpCost, device: DeviceSpec | None, *, platform: str, num_devices: int) -> Price:
    """The roofline of one op."""
    compute_s = None if cost.unknown else compute_time_s(cost.flops, device)
    hbm_s = None
    if device is not None and device.hbm_bytes_per_s is not None:
        hbm_s = (cost.hbm_bytes_read + cost.hbm_bytes_written) / device.hbm_bytes_per_s
    link = link_of(cost, platform=platform, device=device, num_devices=num_devices)
    speed = device.link_bytes_per_s.get(link) if device is not None and link is not None else None
    return Price(
        compute_s=compute_s,
        hbm_s=hbm_s,
        link=link,
        link_s=cost.wire_bytes / speed if speed and cost.collective is not None else None,
        resource=_resource(cost, compute_s, hbm_s),
    )


def compute_time_s(flops: Mapping[str, float], device: DeviceSpec | None) -> float | None:
    """Seconds for FLOPs by dtype, each at its own dense peak; None where one has none."""
    if device is None or any(dtype not in device.peak_flops_per_s for dtype, count in flops.items() if count):
        return None
    return sum(count / device.peak_flops_per_s[dtype] for dtype, count in flops.items() if count)


def link_of(cost: OpCost, *, platform: str, device: DeviceSpec | None, num_devices: int) -> str | None:
    """The link that a collective runs over; None where the program does not tell.

    A TPU program sends and receives between slices over the data-centre network and does all else over ICI. Which GPUs
    share a host stands nowhere in a program: beyond one host's worth of them the link is unknown.
    """
    if cost.collective is None:
        return None
    if platform == "tpu" and cost.collective in ("send", "recv"):
        return "dcn"
    if platform == "gpu" and num_devices > _GPUS_IN_A_HOST:
        return None
    links = _LINKS.get(platform, ())
    if device is not None:
        return next((link for link in links if link in device.link_bytes_per_s), links[0] if len(links) == 1 else None)
    return links[0] if len(links) == 1 else None


def _resource(cost: OpCost, compute_s: float | None, hbm_s: float | None) -> Resource:
    """By category for collectives, host work and control flow; else by the longer of compute and HBM time.

    Where one of the two is unknown, matmuls and kernels of unknown cost count as compute and all else as HBM traffic.
    """
    if cost.category in ("collective", "host", "control"):
        return cost.category
    if compute_s is None or hbm_s is None:
        return "compute" if cost.category in _COMPUTES or cost.flops or cost.unknown else "hbm"
    return "compute" if compute_s > 0 and compute_s >= hbm_s else "hbm"
