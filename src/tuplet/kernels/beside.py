"""Work that needs nothing of other work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

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


class Late:
    """Work that nothing waits for but the end of a step, put off until ``later``: one branch.

    Args:
        results: what it returns.
        main: the stream that all other work begins and ends on.
        branch: the stream that it runs on, once there is any.
        done: when all is done that was put off until ``main`` did so last.
        read: what that reads; memory that must not be taken before.
        read_since: what is read by what other streams have put off since.
        held: what is read by what may take until the end.
    """

    now: Late | None = None

    def __init__(self) -> None:
        self.results: list[Tensor] = []
        self.main = torch.cuda.current_stream() if torch.cuda.is_available() else None
        self.branch: torch.cuda.Stream | None = None
        self.done: torch.cuda.Event | None = None
        self.read: list[Any] = []
        self.read_since: list[Any] = []
        self.held: list[Any] = []

    def untouched(self, tensors: Sequence[Tensor | None]) -> bool:
        """Whether all results are among these tensors, or their parts are: nobody has looked at one, to add it to another say."""
        places = {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor is not None}
        return all(result.untyped_storage().data_ptr() in places for result in self.results)


@contextmanager
def collected() -> Iterator[Late]:
    """At the end of this all is done that was put off until ``later``."""
    Late.now = late = Late()
    try:
        yield late
    finally:
        Late.now = None
        if late.branch is not None:
            torch.cuda.current_stream().wait_stream(late.branch)
        late.read, late.read_since, late.held = [], [], []


def later(*tasks: Callable[[], Found], read: Sequence[Any], hold: bool = False) -> list[Found]:
    """What the tasks return: tensors, or nothing. While a CUDA graph is recorded in ``collected``, they are part of a branch that runs
    beside all that follows; nobody may look at the results before the end of that. ``read`` are the tensors that they read.

    The main stream waits for what was put off up to the last time that it did so itself; what that read is then let go. Other streams
    wait for the main one whenever they begin. ``hold``: it is let go at the end, and nothing waits before, for what is small.
    """
    late = Late.now
    if late is None or not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return [task() for task in tasks]
    here = torch.cuda.current_stream()
    if late.branch is None:
        late.branch = _branch(-1, here.device_index)
    if here == late.main and late.done is not None and not hold:
        here.wait_event(late.done)
    late.branch.wait_stream(here)
    with torch.cuda.stream(late.branch):
        found = [task() for task in tasks]
    (late.held if hold else late.read_since).append(read)
    if here == late.main and not hold:
        late.read, late.read_since, late.done = late.read_since, [], late.branch.record_event()
    late.results += [one for one in found if isinstance(one, Tensor)]
    return found


class _Taken:
    """Branches that the outermost call and those within it have taken, and how deep they are."""

    branches, depth = 0, 0


def dealt(items: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    """The next so many items for each count: operators take lists, and tasks their own part of them."""
    left = iter(items)
    return [[next(left) for _ in range(count)] for count in counts]


FIRST = -1
"""The priority of streams that others wait for: where both have work, theirs begins first."""


@cache
def _branch(number: int, device: int) -> torch.cuda.Stream:
    """Always the same streams: the allocator keeps memory for each. That of what is put off has a negative number."""
    return torch.cuda.Stream(device, priority=0 if number < 0 else FIRST)
