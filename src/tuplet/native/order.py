"""Small whole numbers in order, on a CPU by counting: a sort does not know that they are small."""

from __future__ import annotations

import torch
from torch import Tensor

from tuplet.native.library import Library, load


def library_of(indices: Tensor) -> Library | None:
    """Functions for lists of integers, which are the same for all types of numbers."""
    return load(torch.empty(0)) if indices.is_cpu else None


def in_order(numbers: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Where each of 0, .., count - 1 begins among (P,) such numbers when they stand in order, (count + 1,); and the (P,) places they come
    from, those of equal numbers as they were. Both are of the numbers' type, which holds P."""
    library = library_of(numbers)
    if library is not None and max(len(numbers), count) < 1 << 31 and _below(numbers, count):
        begin, place = (numbers.new_empty(size, dtype=torch.int32) for size in (count + 1, len(numbers)))
        library.run("count_out", len(numbers), count, numbers.int().contiguous(), begin, place)
    else:
        found, place = torch.sort(numbers, stable=True)
        begin = torch.searchsorted(found, torch.arange(count + 1, dtype=found.dtype, device=found.device))
    return begin.to(numbers.dtype), place.to(numbers.dtype)


def _below(numbers: Tensor, count: int) -> bool:
    """Whether a compiled function can count them."""
    if len(numbers) == 0:
        return True
    least, most = torch.aminmax(numbers)
    return int(least) >= 0 and int(most) < count
