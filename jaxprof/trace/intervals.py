"""Cutting intervals of one device so that each instant belongs to one op."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]
Pieces = tuple[NDArray[np.int64], Times, Times]
"""Index of the interval that a piece is cut from, start, end; in order of start."""


def self_pieces(start: Times, end: Times) -> Pieces:
    """What is left of each interval without those that begin inside it.

    At each instant the interval that began last has it, so an op that nests others keeps the gaps between them, and of
    two ops that overlap by accident the later one is whole. The pieces are disjoint and cover the same instants.
    """
    order = np.lexsort((-end, start))
    pieces: list[tuple[int, int, int]] = []
    open_ones: list[tuple[int, int]] = []
    now = 0

    def advance(until: int | None) -> None:
        nonlocal now
        while open_ones and (until is None or now < until):
            index, stop = open_ones[-1]
            cut = stop if until is None else min(stop, until)
            if cut > now:
                pieces.append((index, now, cut))
                now = cut
            if stop <= now:
                open_ones.pop()

    for index, begin, stop in zip(order.tolist(), start[order].tolist(), end[order].tolist(), strict=True):
        advance(begin)
        now = max(now, begin)
        if stop > begin:
            open_ones.append((index, stop))
    advance(None)
    return _as_arrays(pieces)


def gaps(start: Times, end: Times) -> tuple[Times, Times]:
    """The times between the first start and the last end that no interval covers."""
    order = np.argsort(start, kind="stable")
    reached = np.maximum.accumulate(end[order])
    begins, ends = reached[:-1], start[order][1:]
    free = ends > begins
    return begins[free], ends[free]


def fill_gaps(gap_start: Times, gap_end: Times, begin: Times, limit: Times) -> Pieces:
    """Gives gaps to intervals known to go on beyond their recorded end.

    ``begin`` is where the record of each ends, ``limit`` the latest time at which it can have ended. A gap inside
    (begin, limit) goes to the interval with the earliest limit, since that is the one that the next op waited for.
    """
    free_from = gap_start.copy()
    pieces: list[tuple[int, int, int]] = []
    for index in np.argsort(limit, kind="stable").tolist():
        first = int(np.searchsorted(gap_end, begin[index], side="right"))
        last = int(np.searchsorted(gap_start, limit[index], side="left"))
        piece_start = np.maximum(free_from[first:last], begin[index])
        piece_end = np.minimum(gap_end[first:last], limit[index])
        taken = piece_end > piece_start
        free_from[first:last][taken] = piece_end[taken]
        pieces.extend(
            (index, a, b) for a, b in zip(piece_start[taken].tolist(), piece_end[taken].tolist(), strict=True)
        )
    pieces.sort(key=lambda piece: piece[1])
    return _as_arrays(pieces)


def _as_arrays(pieces: list[tuple[int, int, int]]) -> Pieces:
    table = np.array(pieces, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]
