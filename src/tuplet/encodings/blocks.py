"""Graphs of equal size as one stack of dense matrices: how all batched linear algebra of this room is done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor

from tuplet._memory import available_bytes
from tuplet.encodings.base import Encoding
from tuplet.errors import TooLargeError
from tuplet.graphs import GraphBatch, offsets, repeat

ENTRIES = 1 << 20
"""Most entries of a stack of matrices, unless one matrix alone has more."""
LARGEST = 1 << 29
"""Most entries of one matrix (4 GiB in float64) before the work is refused."""


def room_for(
    encoding: Encoding, shape: Sequence[int], sizes: Sequence[int], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Zeros of a shape, for the statistics of an encoding that is computed with dense matrices of the given sizes.

    Both are refused in words, before anything is allocated, where there is no memory for them.
    """
    largest, rows = max(sizes, default=0), shape[0]
    needed = prod(shape) * dtype.itemsize + working_bytes(encoding, sizes)
    available = available_bytes(device)
    if needed <= available and largest**2 <= LARGEST:
        return torch.zeros(tuple(shape), dtype=dtype, device=device)
    limit = f", whose limit is {LARGEST:,}" if largest**2 > LARGEST else ""
    raise TooLargeError(
        f"{encoding} needs about {needed / 1e9:.1f} GB and {device} has {available / 1e9:.1f} GB: its statistics are "
        f"{rows:,} rows of {prod(shape[1:])}, computed with dense matrices, one a graph, of up to {largest:,} × {largest:,} "
        f"numbers{limit}. Cheaper: DEG; or use fewer graphs a batch, or smaller ones."
    )


def working_bytes(encoding: Encoding, sizes: Sequence[int]) -> int:
    """Most bytes of matrices of the given sizes that exist at once while the statistics of an encoding are computed."""
    squares = [size * size for size in sizes]
    return 8 * encoding.matrices * max(*squares, min(ENTRIES, sum(squares)), 0)


def blocks(
    sizes: Sequence[int], row: Tensor, col: Tensor, weight: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Cut a sparse block-diagonal matrix into stacks of dense blocks of equal size.

    Args:
        sizes: rows of each block, on the host; rows are numbered block after block. Blocks of size 0 are left out.
        row, col: (E,) places of the entries, each once.
        weight: (E,) the entries, by default 1.

    Yields:
        for B blocks of size m: their numbers (B,), their rows (B, m), and the matrices (B, m, m) in float64.
    """
    device = row.device
    stacks = _stacks(np.asarray(sizes, dtype=np.int64))
    stack, place = torch.zeros((2, len(sizes)), dtype=torch.long)
    for number, members in enumerate(stacks):
        stack[members] = number
        place[members] = torch.arange(len(members))
    stack, place = stack.to(device), place.to(device)
    ptr = offsets(tuple(sizes), device)
    block_of_row = repeat(torch.arange(len(sizes), device=device), ptr[1:] - ptr[:-1], sum(sizes))
    block = block_of_row[row]
    order = torch.argsort(stack[block], stable=True)
    ends = torch.bincount(stack[block], minlength=len(stacks)).cumsum(0).tolist()
    for number, members in enumerate(stacks):
        m, members = sizes[int(members[0])], members.to(device)
        entries = order[ends[number - 1] if number else 0 : ends[number]]
        first = ptr[block[entries]]
        matrix = torch.zeros(len(members), m, m, dtype=torch.float64, device=device)
        values = matrix.new_ones(()) if weight is None else weight[entries].to(torch.float64)
        matrix[place[block[entries]], row[entries] - first, col[entries] - first] = values
        yield members, ptr[members][:, None] + torch.arange(m, device=device), matrix


def adjacency_blocks(graph: GraphBatch, directed: bool = False) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Graphs (B,), nodes (B, n) and adjacency matrices (B, n, n) of graphs of equal size.

    A directed graph keeps its directions with ``directed``; otherwise its underlying undirected graph is taken.
    """
    row, col = (graph.row, graph.col) if directed else graph.undirected_edges()
    return blocks(graph.sizes, row, col)


def pair_rows(graph: GraphBatch, graphs: Tensor, n: int) -> Tensor:
    """(B, n·n) rows that the ordered pairs of the given graphs, all of size n, have in a pair field."""
    first = offsets(pair_counts(graph), graph.device)[graphs]
    return first[:, None] + torch.arange(n * n, device=graph.device)


def pair_counts(graph: GraphBatch) -> tuple[int, ...]:
    """Ordered pairs of each graph."""
    return tuple(n * n for n in graph.sizes)


def walk_matrix(adjacency: Tensor) -> Tensor:
    """P = D⁻¹ A, one step of the random walk; a node that no edge leaves has a row of zeros: the walk ends there."""
    out = adjacency.sum(dim=2, keepdim=True)
    return torch.where(out > 0, adjacency / out.clamp_min(torch.finfo(out.dtype).tiny), 0.0)


def return_probabilities(step: Tensor, steps: int) -> Tensor:
    """(B, m, S) the diagonals of P, P², .., P^S, from half as many products: (P^(a+b))_ii = Σ_j (P^a)_ij (P^b)_ji."""
    out = step.new_empty(*step.shape[:2], steps)
    before, power = torch.eye(step.shape[1], dtype=step.dtype, device=step.device), step
    for s in range(0, steps, 2):
        out[:, :, s] = (before * power.mT).sum(2)
        if s + 1 < steps:
            out[:, :, s + 1] = (power * power.mT).sum(2)
            before, power = power, power @ step
    return out


def _stacks(sizes: np.ndarray) -> list[Tensor]:
    """Numbers of the blocks that go together: equal sizes, and not more than ``ENTRIES`` entries where it can be helped."""
    order = np.argsort(sizes, kind="stable")
    stacks = []
    for members in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1):
        m = int(sizes[members[0]]) if len(members) else 0
        if m:
            count = max(1, ENTRIES // m**2)
            stacks += [torch.from_numpy(members[i : i + count]) for i in range(0, len(members), count)]
    return stacks
