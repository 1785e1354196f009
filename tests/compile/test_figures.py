"""The compiler's own figures, and what stands in their place where it has none."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import pytest

from jaxprof.compile.allocator import describe_allocator
from jaxprof.compile.figures import memory_stats, xla_cost
from jaxprof.hlo.program import MemoryStats


def test_c1_no_memory_analysis_is_unknown() -> None:
    assert memory_stats(None, 65536) == MemoryStats()


def test_c1_zeros_beside_an_argument_of_64_kib_are_unknown() -> None:
    zeros = SimpleNamespace(
        argument_size_in_bytes=0, output_size_in_bytes=0, alias_size_in_bytes=0, temp_size_in_bytes=0
    )
    assert memory_stats(zeros, 65536) == MemoryStats()
    assert memory_stats(zeros, 0).argument_bytes == 0


def test_c1_minus_one_is_unknown() -> None:
    stats = memory_stats(SimpleNamespace(argument_size_in_bytes=8, temp_size_in_bytes=-1), 8)
    assert (stats.argument_bytes, stats.temp_bytes, stats.total_allocation_bytes) == (8, None, None)


@pytest.mark.parametrize("given", [{"flops": 4.0, "optimal_seconds": -2.0}, [{"flops": 4.0, "bytes accessed": -1.0}]])
def test_f6_cost_analysis_is_a_dict_or_a_list_of_one(given) -> None:
    assert xla_cost(given) == {"flops": 4.0}


@pytest.mark.parametrize("given", [None, []])
def test_no_cost_analysis(given) -> None:
    assert xla_cost(given) is None


def test_c10_no_allocator_statistics_on_cpu() -> None:
    assert describe_allocator(jax.devices("cpu")[0].memory_stats(), "cpu") == "no allocator statistics on cpu"


def test_c10_a_peak_from_an_earlier_larger_run_is_marked() -> None:
    assert "since process start" in describe_allocator({"peak_bytes_in_use": 1000}, "gpu", peak_before=1000)
    assert describe_allocator({"peak_bytes_in_use": 1200}, "gpu", peak_before=1000).endswith("1,200 B in this run")
