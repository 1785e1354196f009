"""A device's figures as rows of a table."""

from __future__ import annotations

from jaxprof.hardware.device import DeviceSpec

Row = tuple[str, ...]


def listing_row(spec: DeviceSpec) -> Row:
    """One line for a device: name, bf16 peak, HBM bandwidth and size, and the names JAX has for it."""
    return (
        spec.name,
        _scaled(spec.peak_flops_per_s.get("bf16"), 1e12),
        _scaled(spec.hbm_bytes_per_s, 1e9),
        _scaled(spec.hbm_bytes, 2**30),
        ", ".join(spec.device_kinds),
    )


def device_rows(spec: DeviceSpec) -> list[Row]:
    """A line for each figure: what it is, its value, where it comes from."""
    rows = [
        (f"peak, {dtype}", f"{_scaled(peak, 1e12)} TFLOP/s", _source(spec, "peak_flops_per_s"))
        for dtype, peak in spec.peak_flops_per_s.items()
    ]
    rows.append(("memory bandwidth", f"{_scaled(spec.hbm_bytes_per_s, 1e9)} GB/s", _source(spec, "hbm_bytes_per_s")))
    if spec.hbm_bytes is not None:
        rows.append(("memory", f"{_scaled(spec.hbm_bytes, 2**30)} GiB", _source(spec, "hbm_bytes")))
    rows += [
        (f"sends over {link}", f"{_scaled(rate, 1e9)} GB/s", _source(spec, "link_bytes_per_s"))
        for link, rate in spec.link_bytes_per_s.items()
    ]
    rows.append(("devices a chip", str(spec.devices_per_chip), ""))
    rows += [("note", "", note) for note in spec.notes]
    return rows


def _source(spec: DeviceSpec, figure: str) -> str:
    return spec.sources.get(figure, spec.source)


def _scaled(value: float | None, unit: float) -> str:
    return "unknown" if value is None else f"{value / unit:,.4g}" if value < 1000 * unit else f"{value / unit:,.0f}"
