"""Cutting intervals so that each instant belongs to one op. Expected pieces are drawn by hand."""

from __future__ import annotations

import numpy as np

from jaxprof.trace.intervals import fill_gaps, gaps, self_pieces


def _pieces(cut):
    return [tuple(int(part[i]) for part in cut) for i in range(len(cut[0]))]


def test_an_op_that_nests_others_keeps_what_is_left_of_it():
    cut = self_pieces(np.array([0, 2, 5]), np.array([10, 4, 8]))
    assert _pieces(cut) == [(0, 0, 2), (1, 2, 4), (0, 4, 5), (2, 5, 8), (0, 8, 10)]


def test_of_two_that_overlap_the_later_is_whole_and_no_instant_is_lost():
    assert _pieces(self_pieces(np.array([0, 6]), np.array([8, 10]))) == [(0, 0, 6), (1, 6, 10)]


def test_pieces_cover_the_union_of_random_intervals_once():
    random = np.random.default_rng(3)
    start = random.integers(0, 1000, 200)
    end = start + random.integers(0, 60, 200)
    _, piece_start, piece_end = self_pieces(start, end)
    covered = np.zeros(1100, int)
    for a, b in zip(piece_start, piece_end, strict=True):
        covered[a:b] += 1
    union = np.zeros(1100, int)
    for a, b in zip(start, end, strict=True):
        union[a:b] = 1
    assert (covered == union).all()


def test_gaps_lie_between_the_union_of_the_intervals():
    assert [g.tolist() for g in gaps(np.array([0, 2, 20]), np.array([10, 4, 30]))] == [[10], [20]]


def test_a_gap_goes_to_the_op_that_the_next_one_waited_for():
    """The first gap ends with the limit of op 1, the second is all that op 0 can still have."""
    cut = fill_gaps(np.array([10, 50]), np.array([20, 60]), np.array([5, 9]), np.array([58, 20]))
    assert _pieces(cut) == [(1, 10, 20), (0, 50, 58)]
