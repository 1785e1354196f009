"""Bytes of shapes, with and without tile padding."""

from __future__ import annotations

import pytest

from jaxprof.hlo.shapes import Layout, Shape
from jaxprof.hlo.text import parse_shape


def test_c9_tiling_pads_a_trailing_dimension_of_one_128_times():
    shape, _ = parse_shape("f32[1000000,1]{1,0:T(8,128)}")
    assert shape.bytes == 4_000_000
    assert shape.padded_bytes == 512_000_000


def test_c9_another_layout_of_small_dimensions_pads_nothing():
    shape, _ = parse_shape("f32[1024,8,4]{0,2,1:T(4,128)}")
    assert shape.padded_bytes == shape.bytes == 131_072


@pytest.mark.parametrize(
    ("text", "size", "padded"),
    [
        ("bf16[256,256]{1,0:T(8,128)(2,1)}", 131_072, 131_072),
        ("bf16[3,100]{1,0:T(8,128)(2,1)}", 600, 2_048),
        ("bf16[5,128]{1,0:T(8,128)(2,1)}", 1_280, 2_048),
        ("s4[16]{0:E(4)}", 8, 8),
        ("s4[16]{0}", 16, 16),
        ("s32[]{:T(128)S(6)}", 4, 512),
        ("f32[10]{0:L(16)}", 40, 64),
        ("pred[3]", 3, 3),
        ("c64[2,2]{1,0}", 32, 32),
        ("token[]", 0, 0),
        ("f32[0,4]{1,0}", 0, 0),
        ("(f32[8,4]{1,0}, (s8[3]{0}, token[]))", 131, 131),
    ],
)
def test_bytes_of_a_shape(text: str, size: int, padded: int):
    shape, end = parse_shape(text)
    assert end == len(text)
    assert (shape.bytes, shape.padded_bytes) == (size, padded)


def test_a_joined_tile_dimension_counts_the_product():
    """T(*,128): the dimension marked * joins the next, so 3 x 50 elements lie in rows of 128."""
    assert Shape("f32", (3, 50), Layout((1, 0), ((-1, 128),))).padded_bytes == 256 * 4


def test_memory_space_and_dynamic_sizes_are_read():
    shape, _ = parse_shape("bf16[<=8,128]{1,0:T(8,128)(2,1)S(1)}")
    assert shape.dims == (8, 128)
    assert shape.layout.memory_space == 1
    assert shape.layout.tiles == ((8, 128), (2, 1))
