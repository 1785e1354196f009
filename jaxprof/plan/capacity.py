"""What fits: arithmetic on bytes per device, before anything is compiled."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jaxprof.errors import Refused


def heaviest_stage(layers: Sequence[int], bytes_per_layer: int) -> int:
    """Bytes of the pipeline stage with most layers: the stage that has to fit, not the mean of all."""
    return max(layers) * bytes_per_layer


def kv_cache_budget(
    devices: int,
    *,
    free_bytes: float,
    weight_bytes: float,
    activation_bytes: float,
    reserve_bytes: float = 0,
) -> float:
    """Bytes that all devices together have for a sharded KV cache.

    ``free_bytes``, ``activation_bytes`` and ``reserve_bytes`` are one device's and so count on each; ``weight_bytes``
    are of the whole model, sharded over the devices.
    """
    return devices * (free_bytes - activation_bytes - reserve_bytes) - weight_bytes


def sequences_that_fit(
    *,
    device_bytes: float,
    weight_bytes: float,
    other_bytes: float,
    bytes_per_sequence: float,
    usable_fraction: float = 1.0,
) -> int:
    """How many sequences' KV cache one device holds beside its share of the weights; 0 where those alone fill it."""
    left = device_bytes * usable_fraction - weight_bytes - other_bytes
    # A quotient a rounding error below a whole number is that number.
    return max(0, math.floor(left / bytes_per_sequence + 1e-9))


def check_batch(
    sequences: int,
    *,
    device_bytes: float,
    weight_bytes: float,
    other_bytes: float,
    bytes_per_sequence: float,
    usable_fraction: float = 1.0,
) -> None:
    """Raises Refused, with the largest batch that fits, where a device cannot hold the cache of ``sequences``."""
    most = sequences_that_fit(
        device_bytes=device_bytes,
        weight_bytes=weight_bytes,
        other_bytes=other_bytes,
        bytes_per_sequence=bytes_per_sequence,
        usable_fraction=usable_fraction,
    )
    if sequences > most:
        left = device_bytes * usable_fraction - weight_bytes - other_bytes
        raise Refused(
            f"{sequences} sequences need {sequences * bytes_per_sequence / 1e9:.1f} GB of KV cache; beside weights "
            f"({weight_bytes / 1e9:.1f} GB) and the rest ({other_bytes / 1e9:.1f} GB) {left / 1e9:.1f} GB are left: "
            f"at most {most} fit"
        )
