"""Shapes of HLO values: dtype, dimensions, layout, and the bytes that they take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

# PrimitiveType numbers of xla_data.proto.
DTYPES = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64", 10: "f16", 11: "f32",
    12: "f64", 13: "tuple", 14: "opaque", 15: "c64", 16: "bf16", 17: "token", 18: "c128", 19: "f8e5m2",
    20: "f8e4m3fn", 21: "s4", 22: "u4", 23: "f8e4m3b11fnuz", 24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 26: "s2", 27: "u2",
    28: "f8e4m3", 29: "f8e3m4", 30: "s1", 31: "u1", 32: "f4e2m1fn", 33: "f8e8m0fnu", 34: "buffer",
}  # fmt: skip

_BITS = {
    "pred": 8, "s1": 1, "s2": 2, "s4": 4, "s8": 8, "s16": 16, "s32": 32, "s64": 64, "u1": 1, "u2": 2, "u4": 4,
    "u8": 8, "u16": 16, "u32": 32, "u64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128,
    "f4e2m1fn": 4, "tuple": 0, "opaque": 0, "token": 0, "buffer": 0,
}  # fmt: skip


def dtype_bits(dtype: str) -> int:
    """Bits of one element as the dtype is defined, without a layout's packing; every f8 kind is eight."""
    return _BITS.get(dtype, 8)


def is_floating(dtype: str) -> bool:
    return dtype.startswith(("f", "bf", "c"))


def is_complex(dtype: str) -> bool:
    return dtype in ("c64", "c128")


@dataclass(frozen=True, slots=True)
class Layout:
    """How an array lies in memory."""

    minor_to_major: tuple[int, ...] = ()
    tiles: tuple[tuple[int, ...], ...] = ()
    """Applied in order, each to the minor-most dimensions of what the last left. -1 joins a dimension to the next."""
    memory_space: int = 0
    """0 is HBM; on TPU 1 is VMEM; 5 is host memory."""
    element_bits: int = 0
    """0: whole bytes, as wide as the dtype."""
    tail_alignment: int = 1
    """The number of elements is rounded up to a multiple of this."""


@dataclass(frozen=True, slots=True)
class Shape:
    """An array, or a tuple of shapes where ``dtype`` is ``tuple``."""

    dtype: str
    dims: tuple[int, ...] = ()
    layout: Layout = Layout()
    elements: tuple[Shape, ...] = ()

    @property
    def size(self) -> int:
        """Number of elements of an array; 0 for a tuple or a token."""
        return math.prod(self.dims) if dtype_bits(self.dtype) else 0

    @property
    def bytes(self) -> int:
        """Bytes of all arrays, without tile padding."""
        if self.elements:
            return sum(element.bytes for element in self.elements)
        return _bytes(self, self.size)

    @property
    def padded_bytes(self) -> int:
        """Bytes of all arrays as they lie in memory, tile padding included."""
        if self.elements:
            return sum(element.padded_bytes for element in self.elements)
        return _bytes(self, padded_size(self.dims, self.layout) if self.size else 0)

    def leaves(self) -> Iterator[Shape]:
        """The arrays, in order."""
        if self.dtype != "tuple":
            yield self
        for element in self.elements:
            yield from element.leaves()

    def __str__(self) -> str:
        if self.dtype == "tuple":
            return f"({', '.join(map(str, self.elements))})"
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


def padded_size(dims: tuple[int, ...], layout: Layout) -> int:
    """Elements that an array takes in its tiled layout.

    Each tile splits the minor-most dimensions into whole tiles (rounding up) and the tile itself, so f32[1000000,1] in
    {1,0:T(8,128)} takes 125000 tiles of 8 x 128 elements.
    """
    physical = [dims[axis] for axis in reversed(layout.minor_to_major)] if layout.minor_to_major else list(dims)
    for tile in layout.tiles:
        physical = [1] * (len(tile) - len(physical)) + physical
        outer, tiled = physical[: len(physical) - len(tile)], physical[len(physical) - len(tile) :]
        joined, kept, carried = [], [], 1
        for size, extent in zip(tiled, tile, strict=True):
            if extent < 0:
                carried *= size
            else:
                joined.append(-(-size * carried // extent))
                kept.append(extent)
                carried = 1
        physical = [*outer, *joined, *kept]
    align = max(1, layout.tail_alignment)
    return -(-math.prod(physical) // align) * align


def _bytes(shape: Shape, elements: int) -> int:
    bits = shape.layout.element_bits or (max(8, dtype_bits(shape.dtype)) if dtype_bits(shape.dtype) else 0)
    return -(-elements * bits // 8)
