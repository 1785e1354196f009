"""The hardware book: published figures of accelerators, found by name or by the ``device_kind`` that JAX reports.

A look-up is by whole names only: "TPU v5" is a v5p and "TPU v5 lite" a v5e, so no name may stand for the start of
another.
"""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from jaxprof.errors import UserError
from jaxprof.hardware.device import DeviceSpec


@dataclass(frozen=True, slots=True)
class Entry:
    """One device of ``devices.toml``."""

    spec: DeviceSpec
    aliases: tuple[str, ...] = ()
    cores_per_device: int | None = None
    """Set where chips of one ``device_kind`` come as devices of different sizes."""


@functools.cache
def book() -> Mapping[str, Entry]:
    """Every entry, by the name of its device."""
    content = tomllib.loads(resources.files("jaxprof.hardware").joinpath("devices.toml").read_text(encoding="utf-8"))
    return {name: _entry(name, table) for name, table in content.items()}


def known_devices() -> tuple[DeviceSpec, ...]:
    """All devices in the book, in its order."""
    return tuple(entry.spec for entry in book().values())


def find_device(name_or_kind: str) -> DeviceSpec:
    """The device of a name (``h100-sxm``), an alias (``h100``) or a ``device_kind``. Raises UserError on any other."""
    name = name_or_kind.strip().lower()
    for entry in book().values():
        if name == entry.spec.name or name in entry.aliases:
            return entry.spec
    spec = device_of_kind(name_or_kind)
    if spec is not None:
        return spec
    near = difflib.get_close_matches(name, [known for entry in book().values() for known in _names(entry)], n=2)
    suggestion = f"did you mean {' or '.join(near)}? " if near else ""
    raise UserError(f"unknown device {name_or_kind!r}; {suggestion}known are {', '.join(book())}")


def device_of_kind(device_kind: str, *, cores: int | None = None) -> DeviceSpec | None:
    """The device that JAX calls ``device_kind``, or None where the book has no such device: there is no default.

    ``cores`` is ``jax.Device.num_cores`` where it is known. It tells a TPU v4 whose two TensorCores are joined into one
    device (megacore) from one core that is a device of its own, which is what None takes it for.
    """
    entries = [entry for entry in book().values() if device_kind in entry.spec.device_kinds]
    if len(entries) > 1:
        entries = [entry for entry in entries if entry.cores_per_device == (cores or 1)]
    return entries[0].spec if entries else None


def _names(entry: Entry) -> tuple[str, ...]:
    return (entry.spec.name, *entry.aliases)


def _entry(name: str, table: dict[str, Any]) -> Entry:
    """The file holds figures of a whole chip, as they are published; a device gets its share."""
    share = 1 / table.get("devices_per_chip", 1)
    sources = {
        "peak_flops_per_s": table["sources"]["peak"],
        "hbm_bytes": table["sources"]["hbm_bytes"],
        "hbm_bytes_per_s": table["sources"]["hbm_rate"],
        "link_bytes_per_s": table["sources"]["link"],
    }
    spec = DeviceSpec(
        name=name,
        device_kinds=tuple(table["device_kinds"]),
        peak_flops_per_s={dtype: rate * 1e12 * share for dtype, rate in table["peak_tflops_per_s"].items()},
        hbm_bytes=table["hbm_bytes"] * share,
        hbm_bytes_per_s=table["hbm_gbytes_per_s"] * 1e9 * share,
        link_bytes_per_s={link: rate * 1e9 * share for link, rate in table["link_gbytes_per_s"].items()},
        source="; ".join(dict.fromkeys(sources.values())),
        sources=sources,
        devices_per_chip=table.get("devices_per_chip", 1),
        notes=tuple(table.get("notes", ())),
    )
    return Entry(spec, tuple(table.get("aliases", ())), table.get("cores_per_device"))
