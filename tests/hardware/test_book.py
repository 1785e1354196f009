"""The hardware book: published peaks, whole-name look-ups, figures per device as JAX counts devices."""

from __future__ import annotations

import pytest

from jaxprof.errors import UserError
from jaxprof.hardware.book import book, device_of_kind, find_device


def bf16_tflops(name: str) -> float:
    return find_device(name).peak_flops_per_s["bf16"] / 1e12


@pytest.mark.parametrize(("name", "dense"), [("h100-sxm", 989.5), ("h100-nvl", 835.5), ("h100-pcie", 756)])
def test_b1_peaks_are_dense_for_every_kind_of_h100(name: str, dense: float) -> None:
    assert bf16_tflops(name) == pytest.approx(dense, rel=1e-3)


def test_b2_the_dtype_decides_the_peak() -> None:
    peaks = find_device("h100-sxm").peak_flops_per_s
    assert 400e12 / peaks["bf16"] == pytest.approx(0.404, abs=5e-4)
    assert 400e12 / peaks["f32"] == pytest.approx(0.809, abs=5e-4)  # TF32: not what bf16 dots may be held against


def test_b4_a_b300_is_no_a100_and_the_unknown_is_unknown() -> None:
    b300 = device_of_kind("NVIDIA B300 SXM6 AC")
    assert b300 is not None
    assert 450e12 / b300.peak_flops_per_s["bf16"] == pytest.approx(0.200, abs=1e-3)
    assert device_of_kind("FooChip 9") is None
    with pytest.raises(UserError, match="unknown device 'FooChip 9'"):
        find_device("FooChip 9")


@pytest.mark.parametrize(
    ("kind", "name", "tflops"), [("TPU v5", "v5p", 459), ("TPU v5 lite", "v5e", 197), ("TPU v6 lite", "v6e", 918)]
)
def test_b5_no_device_kind_stands_for_the_start_of_another(kind: str, name: str, tflops: float) -> None:
    spec = device_of_kind(kind)
    assert spec is not None
    assert spec.name == name
    assert spec.peak_flops_per_s["bf16"] / 1e12 == pytest.approx(tflops, rel=1e-2)


def test_b5_tpu7x_and_what_is_only_part_of_a_name() -> None:
    spec = device_of_kind("TPU7x")
    assert spec is not None
    assert spec.name == "tpu7x"
    for part in ("TPU", "TPU v", "TPU v5 l", "TPU v5 lite pod", "NVIDIA A100", ""):
        assert device_of_kind(part) is None


def test_b6_a_device_is_what_jax_counts() -> None:
    """v4 has a device for each of two cores unless they are joined; a tpu7x chip is two devices."""
    assert bf16_tflops("v4") == pytest.approx(137.5)
    assert bf16_tflops("v4-megacore") == pytest.approx(275)
    assert device_of_kind("TPU v4") == find_device("v4")
    assert device_of_kind("TPU v4", cores=2) == find_device("v4-megacore")
    assert find_device("tpu7x").devices_per_chip == 2
    assert find_device("v5p").devices_per_chip == 1


def test_a_misspelt_name_is_told_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean h100-sxm"):
        find_device("h100-smx")


def test_every_figure_has_a_source_and_every_name_means_one_device() -> None:
    names = [name for entry in book().values() for name in (entry.spec.name, *entry.aliases)]
    assert len(names) == len(set(names))
    kinds = [(kind, entry.cores_per_device) for entry in book().values() for kind in entry.spec.device_kinds]
    assert len(kinds) == len(set(kinds))
    for entry in book().values():
        spec = entry.spec
        assert set(spec.sources) == {"peak_flops_per_s", "hbm_bytes", "hbm_bytes_per_s", "link_bytes_per_s"}
        assert all(len(source) > 10 for source in spec.sources.values()), spec.name
        assert spec.hbm_bytes and spec.hbm_bytes_per_s and spec.peak_flops_per_s
