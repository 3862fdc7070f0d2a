"""What was found out about structures and is of use to every layer: index tensors, for as long as the structures live."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from tuplet.patterns.structure import Lines, Rows, Structure

_KNOWN = WeakIdKeyDictionary()


def notes_on(groups: tuple[Structure, ...]) -> dict[Any, Any]:
    """A dictionary that belongs to these structures; it is the same for structures that hold the same tensors."""
    first, *others = [tensor for group in groups for tensor in _own_tensors(group)]
    known = _KNOWN.setdefault(first, {})
    # the other tensors are kept, so that their ids stay theirs
    found: dict[Any, Any] = known.setdefault(tuple(map(id, others)), (others, {}))[1]
    return found


def _own_tensors(group: Structure) -> tuple[Tensor, ...]:
    """Tensors that no other structure has."""
    if isinstance(group, Lines):
        return group.query.start, group.key.start
    return (group.key if isinstance(group, Rows) else group.stride,)
