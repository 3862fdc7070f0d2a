"""Samples of k-tuples (section 4.3 and appendix "Third-Order Variants"): connected ones, and random ones.

A sample is input: a transform draws it once from seed and graph into ``data.tuples``, so that every epoch, device and
permuted copy sees the same tokens. ``connected_tuples`` and ``random_tuples`` do the same for a checked batch.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from itertools import product
from math import comb

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from tuplet.errors import InputError, OptionError, TooLargeError
from tuplet.graphs import GraphBatch, read

LIMIT = 50_000_000
"""Most tuples that are enumerated or drawn for one batch before the work is refused."""
_SMALLER = "Use smaller batches, a lower order, or random:N without connected_share."


def connected_tuples(graph: GraphBatch, order: int, repeats: bool = True, limit: int = LIMIT) -> GraphBatch:
    """The batch with all ordered k-tuples whose entries induce a connected subgraph.

    Args:
        graph: a checked batch.
        order: k.
        repeats: whether an entry may occur more than once (then every node v is covered by (v, .., v)).
        limit: refuse before more tuples than this, or more candidates for them, are made.
    """
    _check_order(order)
    rowptr, col = _undirected(graph)
    rows = [torch.empty(0, order, dtype=torch.long, device=graph.device)]
    subsets = torch.arange(graph.num_nodes, device=graph.device)[:, None]  # (number of connected sets, size)
    made = 0
    for size in range(1, order + 1):
        if size > 1:
            subsets = _grow(rowptr, col, subsets, limit)
        if len(subsets) and (size == order or repeats):
            made += len(subsets) * _surjections(order, size)
            if made > limit:
                raise TooLargeError(
                    f"connected {order}-tuples: at least {made:,} in a batch of {graph.num_nodes:,} nodes and "
                    f"{graph.num_edges:,} directed edges, above the limit of {limit:,}. {_SMALLER}"
                )
            arrangements = _arrangements(order, size).to(graph.device)
            rows.append(subsets[:, arrangements].reshape(-1, order))
    return _with_sample(graph, torch.cat(rows))


def random_tuples(
    graph: GraphBatch, order: int, budget: int, seed: int = 0, connected_share: float = 0.0
) -> GraphBatch:
    """The batch with ``budget`` ordered k-tuples a graph, without replacement; all of them where there are fewer.

    Args:
        graph: a checked batch.
        order: k.
        budget: tuples of each graph.
        seed: with the graph itself it fixes the sample, whatever the batch around it.
        connected_share: part of the budget that is drawn among the connected tuples first; the rest is uniform.
    """
    _check_order(order)
    if budget < 1:
        raise OptionError(f"random:N: expected N >= 1; came {budget}")
    if not 0 <= connected_share <= 1:
        raise OptionError(f"connected_share: expected a number in [0, 1]; came {connected_share}")
    if seed < 0:
        raise OptionError(f"seed: expected an int >= 0; came {seed}")
    total = sum(min(budget, n**order) for n in graph.sizes)
    if total > LIMIT or max(graph.sizes) ** order >= 2**63:
        raise TooLargeError(
            f"random {order}-tuples: {total:,} of graphs of up to {max(graph.sizes):,} nodes, above the limit of "
            f"{LIMIT:,} tuples or of 2^63 possible ones. Use a smaller N, smaller batches, or a lower order."
        )
    connected = connected_tuples(graph, order) if connected_share else None
    starts = np.cumsum([0, *(connected.tuple_counts or ())]) if connected else None
    rowptr, col = (tensor.cpu().numpy() for tensor in _undirected(graph))
    ptr = graph.ptr.tolist()
    samples = []
    for number, n in enumerate(graph.sizes):
        first, end = ptr[number], ptr[number + 1]
        edges = col[rowptr[first] : rowptr[end]] - first
        degrees = np.diff(rowptr[first : end + 1])
        fingerprint = zlib.crc32(edges.astype(np.int64).tobytes(), zlib.crc32(degrees.astype(np.int64).tobytes()))
        generator = np.random.default_rng([seed, n, fingerprint])
        chosen = np.empty(0, dtype=np.int64)
        if connected is not None and starts is not None and connected.tuples is not None:
            rows = connected.tuples[starts[number] : starts[number + 1]].cpu().numpy()
            wanted = min(len(rows), round(budget * connected_share))
            rows = rows[generator.choice(len(rows), wanted, replace=False)]
            chosen = (rows * n ** np.arange(order - 1, -1, -1)).sum(1)
        codes = _draw(generator, n**order, budget, chosen)
        samples.append(np.stack([codes // n ** (order - 1 - axis) % n for axis in range(order)], axis=1) + first)
    return _with_sample(graph, torch.from_numpy(np.concatenate(samples)).to(graph.device))


def _draw(generator: np.random.Generator, population: int, budget: int, chosen: np.ndarray) -> np.ndarray:
    """``budget`` distinct numbers below ``population`` that include ``chosen``, in increasing order."""
    if population <= budget:
        return np.arange(population)
    if population <= 4 * budget:
        rest = np.setdiff1d(np.arange(population), chosen, assume_unique=True)
        return np.sort(np.concatenate([chosen, generator.choice(rest, budget - len(chosen), replace=False)]))
    while len(chosen) < budget:  # sparse: drawing again what was drawn before is rare
        fresh = np.setdiff1d(generator.integers(population, size=2 * budget), chosen)
        chosen = np.concatenate([chosen, generator.permutation(fresh)[: budget - len(chosen)]])
    return np.sort(chosen)


def _undirected(graph: GraphBatch) -> tuple[Tensor, Tensor]:
    """``rowptr`` and ``col`` with every edge in both directions: directed graphs are sampled by weak connectivity."""
    if not graph.directed:
        return graph.rowptr, graph.col
    row, col = graph.undirected_edges()
    rowptr = torch.zeros(graph.num_nodes + 1, dtype=torch.long, device=graph.device)
    rowptr[1:] = torch.bincount(row, minlength=graph.num_nodes).cumsum(0)
    return rowptr, col


def _grow(rowptr: Tensor, col: Tensor, subsets: Tensor, limit: int) -> Tensor:
    """Connected sets of one more node: every set joined with every neighbour of every member, each set once."""
    count, size = subsets.shape
    total = int((rowptr[1:] - rowptr[:-1])[subsets].sum())
    if total > limit:
        raise TooLargeError(
            f"connected sets of {size + 1} nodes: {total:,} candidates, above the limit of {limit:,}. {_SMALLER}"
        )
    members = subsets.reshape(-1)
    begin = rowptr[members]
    lengths = rowptr[members + 1] - begin
    owner = torch.repeat_interleave(torch.arange(count * size, device=members.device), lengths)
    slot = torch.arange(total, device=members.device) - (lengths.cumsum(0) - lengths)[owner]
    grown = torch.cat([subsets[owner // size], col[begin[owner] + slot][:, None]], dim=1).sort(1).values
    grown = grown[(grown[:, 1:] != grown[:, :-1]).all(1)]
    return torch.unique(grown, dim=0)


def _check_order(order: int) -> None:
    if order < 1:
        raise OptionError(f"order: expected an int >= 1; came {order}")


def _surjections(order: int, size: int) -> int:
    """How many rows ``_arrangements`` has."""
    return sum((-1) ** left_out * comb(size, left_out) * (size - left_out) ** order for left_out in range(size + 1))


def _arrangements(order: int, size: int) -> Tensor:
    """All ways to fill ``order`` places with ``size`` members so that each occurs: (surjections, order)."""
    places = [row for row in product(range(size), repeat=order) if len(set(row)) == size]
    return torch.tensor(places, dtype=torch.long)


def _with_sample(graph: GraphBatch, nodes: Tensor) -> GraphBatch:
    """Attach tuples numbered over the batch, sorted by graph and then as numbers."""
    owner = graph.graph_of_node[nodes[:, 0]]
    rows = torch.unique(torch.cat([owner[:, None], nodes], dim=1), dim=0)
    counts = torch.bincount(rows[:, 0], minlength=graph.num_graphs)
    local = rows[:, 1:] - graph.ptr[rows[:, :1]]
    return replace(graph, tuples=local, tuple_counts=tuple(counts.tolist()))


class _Sample(BaseTransform):
    """Draws a graph's tuples once into ``data.tuples`` (S, k) and ``data.num_tuples``; the input is not altered."""

    def __init__(self, order: int) -> None:
        self.order = order

    def draw(self, graph: GraphBatch) -> GraphBatch:
        raise NotImplementedError("a sample draws its tuples in a subclass")

    def __repr__(self) -> str:  # PyG's datasets tell by it whether a processed copy is still up to date
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in vars(self).items())})"

    def forward(self, data: Data) -> Data:
        if isinstance(data, Batch):
            raise InputError("data", "one graph: samples are drawn before graphs are collated", "a Batch")
        bare = Data(edge_index=data.edge_index, num_nodes=data.num_nodes)
        sample = self.draw(read(bare, undirected="symmetrise"))
        data.tuples = sample.tuples
        data.num_tuples = sample.tuple_counts[0] if sample.tuple_counts else 0
        return data


class ConnectedTuples(_Sample):
    """Transform: all connected k-tuples of a graph (``A3(connected)``)."""

    def __init__(self, order: int, repeats: bool = True) -> None:
        super().__init__(order)
        self.repeats = repeats

    def draw(self, graph: GraphBatch) -> GraphBatch:
        return connected_tuples(graph, self.order, self.repeats)


class RandomTuples(_Sample):
    """Transform: ``budget`` random k-tuples of a graph (``A3(random:4096)``)."""

    def __init__(self, order: int, budget: int, seed: int = 0, connected_share: float = 0.0) -> None:
        super().__init__(order)
        self.budget = budget
        self.seed = seed
        self.connected_share = connected_share

    def draw(self, graph: GraphBatch) -> GraphBatch:
        return random_tuples(graph, self.order, self.budget, self.seed, self.connected_share)
