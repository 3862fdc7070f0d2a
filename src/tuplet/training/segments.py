"""Rows of many graphs on a device, from which those of some graphs are picked without the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tuplet.kernels import pick


@dataclass(frozen=True)
class Taken:
    """Rows of some graphs, filled up with rows of padding.

    Args:
        ptr: (G+2,) first row of each graph, then of the padding, and the number of all rows.
        owner: (rows,) which of the graphs each row belongs to; G for padding.
        columns: their content; 0 for padding.
    """

    ptr: Tensor
    owner: Tensor
    columns: dict[str, Tensor]

    def shifted(self, name: str, first: Tensor) -> Tensor:
        """A column of numbers within each graph as numbers over the batch; ``first`` (G+2,) is where graphs begin there.

        Rows of padding get the first number that padding has there.
        """
        values = self.columns[name]
        begin = first[self.owner]
        return values + (begin[:, None] if values.dim() > 1 else begin)


class Segments:
    """Rows of some kind, graph after graph, with one row of zeros at the end for padding.

    Args:
        counts: (G,) rows of each graph.
        columns: tensors with these rows; those that are None are left out.
    """

    def __init__(self, counts: Tensor, columns: Mapping[str, Tensor | None]) -> None:
        self.counts = counts
        self.first = counts.cumsum(0) - counts
        self.rows = int(counts.sum())
        self.columns = {
            name: torch.cat([rows, rows.new_zeros(1, *rows.shape[1:])])
            for name, rows in columns.items()
            if rows is not None
        }

    @classmethod
    def join(cls, parts: Sequence[Segments]) -> Segments:
        """The segments of all graphs of all parts."""
        if len(parts) == 1:
            return parts[0]
        columns = {name: torch.cat([part.columns[name][:-1] for part in parts]) for name in parts[0].columns}
        return cls(torch.cat([part.counts for part in parts]), columns)

    @property
    def bytes(self) -> int:
        return sum(rows.numel() * rows.element_size() for rows in self.columns.values())

    def take(self, ids: Tensor, room: int) -> Taken:
        """The rows of some graphs, filled up to ``room``, which is more than they have."""
        ptr, owner, source = pick(ids, self.counts, self.first, room, self.rows)
        return Taken(ptr, owner, {name: rows[source] for name, rows in self.columns.items()})
