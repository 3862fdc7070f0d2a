"""Ranks are equal exactly for equal rows and equal multisets, whatever the size of the numbers."""

from itertools import pairwise

import numpy as np
import pytest

from tuplet.wl.rank import pack, rank, rank_multisets, starts


def numbers(rng, size, bound):
    """Few different numbers, spread from 0 to the bound."""
    return rng.choice(np.concatenate([[0, bound - 1], rng.integers(0, bound, size=3)]), size=size)


@pytest.mark.parametrize("bound", [1, 3, 1 << 20, 1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("columns", [1, 2, 5])
def test_rank_of_rows(columns, bound):
    rows = numbers(np.random.default_rng(0), (300, columns), bound)
    expected = np.unique(rows, axis=0, return_inverse=True)[1]
    ranks, count = rank(*rows.T)
    assert np.array_equal(ranks, expected)
    assert count == expected.max() + 1


def test_rank_of_nothing():
    ranks, count = rank(np.zeros(0, np.int64))
    assert (len(ranks), count) == (0, 0)


def test_words_are_as_few_as_fit():
    columns = [np.arange(3)] * 4
    assert len(pack(columns, [3] * 4)) == 1
    assert len(pack(columns, [1 << 30] * 4)) == 2
    assert len(pack(columns, [1 << 62] * 4)) == 4
    assert pack(columns, [10] * 4)[0].tolist() == [0, 1111, 2222]


@pytest.mark.parametrize("words", [1, 2])
@pytest.mark.parametrize("bound", [2, (1 << 63) - 1])
def test_rank_of_multisets(words, bound):
    """Elements of one or two words, 0 to 4 of them; the order in which they come does not count, their number does."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 5, size=200)
    first = starts(lengths)
    elements = [numbers(rng, int(first[-1]), bound) for _ in range(words)]

    def values(rows, length):
        places = first[rows][:, None] + np.arange(length)
        return [word[places] for word in elements]

    ranks, count = rank_multisets(lengths, values)
    listed = list(zip(*elements, strict=True))
    bags = [tuple(sorted(listed[a:b])) for a, b in pairwise(first.tolist())]
    assert len(set(zip(bags, ranks.tolist(), strict=True))) == len(set(bags)) == len(set(ranks.tolist())) == count
    assert 10 < count < 200
