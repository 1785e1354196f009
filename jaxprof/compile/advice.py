"""Says what to write instead where JAX refuses a program for its shardings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
from jax.sharding import NamedSharding

from jaxprof.errors import UserError

_LANES = 128
"""Sizes that accelerators like are multiples of this."""
_INDIVISIBLE = re.compile(
    r"array axis (?P<axis>\d+) is partitioned (?P<parts>\d+) times, but the dimension size is (?P<size>\d+)"
)
_RESHAPE = re.compile(
    r"This reshape is not supported.*operand type: \w+\[(?P<operand>.*?)\], new sizes: \((?P<sizes>[\d, ]+)\)"
)

_SIMULATE = (
    "to simulate N devices on the CPU, set JAX_PLATFORMS=cpu and XLA_FLAGS=--xla_force_host_platform_device_count=N "
    "before JAX starts"
)


def indivisible(size: int, parts: int) -> str:
    """Why a dimension cannot be cut, and the next sizes that can: "50257 % 8 = 1; pad to 50264 or 50304 (...)"."""
    least = math.ceil(size / parts) * parts
    aligned = math.lcm(parts, _LANES)
    good = math.ceil(size / aligned) * aligned
    paddings = list(dict.fromkeys((least, good))) if good < 2 * size else [least]
    rows = " or ".join(f"{padded // parts:,}" for padded in paddings)
    return f"{size} % {parts} = {size % parts}; pad to {' or '.join(map(str, paddings))} ({rows} rows/device)"


def check_divisible(leaves: Iterable[tuple[str, Any]]) -> None:
    """Refuses an argument whose NamedSharding does not divide its shape.

    ``leaves`` are pairs of path and array or ShapeDtypeStruct. Raises UserError.
    """
    for path, leaf in leaves:
        sharding = getattr(leaf, "sharding", None)
        if not isinstance(sharding, NamedSharding):
            continue
        for axis, names in enumerate(sharding.spec):
            names = names if isinstance(names, tuple) else (names,)
            parts = math.prod(sharding.mesh.shape[name] for name in names if isinstance(name, str))
            if axis < len(leaf.shape) and leaf.shape[axis] % parts:
                raise UserError(
                    f"dimension {axis} of shape {tuple(leaf.shape)} is cut in {parts} by {sharding.spec}: "
                    f"{indivisible(leaf.shape[axis], parts)}",
                    where=f"argument {path}",
                )


@contextmanager
def explained(mesh: jax.sharding.Mesh | None) -> Iterator[None]:
    """Turns JAX's refusals of a sharding into a UserError with its own words and what to do about it."""
    try:
        yield
    except Exception as error:
        advice = _advice(error, dict(mesh.shape) if mesh is not None else {})
        if advice is None:
            raise
        raise UserError(f"{advice} (JAX: {str(error).splitlines()[0]})") from error


def _advice(error: Exception, mesh: dict[str, int]) -> str | None:
    text = str(error)
    if match := _INDIVISIBLE.search(text):
        return f"dimension {match['axis']} does not divide: {indivisible(int(match['size']), int(match['parts']))}"
    if type(error).__name__ == "ShardingTypeError":  # not public in all versions
        if match := _RESHAPE.search(text):
            return _split_advice(match["operand"], match["sizes"], mesh)
        return "explicit axes leave open how the result is sharded: say it with out_sharding=, or make the axes Auto"
    if "Received incompatible devices" in text:
        return "arguments lie on different devices, or on the same in another order: build all shardings from one mesh"
    if "only AbstractMesh exists" in text:
        return (
            "the shardings are on an abstract mesh, which has no devices: build them on a Mesh of jax.devices(), of "
            f"which {jax.device_count()} are here; {_SIMULATE}"
        )
    if "is not found in mesh" in text:
        return "a sharding names an axis that its mesh does not have: rename it, or add the axis to the mesh"
    if "requires a non-empty mesh in context" in text:
        return "a bare PartitionSpec needs a mesh: pass mesh=, or use NamedSharding(mesh, spec)"
    return None


def _split_advice(operand: str, sizes: str, mesh: dict[str, int]) -> str:
    """Names the new dimension that a mesh axis of the split one does not divide."""
    old = [
        (int(dim.split("@")[0]), dim.partition("@")[2].strip("()").split(",")[0])
        for dim in re.split(r",(?![^(]*\))", operand)
    ]
    new = [int(size) for size in sizes.split(",") if size.strip()]
    hint = "say the result's sharding with out_sharding= of jax.lax.reshape, or make the mesh's axes Auto"
    for position, (size, axis) in enumerate(old):
        parts = mesh.get(axis, 0)
        if parts and position < len(new) and new[position] != size and new[position] % parts:
            split = " x ".join(map(str, new[position:]))
            return f"{size} is split into {split}: {new[position]} heads not divisible by {axis}={parts}; {hint}"
    return f"this reshape leaves open how the result is sharded; {hint}"
