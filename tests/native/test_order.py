"""Small numbers in order by counting, against a stable sort."""

import pytest
import torch

from tuplet.native import in_order, library_of, set_aside


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize("many, count", [(0, 0), (0, 3), (1, 1), (7, 3), (1000, 17), (500, 5000)])
def test_as_a_stable_sort(kind, many, count):
    numbers = torch.randint(0, max(count, 1), (many,), generator=torch.Generator().manual_seed(many), dtype=kind)
    begin, place = in_order(numbers, count)
    found, order = torch.sort(numbers, stable=True)
    assert begin.dtype == place.dtype == kind
    assert torch.equal(place.long(), order)
    assert [int((numbers < number).sum()) for number in range(count + 1)] == begin.tolist()
    assert torch.equal(numbers[place.long()], found)
    with set_aside():
        assert library_of(numbers) is None
        assert all(map(torch.equal, in_order(numbers, count), (begin, place)))


def test_columns_of_something():
    numbers = torch.tensor([[2, 7], [0, 7], [2, 7], [1, 7]], dtype=torch.int32)[:, 0]
    begin, place = in_order(numbers, 3)
    assert begin.tolist() == [0, 1, 2, 4]
    assert place.tolist() == [1, 3, 0, 2]


@pytest.mark.parametrize("odd", [-1, 3, 2**40])
def test_numbers_beyond_are_sorted_by_torch(odd):
    """A compiled function would count them outside of its memory."""
    numbers = torch.tensor([2, odd, 0, 2])
    begin, place = in_order(numbers, 3)
    assert torch.equal(place, torch.sort(numbers, stable=True).indices)
    assert begin.tolist() == [int((numbers < number).sum()) for number in range(4)]
