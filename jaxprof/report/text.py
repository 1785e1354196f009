"""Figures as people read them. What is not known reads "unknown", never 0."""

from __future__ import annotations

UNKNOWN = "unknown"


def _scaled(value: float, scales: tuple[tuple[float, str], ...]) -> str:
    """Three significant digits in the first scale that ``value`` reaches, or in the last."""
    factor, unit = next(((f, u) for f, u in scales if abs(value) >= 0.9995 * f), scales[-1])
    scaled = value / factor
    digits = 0 if abs(scaled) >= 99.95 else 1 if abs(scaled) >= 9.995 else 2
    return f"{scaled:.{digits}f} {unit}"


def seconds(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return _scaled(value, ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))) if value else "0 s"


def size(value: float | None) -> str:
    """Bytes, in powers of 1024."""
    if value is None:
        return UNKNOWN
    if abs(value) < 1024:
        return f"{value:.0f} B"
    return _scaled(value, ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")))


def count(value: float | None, unit: str = "") -> str:
    """A number in powers of 1000, as in ``25.2 MFLOP``."""
    if value is None:
        return UNKNOWN
    if abs(value) < 1000:
        return f"{value:.0f} {unit}".rstrip() if value == round(value) else _scaled(value, ((1, unit),)).rstrip()
    scales = tuple((10.0**power, prefix + unit) for power, prefix in zip((18, 15, 12, 9, 6, 3), "EPTGMk", strict=True))
    return _scaled(value, scales)


def percent(fraction: float | None) -> str:
    if fraction is None:
        return UNKNOWN
    return f"{100 * fraction:.{0 if abs(fraction) >= 0.9995 else 1}f} %"


def printable(text: str) -> str:
    """``text`` with control characters (line ends and terminal escapes too) spelled out, as in ``\\x1b``."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shortened(text: str, width: int) -> str:
    """``text`` in at most ``width`` characters, its middle left out: both ends of an op's name tell ops apart."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"
