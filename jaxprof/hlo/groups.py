"""Which devices take part in a collective: the notations of the HLO, and the mesh axes that they stand for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from jaxprof.hlo.program import MeshAxes

Groups: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ListedGroups:
    """``{{0,1},{2,3}}``; no groups at all means one group of everyone."""

    groups: Groups


@dataclass(frozen=True, slots=True)
class IotaGroups:
    """``[2,4]<=[4,2]T(1,0)``: device ids counted up in ``reshape``, transposed, cut into groups."""

    dims: tuple[int, ...]
    """Number of groups, then devices a group."""
    reshape: tuple[int, ...]
    transpose: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MeshGroups:
    """``mesh['a'=2,'b'=4] {'a'}``: devices that differ only in the named axes form a group."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    axes: tuple[tuple[int, int, int], ...]
    """(axis, pre-size, size) of each axis or part, major to minor; a full axis has pre-size 1 and all its size."""
    device_ids: tuple[int, ...] = ()
    """Devices in row-major order of the mesh where that is not simply 0, 1, 2, ..."""


DeviceGroups: TypeAlias = ListedGroups | IotaGroups | MeshGroups


class MalformedGroups(ValueError):
    """A notation that contradicts itself."""


def expand(notation: DeviceGroups) -> Groups:
    """The groups that a notation means. Raises MalformedGroups where its numbers do not fit together."""
    match notation:
        case ListedGroups(groups):
            ids = [device for group in groups for device in group]
            if len(set(ids)) != len(ids):
                raise MalformedGroups("a device stands in two replica groups")
            return groups
        case IotaGroups(dims, reshape, transpose):
            devices, covered = math.prod(reshape), math.prod(dims)
            if covered != devices or len(dims) != 2:
                raise MalformedGroups(f"group shape {'x'.join(map(str, dims))} does not match {devices} devices")
            order = transpose or tuple(range(len(reshape)))
            if sorted(order) != list(range(len(reshape))):
                raise MalformedGroups(f"T({','.join(map(str, order))}) is no order of {len(reshape)} dimensions")
            return _cut(iota_order(reshape, order), dims[1])
        case MeshGroups(names, sizes, axes, device_ids):
            return _expand_mesh(names, sizes, axes, device_ids)


def _expand_mesh(
    names: tuple[str, ...], sizes: tuple[int, ...], axes: tuple[tuple[int, int, int], ...], device_ids: tuple[int, ...]
) -> Groups:
    """Splits each axis where a part of it is named; groups are then iota over the split axes, the named ones minor."""
    devices = math.prod(sizes)
    if device_ids and len(device_ids) != devices:
        raise MalformedGroups(f"{len(device_ids)} device ids for a mesh of {devices} devices")
    split: list[int] = []
    position: dict[tuple[int, int, int], int] = {}
    for axis, size in enumerate(sizes):
        cuts = {1, size}
        for named, before, part in axes:
            if named == axis:
                cuts |= {before, before * part}
        edges = sorted(cuts)
        for low, high in itertools.pairwise(edges):
            if high % low:
                raise MalformedGroups(f"parts of axis {names[axis]!r} do not divide its size {size}")
            position[axis, low, high // low] = len(split)
            split.append(high // low)
    try:
        minor = [position[named] for named in axes if named[2] > 1]
    except KeyError:
        raise MalformedGroups(f"parts of the axes of mesh {dict(zip(names, sizes, strict=True))} overlap") from None
    order = [axis for axis in range(len(split)) if axis not in minor] + minor
    ids = iota_order(tuple(split), tuple(order))
    if device_ids:
        ids = [device_ids[device] for device in ids]
    return _cut(ids, math.prod(split[axis] for axis in minor))


def iota_order(dims: tuple[int, ...], order: tuple[int, ...]) -> list[int]:
    """0, 1, 2, ... in ``dims``, read in row-major order after the axes were put into ``order``."""
    strides = [math.prod(dims[axis + 1 :]) for axis in range(len(dims))]
    ids = [0]
    for axis in order:
        ids = [base + step * strides[axis] for base in ids for step in range(dims[axis])]
    return ids


def _cut(ids: Sequence[int], size: int) -> Groups:
    return tuple(tuple(ids[start : start + size]) for start in range(0, len(ids), size))


def axes_of(groups: Groups, mesh: MeshAxes) -> tuple[str, ...]:
    """Mesh axes along which the devices of a group differ, in mesh order; () where a device is not of the mesh.

    A group may cover a part of an axis only (half of fsdp): the axis is named all the same, the group's size tells.
    """
    if any(not 0 <= device < mesh.devices for group in groups for device in group):
        return ()
    differing = []
    stride = mesh.devices
    for name, size in zip(mesh.names, mesh.sizes, strict=True):
        stride //= size
        if any(len({device // stride % size for device in group}) > 1 for group in groups):
            differing.append(name)
    return tuple(differing)


def rings(pairs: Groups) -> Groups:
    """Source-target pairs joined into the sets of devices that exchange data with one another."""
    parent: dict[int, int] = {}

    def root(device: int) -> int:
        while parent.setdefault(device, device) != device:
            device = parent[device]
        return device

    for source, target in pairs:
        parent[root(target)] = root(source)
    members: dict[int, list[int]] = {}
    for device in sorted(parent):
        members.setdefault(root(device), []).append(device)
    return tuple(tuple(group) for group in members.values())
