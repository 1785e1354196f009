"""What fits, by hand."""

from __future__ import annotations

import pytest

from jaxprof.errors import Refused
from jaxprof.plan.capacity import check_batch, heaviest_stage, kv_cache_budget, sequences_that_fit

GB = 10**9


def test_c13_heaviest_stage_decides() -> None:
    assert heaviest_stage([2, 2, 2, 4], 7) == 4 * 7


def test_c14_activations_count_on_every_device() -> None:
    budget = kv_cache_budget(8, free_bytes=30 * GB, weight_bytes=60 * GB, activation_bytes=4 * GB)
    assert budget == 148 * GB


def test_c15_batch_that_cannot_hold_its_cache_is_refused() -> None:
    device = {
        "device_bytes": 80 * GB,
        "weight_bytes": 40 * GB,
        "other_bytes": 4 * GB,
        "bytes_per_sequence": GB / 2,
        "usable_fraction": 0.9,
    }
    assert sequences_that_fit(**device) == 56
    check_batch(56, **device)
    with pytest.raises(Refused, match=r"96 sequences need 48.0 GB.*at most 56 fit"):
        check_batch(96, **device)
