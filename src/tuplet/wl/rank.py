"""Exact numbers for what must be compared: equal rows, or equal multisets, get equal numbers, and others do not.

Everything is integer arithmetic. Columns are packed into 64-bit words only as far as they fit, and a fingerprint of a
long row is never believed: rows that share one are compared number by number, and told apart if they differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]
Values = Callable[[Array, int], list[Array]]
WORD = 1 << 63
"""Packed words stay below this, so that they are non-negative int64."""
PIECE = 1 << 18
"""Entries that are computed and sorted at a time; two megabytes stay in a core's cache."""
KEPT = 1 << 24
"""Entries up to which sorted rows are kept for their comparison; longer tables are computed again."""


def starts(counts: Array) -> Array:
    """(R+1,) running sums that begin with 0."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def pack(columns: Sequence[Array], sizes: Sequence[int]) -> list[Array]:
    """The same rows in fewer columns: mixed-radix words below ``WORD``, of columns with values 0..size-1."""
    words: list[Array] = []
    room = WORD
    for column, size in zip(columns, sizes, strict=True):
        if room * size < WORD:
            words[-1] = words[-1] * size + column
            room *= size
        else:
            words.append(column)
            room = size
    return words


def rank(*columns: Array) -> tuple[Array, int]:
    """Dense ranks 0..count-1 of the rows (columns[0][r], columns[1][r], ..) in lexicographic order, and their count.

    Args:
        columns: (R,) non-negative integers each.
    """
    rows = len(columns[0])
    if rows == 0:
        return np.zeros(0, np.int64), 0
    sizes = [int(column.max()) + 1 for column in columns]
    words = pack(columns, sizes)
    if len(words) == 1 and np.prod(sizes, dtype=object) <= 4 * rows:
        return _rank_by_table(words[0])
    return _number(*_order(words))


def _order(words: Sequence[Array]) -> tuple[Array, NDArray[np.bool_]]:
    """An order in which rows do not decrease, and for each place of it whether another row begins there."""
    order = np.argsort(words[0]) if len(words) == 1 else np.lexsort(words[::-1])
    begins = np.zeros(len(order), bool)
    begins[:1] = True
    for word in words:
        placed = word[order]
        begins[1:] |= placed[1:] != placed[:-1]
    return order, begins


def _number(order: Array, begins: NDArray[np.bool_]) -> tuple[Array, int]:
    numbers = np.cumsum(begins)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = numbers - 1
    return ranks, int(numbers[-1])


def _rank_by_table(word: Array) -> tuple[Array, int]:
    """Ranks of small numbers, without sorting."""
    present = np.zeros(int(word.max()) + 1, bool)
    present[word] = True
    numbers = np.cumsum(present)
    return numbers[word] - 1, int(numbers[-1])


def rank_multisets(lengths: Array, values: Values) -> tuple[Array, int]:
    """Dense ranks of multisets, equal exactly for equal multisets, and their count.

    Args:
        lengths: (R,) how many elements each multiset has.
        values: given numbers of multisets, (r,), that all have the given length L, their elements as packed words:
            a list of (r, L) arrays, the words of an element at the same place in each.
    """
    ranks = np.zeros(len(lengths), np.int64)
    total = 0
    order = np.argsort(lengths, kind="stable")
    bounds = np.flatnonzero(np.diff(lengths[order])) + 1
    for alike in np.split(order, bounds):
        if len(alike) == 0:
            continue
        length = int(lengths[alike[0]])
        found, count = _rank_rows(_sorted_rows(alike, length, values), len(alike), length)
        ranks[alike] = total + found
        total += count
    return ranks, total


def _sorted_rows(alike: Array, length: int, values: Values) -> Callable[[Array], Array]:
    """The function that computes chosen multisets of one length as rows in which equal multisets are equal rows."""

    def rows(chosen: Array) -> Array:
        words = values(alike[chosen], length)
        if len(words) == 1:
            return np.sort(words[0], axis=1)
        order = np.lexsort(words[::-1], axis=-1)
        return np.concatenate([np.take_along_axis(word, order, axis=1) for word in words], axis=1)

    return rows


def _rank_rows(rows: Callable[[Array], Array], count: int, width: int) -> tuple[Array, int]:
    """Ranks of rows that are computed on demand, in bounded memory.

    Rows are grouped by a fingerprint, then neighbours within a group are compared in full. Where the comparison finds a
    group of unequal rows, another fingerprint splits the groups further.
    """
    step = max(1, PIECE // max(1, width))
    everything = np.arange(count)
    if count * width <= KEPT:
        table = np.concatenate([rows(everything[start : start + step]) for start in range(0, count, step)])
        rows = table.__getitem__
    prints: list[Array] = []
    for salt in itertools.count():
        pieces = [_fingerprint(rows(everything[start : start + step]), salt) for start in range(0, count, step)]
        prints.append(np.concatenate(pieces))
        order, begins = _order(prints)
        if _groups_are_equal(rows, order, begins, step):
            return _number(order, begins)
    raise AssertionError("unreachable")


def _fingerprint(rows: Array, salt: int) -> Array:
    """(R,) numbers below 2^63, equal for equal rows: a random linear form modulo 2^64 with its last bit dropped."""
    factors = np.random.default_rng(salt).integers(0, 1 << 64, size=rows.shape[1], dtype=np.uint64)
    return (np.einsum("rc,c->r", rows.view(np.uint64), factors) >> np.uint64(1)).view(np.int64)


def _groups_are_equal(rows: Callable[[Array], Array], order: Array, begins: NDArray[np.bool_], step: int) -> bool:
    """Whether each stretch of the order, up to where the next one begins, holds copies of one row, number by number."""
    shared = ~begins
    shared[:-1] |= ~begins[1:]
    order, begins = order[shared], begins[shared]
    for start in range(0, len(order) - 1, step):
        table = rows(order[start : start + step + 1])
        equal = (table[1:] == table[:-1]).all(axis=1)
        if not (equal | begins[start + 1 : start + len(table)]).all():
            return False
    return True
