"""Rows of many graphs on a device, from which those of some graphs are picked without the host."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from tuplet.kernels import pick


@dataclass(frozen=True)
class Taken:
    """Rows of some graphs, filled up with rows of padding.

    Args:
        ptr: (G+2,) first row of each graph, then of the padding, and the number of all rows.
        owner: (rows,) which of the graphs each row belongs to; G for padding.
        columns: their content; 0 for padding. Of integers each number of a row is a contiguous vector over the rows.
    """

    ptr: Tensor
    owner: Tensor
    columns: dict[str, Tensor]

    def shifted(self, name: str, first: Tensor) -> Tensor:
        """A column of numbers within each graph as numbers over the batch; ``first`` (G+2,) is where graphs begin there.

        Rows of padding get the first number that padding has there.
        """
        return (self.columns[name].movedim(0, -1) + first[self.owner]).movedim(-1, 0)


class Segments:
    """Rows of some kind, graph after graph, with one row of zeros at the end for padding.

    Integers of one type stand together in one matrix, so that they are picked at once; in 16 or 32 bits, where they fit.

    Args:
        counts: (G,) rows of each graph.
        columns: tensors with these rows; those that are None are left out.
    """

    def __init__(self, counts: Tensor, columns: Mapping[str, Tensor | None]) -> None:
        given = {name: rows for name, rows in columns.items() if rows is not None}
        self.shapes = {name: rows.shape[1:] for name, rows in given.items()}
        self.together: dict[torch.dtype, list[str]] = {}
        for name, rows in given.items():
            if not rows.is_floating_point():
                self.together.setdefault(rows.dtype, []).append(name)
        self.columns = {name: _padded(rows, 0) for name, rows in given.items() if rows.is_floating_point()}
        for kind, names in self.together.items():
            flat = [given[name].reshape(len(given[name]), self.shapes[name].numel()).t() for name in names]
            self.columns[str(kind)] = _padded(_narrow(torch.cat(flat)), 1)
        self._count(counts)

    def _count(self, counts: Tensor) -> None:
        self.counts, self.first, self.rows = counts, counts.cumsum(0) - counts, int(counts.sum())

    @classmethod
    def join(cls, parts: Sequence[Segments]) -> Segments:
        """The segments of all graphs of all parts."""
        if len(parts) == 1:
            return parts[0]
        joined = copy.copy(parts[0])
        joined.columns = {}
        for name in parts[0].columns:
            axis = joined._axis(name)
            rows = [part.columns[name].narrow(axis, 0, part.rows) for part in parts]
            joined.columns[name] = _padded(torch.cat(rows, axis), axis)
        joined._count(torch.cat([part.counts for part in parts]))
        return joined

    def _axis(self, name: str) -> int:
        """That of the rows: integers stand as lines of a matrix."""
        return int(name in map(str, self.together))

    @property
    def bytes(self) -> int:
        return sum(rows.numel() * rows.element_size() for rows in self.columns.values())

    def source(self, ids: Tensor, room: int) -> Tensor:
        """(room,) where the rows of some graphs stand among those of all; for padding the row after the last."""
        return pick(ids, self.counts, self.first, room, self.rows)[2]

    def take(self, ids: Tensor, room: int) -> Taken:
        """The rows of some graphs, filled up to ``room``, which is more than they have."""
        ptr, owner, source = pick(ids, self.counts, self.first, room, self.rows)
        found = {name: rows.index_select(self._axis(name), source) for name, rows in self.columns.items()}
        return Taken(ptr, owner, self._apart(found))

    def _apart(self, columns: dict[str, Tensor]) -> dict[str, Tensor]:
        """The columns by their own names, rows first."""
        found = {name: rows for name, rows in columns.items() if not self._axis(name)}
        for kind, names in self.together.items():
            shapes = [self.shapes[name] for name in names]
            parts = columns[str(kind)].to(kind).split([shape.numel() for shape in shapes])
            for name, shape, part in zip(names, shapes, parts, strict=True):
                found[name] = part.reshape(*shape, part.shape[1]).movedim(-1, 0)
        return found


def _narrow(rows: Tensor) -> Tensor:
    """In 16 or 32 bits, if all numbers fit."""
    if rows.dtype != torch.int64 or rows.numel() == 0:
        return rows
    least, most = (int(end) for end in torch.aminmax(rows))
    for kind in (torch.int16, torch.int32):
        if torch.iinfo(kind).min <= least and most <= torch.iinfo(kind).max:
            return rows.to(kind)
    return rows


def _padded(rows: Tensor, axis: int) -> Tensor:
    """With one more row of zeros."""
    return F.pad(rows, (0, 1) if axis else (*[0] * (2 * rows.dim() - 1), 1))
