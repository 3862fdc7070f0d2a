"""How patterns are laid out for fused kernels: all groups of a pattern in one structure, nothing on the host but two lengths.

Head h of an attention walks the structure's group h mod groups: round-robin, as heads are dealt. Lists of keys may be joint: every head
walks all of them then, with one softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tuplet.patterns.relation import Equality, TypeMatrix
from tuplet.patterns.structure import Lines, Rows, Side, Structure

FUSED_LINES, FUSED_ROWS = 3, 4


@dataclass(frozen=True)
class FusedLines:
    """``Lines`` of several groups.

    Args:
        query, key: (groups, 3, lines) starts, strides and lengths of the two sides.
        query_order, key_order: (groups, T) what the numbers of a side point into; empty where they are tokens themselves.
        matrix: types of pairs, flat; empty without.
        types: (groups, 2, lines) where in ``matrix`` the types of a line begin, and its rows; empty without.
        entry: (groups, T) row of each token in that matrix; empty where it is the place in the line.
        longest: of the query and of the key sides, or a bound of it.
        skip_self: a query does not see the key with its own number.
    """

    query: Tensor
    key: Tensor
    query_order: Tensor
    key_order: Tensor
    matrix: Tensor
    types: Tensor
    entry: Tensor
    longest: tuple[int, int]
    skip_self: bool = False

    @property
    def groups(self) -> int:
        return self.query.shape[0]

    @property
    def lines(self) -> int:
        return self.query.shape[2]

    def pack(self) -> tuple[list[Tensor], list[int]]:
        tensors = [self.query, self.key, self.query_order, self.key_order, self.matrix, self.types, self.entry]
        return tensors, [FUSED_LINES, *self.longest, int(self.skip_self)]

    @property
    def flipped(self) -> FusedLines:
        """What the keys see if they see those that see them; without types."""
        sides = self.key, self.query, self.key_order, self.query_order
        return FusedLines(*sides, self.matrix[:0], self.types[:0], self.entry[:0], self.longest[::-1])

    @classmethod
    def stack(cls, groups: tuple[Lines, ...]) -> FusedLines:
        """The lines of all groups; a group with fewer lines than another one is filled up with empty ones."""
        count = max(len(group.query.start) for group in groups)
        relations = [group.relation for group in groups if isinstance(group.relation, TypeMatrix)]
        empty = groups[0].query.start.new_empty(0)
        return cls(
            _stacked([_side(group.query, count) for group in groups]),
            _stacked([_side(group.key, count) for group in groups]),
            _orders([group.query.order for group in groups]),
            _orders([group.key.order for group in groups]),
            relations[0].matrix if relations else empty,
            torch.stack([_fill(torch.stack([r.start, r.size]), count) for r in relations]) if relations else empty,
            _orders([relation.entry for relation in relations]) if relations else empty,
            groups[0].longest,
            groups[0].skip_self,
        )


def _side(side: Side, lines: int) -> Tensor:
    return _fill(torch.stack([side.start, side.stride, side.length]), lines)


def _fill(rows: Tensor, lines: int) -> Tensor:
    return rows if rows.shape[1] == lines else torch.nn.functional.pad(rows, (0, lines - rows.shape[1]))


def _orders(orders: list[Tensor]) -> Tensor:
    return _stacked(orders) if orders[0].numel() else orders[0]


def _stacked(parts: list[Tensor]) -> Tensor:
    """``torch.stack``, without a copy of a single part that is contiguous as kernels want it."""
    return torch.stack(parts) if len(parts) > 1 else parts[0].contiguous()[None]


@dataclass(frozen=True)
class FusedRows:
    """``Rows`` or ``Walk`` of several groups, in both directions: from a query to its keys and back.

    Args:
        begin, end: (groups, T1) first pair of each query and the one after its last; of a walk (N,) edges of each node.
        col: keys of all pairs; of a walk the target nodes.
        type: types of all pairs; of a walk those of the edges; empty where all have type 0.
        back_begin, back_end, back_col, back_type: the same from the keys to the queries.
        node: (groups, T) node at the group's axis; empty for rows.
        stride: (groups, T) distance between tokens whose nodes there differ by one; empty for rows.
        groups: how many.
        longest: the most keys of a query and the most queries of a key, or bounds of it; 0 where it is not known.
        joint: every head sees all groups, which have types of their own, one group's after another's; otherwise head h sees group h
            mod groups.
    """

    begin: Tensor
    end: Tensor
    col: Tensor
    type: Tensor
    back_begin: Tensor
    back_end: Tensor
    back_col: Tensor
    back_type: Tensor
    node: Tensor
    stride: Tensor
    groups: int
    longest: tuple[int, int] = (0, 0)
    joint: bool = False

    @property
    def ways(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Begins, ends, columns and types from queries to keys, and back."""
        back = (self.back_begin, self.back_end, self.back_col, self.back_type)
        return (self.begin, self.end, self.col, self.type), back

    def pack(self) -> tuple[list[Tensor], list[int]]:
        forth, back = self.ways
        return [*forth, *back, self.node, self.stride], [FUSED_ROWS, self.groups, *self.longest, int(self.joint)]

    @classmethod
    def rows(cls, groups: tuple[Rows, ...], keys: int, joint: bool = False) -> FusedRows:
        """The rows of all groups, and their transposes; ``keys`` is how many tokens are attended to."""
        empty = groups[0].rowptr.new_empty(0)
        back = tuple(group.transposed(keys) for group in groups)
        return cls(*_joined(groups), *_joined(back), empty, empty, len(groups), joint=joint)

    @classmethod
    def walk(
        cls,
        rowptr: Tensor,
        col: Tensor,
        type: Tensor,
        directed: bool,
        nodes: Sequence[Tensor],
        strides: Sequence[Tensor],
        joint: bool,
    ) -> FusedRows:
        """Walks along several axes of the same graphs; in a directed graph the way back is another one.

        ``type`` is that of each edge, empty where all are alike. ``nodes`` and ``strides`` are (T,) for each axis: the node that
        stands there, and how far the next one is.
        """
        rows = Rows(rowptr, col, type)
        back = rows.transposed(len(rowptr) - 1) if directed else rows
        return cls(
            rowptr[:-1],
            rowptr[1:],
            col,
            type,
            back.rowptr[:-1],
            back.rowptr[1:],
            back.key,
            back.type,
            torch.stack(list(nodes)),
            torch.stack(list(strides)),
            len(nodes),
            joint=joint,
        )


