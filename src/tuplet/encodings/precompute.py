"""Raw statistics once for each graph, stored with the data."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from tuplet.encodings.base import Encoding
from tuplet.encodings.blocks import working_bytes
from tuplet.encodings.catalogue import parse
from tuplet.errors import InputError, OptionError
from tuplet.graphs import GraphBatch, read

PAIRS = 1 << 22
"""Most ordered pairs of nodes, over all graphs, that are worked on at once."""


def statistics(encodings: Iterable[Encoding], graph: GraphBatch, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Raw statistics of several encodings; those with the same fields share one computation."""
    raw: dict[str, Tensor] = {}
    for encoding in encodings:
        if not raw.keys() >= set(encoding.fields):
            raw |= encoding.compute(graph, dtype)
    return raw


def computing_bytes(encodings: Iterable[Encoding], graph: GraphBatch) -> int:
    """Most bytes that ``statistics`` takes at once, its results aside."""
    found = 0
    for encoding in encodings:
        sizes: Iterable[int] = graph.sizes
        if encoding.level == "simplex":  # a walk may go through simplices of all dimensions
            sizes = map(sum, zip(*encoding.rows(graph).values(), strict=True))
        found = max(found, working_bytes(encoding, tuple(sizes)))
    return found


class Precompute(BaseTransform):
    """Write the raw statistics of encodings into a graph, as a ``pre_transform`` or a ``transform``; never alters its input.

    >>> transform = Precompute(["RWSE:20:28", SPE(8, 8)])
    >>> dataset = ZINC(root, subset=True, pre_transform=transform)  # once, cached with the data set
    >>> graphs = transform.many(graphs)  # a list at once, graphs of equal size together

    Args:
        encodings: encodings, or their short forms.
        undirected, directed: how edges are read, as for ``tuplet.read``; to agree with the model.
        dtype: of what is stored, by default ``torch.get_default_dtype()``.
        device: where to compute, by default where the data is. What is stored is where the data is.
    """

    def __init__(
        self,
        encodings: Iterable[Encoding | str],
        *,
        undirected: Literal["require", "symmetrise"] = "require",
        directed: bool = False,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if isinstance(encodings, (str, Encoding)):
            raise OptionError(f"encodings: expected a list of encodings; came {encodings!r} alone")
        self.encodings = tuple(parse(item) if isinstance(item, str) else item for item in encodings)
        self.undirected, self.directed = undirected, directed
        self.dtype, self.device = dtype, device

    def __repr__(self) -> str:  # PyG's data sets tell by it whether a processed copy is still up to date
        told = {"undirected": self.undirected, "directed": self.directed, "dtype": self.dtype}
        usual = {"undirected": "require", "directed": False, "dtype": None}
        options = "".join(f", {key}={value!r}" for key, value in told.items() if value != usual[key])
        return f"Precompute({list(self.encodings)!r}{options})"

    def forward(self, data: Data) -> Data:
        return self.many([data])[0]

    def many(self, graphs: Sequence[Data]) -> list[Data]:
        """Copies of many graphs with their raw statistics, computed for many graphs at once."""
        for item in graphs:
            if isinstance(item, Batch):
                raise InputError("data", "one graph, before it is collated", "a Batch")
            if not isinstance(item, Data):
                raise InputError("data", "a torch_geometric Data", type(item).__name__)
        return [item for part in _parts(graphs) for item in self._write(part)]

    def _write(self, graphs: list[Data]) -> list[Data]:
        batch = read([_bare(item) for item in graphs], undirected=self.undirected, directed=self.directed)
        if self.device is not None:
            batch = batch.to(self.device)
        raw = statistics(self.encodings, batch, self.dtype)
        counts = {field: rows for encoding in self.encodings for field, rows in encoding.rows(batch).items()}
        copies = [copy.copy(item) for item in graphs]
        for field, value in raw.items():
            for item, rows in zip(copies, value.to(graphs[0].edge_index.device).split(counts[field]), strict=True):
                item[field] = rows.clone()  # a view would keep, and save, the rows of all graphs
        return copies


def _bare(data: Data) -> Data:
    """What encodings see of a graph: edges, and a complex if it brings one."""
    kept = {key: data[key] for key in data.keys() if key.startswith("simplex_index_")}  # noqa: SIM118
    return Data(edge_index=data.edge_index, num_nodes=data.num_nodes, **kept)


def _parts(graphs: Sequence[Data]) -> Iterator[list[Data]]:
    """The list in parts of bounded size, in order."""
    part: list[Data] = []
    pairs = 0
    for item in graphs:
        pairs += (item.num_nodes or 0) ** 2
        if part and pairs > PAIRS:
            yield part
            part, pairs = [], (item.num_nodes or 0) ** 2
        part.append(item)
    if part:
        yield part
