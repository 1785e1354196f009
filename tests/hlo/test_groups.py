"""Device groups in every notation, and the mesh axes behind them."""

from __future__ import annotations

import numpy as np
import pytest

from jaxprof.hlo.attributes import attribute_fields
from jaxprof.hlo.groups import IotaGroups, ListedGroups, MalformedGroups, MeshGroups, axes_of, expand, rings
from jaxprof.hlo.program import MeshAxes

MESH = MeshAxes(("dp", "tp"), (2, 4))


def groups_in(text: str):
    return attribute_fields("all-reduce", {"replica_groups": text}, "")["groups"]


@pytest.mark.parametrize(
    ("text", "axes", "size"),
    [
        ("[2,4]<=[8]", ("tp",), 4),
        ("[4,2]<=[2,4]T(1,0)", ("dp",), 2),
        ("mesh['dp'=2,'tp'=4] {'dp'}", ("dp",), 2),
        ("mesh['axis_0'=2,'axis_1'=4] {'axis_1'}", ("tp",), 4),
        ("mesh['axis_0'=8] {'axis_0'}", ("dp", "tp"), 8),
        ("mesh['x'=8] {'x':(1)2}", ("dp",), 2),
        ("mesh['x'=8] {'x':(2)4}", ("tp",), 4),
        ("{{0,1,2,3},{4,5,6,7}}", ("tp",), 4),
        ("{{0,4},{1,5},{2,6},{3,7}}", ("dp",), 2),
        ("{{0,2},{1,3},{4,6},{5,7}}", ("tp",), 2),
        ("{{0},{1},{2},{3},{4},{5},{6},{7}}", (), 1),
    ],
)
def test_d8_every_notation_maps_to_axis_and_group_size(text: str, axes: tuple[str, ...], size: int):
    groups = expand(groups_in(text))
    assert axes_of(groups, MESH) == axes
    assert {len(group) for group in groups} == {size}
    assert sorted(device for group in groups for device in group) == list(range(8))


def test_iota_groups_are_numpys_reshape_and_transpose():
    groups = expand(IotaGroups((6, 4), (2, 3, 4), (2, 0, 1)))
    assert groups == tuple(map(tuple, np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1).reshape(6, 4).tolist()))


def test_a_mesh_with_its_own_device_order():
    """0.10 prints a mesh over reordered devices as ``device_ids=([2,4]T(1,0))``."""
    groups = expand(groups_in("mesh['axis_0'=2,'axis_1'=4], device_ids=([2,4]T(1,0)) {'axis_1'}"))
    assert groups == ((0, 4, 1, 5), (2, 6, 3, 7))
    assert expand(MeshGroups(("a",), (4,), ((0, 1, 4),), (3, 1, 2, 0))) == ((3, 1, 2, 0),)


def test_d9_malformed_iota_groups_say_what_does_not_fit():
    with pytest.raises(MalformedGroups, match="group shape 4x2 does not match 12 devices"):
        expand(groups_in("[4,2]<=[12]"))
    with pytest.raises(MalformedGroups, match="two replica groups"):
        expand(ListedGroups(((0, 1), (1, 2))))
    with pytest.raises(MalformedGroups, match=r"T\(0,0\) is no order of 2 dimensions"):
        expand(IotaGroups((2, 2), (2, 2), (0, 0)))
    with pytest.raises(MalformedGroups, match="3 device ids for a mesh of 4 devices"):
        expand(MeshGroups(("a",), (4,), ((0, 1, 4),), (0, 1, 2)))


def test_devices_outside_the_mesh_have_no_axes():
    assert axes_of(((0, 9),), MESH) == ()


def test_rings_join_pairs_that_exchange_data():
    ring = tuple((i, (i + 1) % 4) for i in range(4)) + tuple((i + 4, (i + 1) % 4 + 4) for i in range(4))
    assert rings(ring) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert rings(((0, 1), (2, 3))) == ((0, 1), (2, 3))