def _joined(groups: tuple[Rows, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    first, pointers = 0, []
    for group in groups:
        pointers.append(group.rowptr + first)
        first += len(group.key)
    pointer = torch.stack(pointers)
    keys, kinds = torch.cat([group.key for group in groups]), torch.cat([group.type for group in groups])
    return pointer[:, :-1].contiguous(), pointer[:, 1:].contiguous(), keys, kinds


Fused = FusedLines | FusedRows


def fuse(groups: tuple[Structure, ...], keys: int, joint: bool = False) -> tuple[Structure | Fused, ...]:
    """The groups of a pattern as one structure for kernels; as they are, planned, where there is no kernel for them.

    Args:
        groups: as ``Pattern.layouts`` gives them.
        keys: tokens attended to.
        joint: they are lists of keys that share a softmax, told apart by the group, and by types that each group has of its own.
    """
    rows = tuple(group for group in groups if isinstance(group, Rows))
    lines = tuple(group for group in groups if isinstance(group, Lines))
    if len(rows) == len(groups):
        return (FusedRows.rows(rows, keys, joint),)
    if len(lines) == len(groups) and not any(isinstance(group.relation, Equality) for group in lines):
        return (FusedLines.stack(lines),)
    return tuple(group.planned() for group in groups)


def unpack_fused(tensors: list[Tensor], integers: list[int]) -> Fused:
    """The structure that ``pack`` took apart."""
    if integers[0] == FUSED_ROWS:
        _, groups, *longest, joint = integers
        return FusedRows(*tensors, groups=groups, longest=(longest[0], longest[1]), joint=bool(joint))  # type: ignore[misc, arg-type]
    return FusedLines(*tensors, longest=(integers[1], integers[2]), skip_self=bool(integers[3]))  # type: ignore[misc, arg-type]
