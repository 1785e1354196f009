"""Measured figures of this machine, kept in one small JSON file for each machine and number of devices.

A machine is known by its CPU's model, the cores that this process may use and the number of simulated devices: another
of any of these is another calibration.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from jaxprof.hardware.device import DeviceSpec, Provenance

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Machine:
    """What a calibration holds for."""

    cpu: str
    cores: int
    devices: int


@dataclass(frozen=True, slots=True)
class Stored:
    """What was found in the store: a spec, or none and why where a file is there that cannot be used."""

    spec: DeviceSpec | None
    warning: str | None = None


def cache_dir() -> Path:
    """``JAXPROF_CACHE_DIR``, or ``jaxprof`` in ``XDG_CACHE_HOME`` or ``~/.cache``."""
    own = os.environ.get("JAXPROF_CACHE_DIR")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxprof"


def this_machine(devices: int) -> Machine:
    """The machine that this process runs on, with ``devices`` simulated devices."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return Machine(_cpu_model(), cores, devices)


def calibration_path(machine: Machine) -> Path:
    name = re.sub(r"[^a-z0-9]+", "-", machine.cpu.lower()).strip("-")
    return cache_dir() / "calibration" / f"{name}-{machine.cores}-cores-{machine.devices}-devices.json"


def load_calibration(devices: int) -> DeviceSpec | None:
    """The stored figures of this machine, None where there are none; ``read_calibration`` says why."""
    return read_calibration(devices).spec


def read_calibration(devices: int) -> Stored:
    """The same, with a warning where a file is there but damaged or of another machine: it counts as absent."""
    machine = this_machine(devices)
    path = calibration_path(machine)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise ValueError(f"its schema is {content['schema']}, not {SCHEMA}")
        if Machine(**content["machine"]) != machine:
            raise ValueError("it is of another machine")
        return Stored(spec_from_dict(content["device"]))
    except FileNotFoundError:
        return Stored(None)
    except OSError as error:
        return Stored(None, f"the calibration in {path} cannot be read ({error.strerror}); measuring again")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Stored(None, f"the calibration in {path} is not usable ({_reason(error)}); measuring again")


def save_calibration(spec: DeviceSpec, devices: int) -> Path:
    """Store ``spec`` for this machine. The file is whole at every moment, whoever else writes it too."""
    machine = this_machine(devices)
    path = calibration_path(machine)
    content = {"schema": SCHEMA, "machine": dataclasses.asdict(machine), "device": dataclasses.asdict(spec)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        temporary = Path(file.name)
        try:
            json.dump(content, file, indent=1)
            file.close()
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    return path


def spec_from_dict(content: Mapping[str, Any]) -> DeviceSpec:
    """A DeviceSpec from what ``dataclasses.asdict`` and JSON made of it. Raises ValueError on anything else."""
    unknown = content.keys() - {field.name for field in dataclasses.fields(DeviceSpec)}
    if unknown:
        raise ValueError(f"unknown field {min(unknown)}")
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    spec = DeviceSpec(**fields)
    if spec.provenance not in get_args(Provenance):
        raise ValueError(f"unknown provenance {spec.provenance}")
    rates = [spec.hbm_bytes, spec.hbm_bytes_per_s, *spec.peak_flops_per_s.values(), *spec.link_bytes_per_s.values()]
    if any(rate is not None and not (isinstance(rate, int | float) and 0 < rate < float("inf")) for rate in rates):
        raise ValueError("a figure is not a positive number")
    return spec


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "not JSON"
    return f"it lacks {error.args[0]}" if isinstance(error, KeyError) else str(error)


def _cpu_model() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:  # not Linux
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()
