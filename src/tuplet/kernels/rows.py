"""Taking rows of a table, and adding rows up: each is the gradient of the other. On a GPU without atomics, so that runs repeat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tuplet.kernels.beside import beside, dealt
from tuplet.kernels.sizes import has_kernels, power

SMALL = 128
"""Tables of so many rows have their gradient by comparing every row number with all of them."""
PARTS = 128
"""Programs that share the rows then."""
LONG = 128
"""Rows that are added up at once, where lists are at least so long on average: what waits for memory waits less often."""
MOST = 3
"""Tables whose rows a kernel adds at once."""


@dataclass(frozen=True)
class Lists:
    """Which row of a table each token takes, and for each row the tokens that take it.

    Args:
        rows: (T,) the row of each token.
        order: tokens, those that take the same row one after another; empty where they stand so already.
        begin, end: (R,) where in ``order`` the tokens of each row stand.
        special: so many rows of the table come first that are taken by too many tokens to list; their lists are empty.
    """

    rows: Tensor
    order: Tensor
    begin: Tensor
    end: Tensor
    special: int = 0

    @classmethod
    def sort(cls, rows: Tensor, count: int, special: int = 0) -> Lists:
        """From the row of each token alone."""
        found, order = torch.sort(rows, stable=True)
        bounds = torch.searchsorted(found, torch.arange(count + 1, device=rows.device))
        begin, end = bounds[:-1], bounds[1:].clone()
        end[:special] = begin[:special]
        return cls(rows, order, begin, end, special)


def listed(rows: Tensor, count: int) -> Tensor | Lists:
    """Rows of a table of ``count``, on a GPU with the tokens that take each: sums over them are then quick, and repeat."""
    return Lists.sort(rows, count) if rows.device.type == "cuda" else rows


def take(x: Tensor, rows: Tensor | Lists) -> Tensor:
    """(T, d) rows of a table ``x`` (R, d). With ``Lists``, or for a small table, the gradient is as quick as the taking."""
    numbers = rows.rows if isinstance(rows, Lists) else rows
    if not has_kernels(x) or (len(x) > SMALL and not isinstance(rows, Lists)):
        return F.embedding(numbers, x)
    return _take(x, *lists_of(x, rows))


def lists_of(table: Tensor, rows: Tensor | Lists) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """The row of each token, the lists of tokens, and how many rows have none: all of a small table."""
    numbers = (rows.rows if isinstance(rows, Lists) else rows).contiguous()  # it may be a column of something
    if len(table) <= SMALL or not isinstance(rows, Lists):
        empty = numbers.new_empty(0)
        return numbers, empty, empty, empty, len(table)
    return numbers, rows.order, rows.begin, rows.end, rows.special


def take_sum(first: Tensor, parts: Sequence[tuple[Tensor, Tensor | Lists]]) -> Tensor:
    """(T, d) ``first`` and of each part, a table and which of its rows each token takes, those rows."""
    parts = list(parts)
    quick = has_kernels(first) and all(isinstance(rows, Lists) or len(table) <= SMALL for table, rows in parts)
    if not quick:
        for table, rows in parts:
            first = first + take(table, rows)
        return first
    while parts:
        some, parts = parts[:MOST], parts[MOST:]
        lists = [lists_of(table, rows) for table, rows in some]
        numbers = [tensor for rows, *others, _ in lists for tensor in (rows, *others)]
        first = _take_sum(first, [table for table, _ in some], numbers, [special for *_, special in lists])
    return first


def add_up(x: Tensor, lists: Lists) -> Tensor:
    """(R, d) for each row of a table the sum of the tokens (T, d) that take it."""
    if not has_kernels(x):
        return x.new_zeros(len(lists.begin), x.shape[1]).index_add(0, lists.rows, x)
    return _add_up(x, lists.rows, lists.order, lists.begin, lists.end)


@torch.library.custom_op("tuplet::pick", mutates_args=())
def pick(ids: Tensor, counts: Tensor, first: Tensor, room: int, last: int) -> tuple[Tensor, Tensor, Tensor]:
    """The rows of some graphs among those of all, in a batch with ``room`` places, the rest of which is padding.

    Args:
        ids: (G,) which graphs.
        counts, first: of all graphs, how many rows each has and where they begin.
        room: places of the batch.
        last: the row that stands for padding.

    Returns:
        (G+2,) where each graph begins, then padding, then ``room``; (room,) the graph of each place, G for padding; and (room,)
        the row that stands there.
    """
    from tuplet.kernels import picking_kernels

    ptr, owner, source = _picked(ids, room)
    tile = _tile(ids)
    picking_kernels.pick[(-(-room // tile["ROWS"]),)](
        ids, counts, first, ptr, owner, source, len(ids), room, last, **tile
    )
    return ptr, owner, source


@pick.register_fake
def _(ids: Tensor, counts: Tensor, first: Tensor, room: int, last: int) -> tuple[Tensor, Tensor, Tensor]:
    return _picked(ids, room)


def _picked(graphs: Tensor, room: int) -> tuple[Tensor, Tensor, Tensor]:
    return graphs.new_empty(len(graphs) + 2), graphs.new_empty(room), graphs.new_empty(room)


def _tile(graphs: Tensor) -> dict[str, int]:
    """Places of a tile, and graphs, each of which is compared with each."""
    count = power(len(graphs), 1)
    return {"ROWS": max(16, min(128, 8192 // count)), "GRAPHS": count}


@torch.library.custom_op("tuplet::lay_out", mutates_args=())
def lay_out(sizes: Tensor, order: int, room: int) -> tuple[Tensor, Tensor, Tensor]:
    """All tuples of graphs of some sizes (G,), in a batch with ``room`` places, the rest of which is padding.

    Returns:
        (G+2,) where the tuples of each graph begin, then padding, then ``room``; (room,) the graph of each place, G for
        padding; and (room,) the number of each tuple within its graph, 0 for padding.
    """
    from tuplet.kernels import picking_kernels

    ptr, owner, place = _picked(sizes, room)
    tile = _tile(sizes)
    picking_kernels.lay_out[(-(-room // tile["ROWS"]),)](
        sizes, ptr, owner, place, len(sizes), room, ORDER=order, **tile
    )
    return ptr, owner, place


@lay_out.register_fake
def _(sizes: Tensor, order: int, room: int) -> tuple[Tensor, Tensor, Tensor]:
    return _picked(sizes, room)


@torch.library.custom_op("tuplet::take", mutates_args=())
def _take(x: Tensor, rows: Tensor, order: Tensor, begin: Tensor, end: Tensor, special: int) -> Tensor:
    return _taken(x, rows)


@_take.register_fake
def _(x: Tensor, rows: Tensor, *_: Any) -> Tensor:
    return x.new_empty(len(rows), x.shape[1])


def _taken(x: Tensor, rows: Tensor) -> Tensor:
    """(T, d) rows of a table: several of them a program, where torch has one, which takes longer to begin than to copy a short row."""
    from tuplet.kernels import row_kernels

    x, rows = x.contiguous(), rows.contiguous()
    out = x.new_empty(len(rows), x.shape[1])
    tile, width = 32, min(64, power(x.shape[1], 16))
    if out.numel():
        row_kernels.take[-(-len(out) // tile), -(-out.shape[1] // width)](
            x, rows, out, *out.shape, ROWS=tile, WIDTH=width
        )
    return out


@torch.library.custom_op("tuplet::take_rows", mutates_args=())
def _take_rows(x: Tensor, rows: Tensor) -> Tensor:
    return _taken(x, rows)


@_take_rows.register_fake
def _(x: Tensor, rows: Tensor) -> Tensor:
    return x.new_empty(len(rows), x.shape[1])


@torch.library.custom_op("tuplet::take_backward", mutates_args=())
def _take_gradient(
    grad: Tensor, rows: Tensor, order: Tensor, begin: Tensor, end: Tensor, special: int, count: int
) -> Tensor:
    out = grad.new_empty(count, grad.shape[1])
    add_taken(grad.contiguous(), rows, order, begin, end, special, out)
    return out


def add_taken(grad: Tensor, rows: Tensor, order: Tensor, begin: Tensor, end: Tensor, special: int, out: Tensor) -> None:
    """Write to ``out``, for each row of a table, the sum of the gradients (T, d) of the tokens that take it."""
    from tuplet.kernels import row_kernels
    from tuplet.kernels.dense import add_shares

    if special < len(out):
        _launch_add_up(grad, order, begin, end, out)
    if special:
        tile, width = 64, min(64, power(grad.shape[1], 16))
        parts = max(1, min(PARTS, -(-len(grad) // tile)))
        share = grad.new_empty(parts, special, grad.shape[1], dtype=torch.float32)
        row_kernels.add_by_kind[parts, -(-grad.shape[1] // width)](
            grad, rows, share, len(grad), grad.shape[1], special, parts, PRECISION="ieee", ROWS=tile, WIDTH=width,
            KINDS=power(special, 16),
        )  # fmt: skip
        out[:special] = add_shares(share, out.dtype)


@_take_gradient.register_fake
def _(grad: Tensor, rows: Tensor, order: Tensor, begin: Tensor, end: Tensor, special: int, count: int) -> Tensor:
    return grad.new_empty(count, grad.shape[1])


def _take_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, *lists, special = inputs
    ctx.save_for_backward(*lists)
    ctx.special, ctx.count = special, len(x)


def _take_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _take_gradient(grad, *ctx.saved_tensors, ctx.special, ctx.count), None, None, None, None, None


_take.register_autograd(_take_backward, setup_context=_take_setup)


@torch.library.custom_op("tuplet::take_sum", mutates_args=())
def _take_sum(first: Tensor, tables: Sequence[Tensor], numbers: Sequence[Tensor], special: Sequence[int]) -> Tensor:
    from tuplet.kernels import row_kernels

    first = first.contiguous()
    out = torch.empty_like(first)
    given = [tensor for table, rows in zip(tables, numbers[::4], strict=True) for tensor in (table.contiguous(), rows)]
    given += given[:2] * (MOST - len(tables))
    tile, width = 32, min(64, power(first.shape[1], 16))
    row_kernels.take_sum[-(-len(first) // tile), -(-first.shape[1] // width)](
        first, *given, out, *first.shape, COUNT=len(tables), ROWS=tile, WIDTH=width
    )
    return out


@_take_sum.register_fake
def _(first: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(first, memory_format=torch.contiguous_format)


@torch.library.custom_op("tuplet::take_sum_backward", mutates_args=())
def _take_sum_gradient(
    grad: Tensor, numbers: Sequence[Tensor], special: Sequence[int], counts: Sequence[int]
) -> list[Tensor]:
    """Of each table."""
    grad, width = grad.contiguous(), grad.shape[1]
    found = [grad.new_empty(count, width) for count in counts]
    lists = zip(dealt(numbers, [4] * len(counts)), special, found, strict=True)
    beside(*(partial(add_taken, grad, *own, *rest) for own, *rest in lists))
    return found


@_take_sum_gradient.register_fake
def _(grad: Tensor, numbers: Any, special: Any, counts: Sequence[int]) -> list[Tensor]:
    return [grad.new_empty(count, grad.shape[1]) for count in counts]


def _take_sum_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, tables, numbers, special = inputs
    ctx.save_for_backward(*numbers)
    ctx.special, ctx.counts = special, [len(table) for table in tables]


def _take_sum_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    numbers = list(ctx.saved_tensors)
    return grad, _take_sum_gradient(grad, numbers, ctx.special, ctx.counts), [None] * len(numbers), None


_take_sum.register_autograd(_take_sum_backward, setup_context=_take_sum_setup)


@torch.library.custom_op("tuplet::add_up", mutates_args=())
def _add_up(x: Tensor, rows: Tensor, order: Tensor, begin: Tensor, end: Tensor) -> Tensor:
    out = x.new_empty(len(begin), x.shape[1])
    _launch_add_up(x.contiguous(), order, begin, end, out)
    return out


@_add_up.register_fake
def _(x: Tensor, rows: Tensor, order: Tensor, begin: Tensor, end: Tensor) -> Tensor:
    return x.new_empty(len(begin), x.shape[1])


def _add_up_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])


def _add_up_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _take_rows(grad, ctx.saved_tensors[0]), None, None, None, None


_add_up.register_autograd(_add_up_backward, setup_context=_add_up_setup)


def _launch_add_up(x: Tensor, order: Tensor, begin: Tensor, end: Tensor, out: Tensor) -> None:
    from tuplet.kernels import row_kernels

    if len(begin) == 0:
        return
    width = min(64, power(x.shape[1], 16))
    long = len(x) >= LONG * len(begin)
    sizes = {"ROWS": LONG if long else 32, "WIDTH": width, "num_warps": 8 if long else 4}
    row_kernels.add_up[len(begin), -(-x.shape[1] // width)](
        x, order, begin, end, out, x.shape[1], out.stride(0), ORDERED=order.numel() > 0, **sizes
    )
