"""Work that needs nothing of other work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import torch

Found = TypeVar("Found")


def beside(*tasks: Callable[[], Found]) -> list[Found]:
    """What the tasks return. While a CUDA graph is recorded they become branches of it, which run side by side; else they run
    one after the other.

    A branch waits for all that came before, and all that comes after waits for it: memory that it gives back is not taken again
    too soon. Tasks may have branches of their own, which no other task shares.
    """
    if len(tasks) < 2 or not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return [task() for task in tasks]
    main, first, outermost = torch.cuda.current_stream(), _Taken.branches, _Taken.depth == 0
    _Taken.branches, _Taken.depth = first + len(tasks) - 1, _Taken.depth + 1
    branches = [_branch(number, main.device_index) for number in range(first, _Taken.branches)]
    found = []
    try:
        for branch, task in zip(branches, tasks[1:], strict=True):
            branch.wait_stream(main)
            with torch.cuda.stream(branch):
                found.append(task())
        found.insert(0, tasks[0]())
        for branch in branches:
            main.wait_stream(branch)
    finally:
        _Taken.depth -= 1
        if outermost:
            _Taken.branches = 0
    return found


class _Taken:
    """Branches that the outermost call and those within it have taken, and how deep they are."""

    branches, depth = 0, 0


def dealt(items: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    """The next so many items for each count: operators take lists, and tasks their own part of them."""
    left = iter(items)
    return [[next(left) for _ in range(count)] for count in counts]


@cache
def _branch(number: int, device: int) -> torch.cuda.Stream:
    """Always the same streams: the allocator keeps memory for each."""
    return torch.cuda.Stream(device)
