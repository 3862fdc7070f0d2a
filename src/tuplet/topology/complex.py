"""Abstract simplicial complexes of a batch of graphs (appendix "Background of Algebraic Topology Theories")."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import SupportsIndex

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from tuplet.errors import InputError, OptionError
from tuplet.graphs import offsets

FIELD = "simplex_index_{}"
"""Attribute of a PyG ``Data`` that holds the simplices of one dimension as (k + 1, S_k): "index" makes PyG shift and join them."""


@dataclass(frozen=True, eq=False)
class Complex:
    """Sets of nodes, closed under taking subsets: S_k of them with k + 1 nodes, for k = 0..K.

    The orientation of a simplex is that of increasing node numbers.

    Args:
        simplices: for each dimension k (S_k, k+1) node numbers over the batch, increasing along each row, rows in
            lexicographic order and so graph after graph.
        faces: for each dimension k >= 1 (S_k, k+1) the number, in dimension k - 1, of the face without the j-th node;
            ``faces[0]`` is empty.
        ptr: (G+1,) first node of each graph.
    """

    simplices: tuple[Tensor, ...]
    faces: tuple[Tensor, ...]
    ptr: Tensor

    @classmethod
    def assemble(cls, simplices: Sequence[Tensor], ptr: Tensor, field: str = FIELD, closed: bool = False) -> Complex:
        """From the simplices of dimensions 1, 2, .. (each (S, k+1), in any order, repeated or not) of ``ptr[-1]`` nodes.

        A simplex with a face that is not there is refused, as is one that repeats a node or spans two graphs; ``field`` is
        what the refusal calls them. ``closed``: it is known that there are no such simplices.
        """
        nodes = int(ptr[-1])
        codes = [torch.arange(nodes, device=ptr.device)]
        levels, faces = [codes[0][:, None]], [codes[0].new_empty(nodes, 0)]
        for k, rows in enumerate(simplices, start=1):
            rows = rows.contiguous()
            if bool((rows[:, 1:] <= rows[:, :-1]).any()):
                rows = rows.sort(dim=1).values
            if not closed:
                _refuse_degenerate(rows, ptr, k, field.format(k))
            prefix = rows[:, 0]
            for place in range(1, k):
                prefix = _find(codes[place], prefix * nodes + rows[:, place])
                if not closed:
                    _refuse_open(prefix, rows, tuple(range(place + 1)), ptr, field.format(k))
            code = prefix * nodes + rows[:, k]
            if bool((code[1:] <= code[:-1]).any()):
                code, order = torch.sort(code)
                first = _first_of_equals(code)
                code, kept = code[first], order[first]
                rows, prefix = rows[kept], prefix[kept]
            codes.append(code)
            columns = []
            for place in range(k):
                # the face without the j-th node is (the prefix without it) and the last node
                shorter = faces[k - 1][prefix, place] * nodes + rows[:, k] if k > 1 else rows[:, 1]
                face = _find(codes[k - 1], shorter)
                if not closed:
                    _refuse_open(face, rows, tuple(p for p in range(k + 1) if p != place), ptr, field.format(k))
                columns.append(face)
            levels.append(rows)
            faces.append(torch.stack([*columns, prefix], dim=1))
        return cls(tuple(levels), tuple(faces), ptr)

    @classmethod
    def from_simplices(
        cls, simplices: Iterable[Iterable[SupportsIndex]], num_nodes: int | None = None, close: bool = False
    ) -> Complex:
        """One complex from explicit simplices, each a set of nodes 0, 1, ..

        Args:
            simplices: in any order; every node is a 0-simplex, named or not.
            num_nodes: n, by default one more than the largest node named.
            close: add the missing faces; otherwise they are refused, by name.
        """
        named = [_nodes(simplex) for simplex in simplices]
        largest = max((simplex[-1] for simplex in named), default=-1)
        nodes = largest + 1 if num_nodes is None else num_nodes
        if nodes < 1:
            raise InputError("num_nodes", "at least one node", f"{nodes}")
        if largest >= nodes:
            raise InputError("simplices", f"nodes 0..{nodes - 1}", f"the node {largest}")
        levels: list[set[tuple[int, ...]]] = [set() for _ in range(max(map(len, named), default=1))]
        for simplex in named:
            levels[len(simplex) - 1].add(simplex)
        if close:
            for k in range(len(levels) - 1, 1, -1):
                levels[k - 1].update(face for simplex in levels[k] for face in combinations(simplex, k))
        tensors = [torch.tensor(sorted(level)).reshape(-1, k + 1) for k, level in enumerate(levels) if k > 0]
        return cls.assemble(tensors, offsets((nodes,), torch.device("cpu")), "simplices")

    @property
    def dim(self) -> int:
        """K: dimensions 0..K are known; those above the largest simplex are empty."""
        return len(self.simplices) - 1

    @property
    def num_nodes(self) -> int:
        return len(self.simplices[0])

    @property
    def counts(self) -> tuple[int, ...]:
        """S_0, .., S_K."""
        return tuple(len(rows) for rows in self.simplices)

    @cached_property
    def graph_of(self) -> tuple[Tensor, ...]:
        """For each dimension (S_k,) the graph of each simplex."""
        return tuple(torch.searchsorted(self.ptr, rows[:, 0].contiguous(), right=True) - 1 for rows in self.simplices)

    @cached_property
    def starts(self) -> tuple[Tensor, ...]:
        """For each dimension (G+1,) the first simplex of each graph, and the number of all."""
        return tuple(torch.searchsorted(rows[:, 0].contiguous(), self.ptr) for rows in self.simplices)

    def cofaces(self, k: int) -> Tensor:
        """(S_k,) in how many simplices of dimension k + 1 each k-simplex lies; zero at the top."""
        self.expect_dimension(k)
        counts = torch.zeros(len(self.simplices[k]), dtype=torch.long, device=self.ptr.device)
        if k >= self.dim:
            return counts
        faces = self.faces[k + 1].reshape(-1)
        return counts.scatter_add_(0, faces, torch.ones_like(faces))

    def find(self, rows: Tensor) -> Tensor:
        """(S,) numbers of the simplices with the given nodes (S, k+1), increasing along each row; -1 where there is none."""
        self.expect_dimension(rows.shape[1] - 1)
        number = rows[:, 0]
        for k in range(1, rows.shape[1]):
            known = self.faces[k][:, k] * self.num_nodes + self.simplices[k][:, k]
            number = torch.where(number < 0, -1, _find(known, number * self.num_nodes + rows[:, k]))
        return number

    def expect_dimension(self, k: int) -> None:
        """Refuse a dimension that the complex does not have."""
        if not 0 <= k <= self.dim:
            raise OptionError(f"dimension: expected 0..{self.dim}, those of the complex; came {k}")

    def truncate(self, dim: int) -> Complex:
        """The same complex without what is above dimension ``dim``."""
        self.expect_dimension(dim)
        return Complex(self.simplices[: dim + 1], self.faces[: dim + 1], self.ptr)

    def attach(self, data: Data, dim: int | None = None) -> Data:
        """A copy of ``data`` that carries the complex in ``simplex_index_1``, ``simplex_index_2``, .. for a model to read.

        ``dim`` adds empty dimensions up to it: they say that there is no larger simplex, where a missing one says nothing.
        """
        if not isinstance(data, Data) or isinstance(data, Batch):
            raise InputError("data", "one graph as torch_geometric Data", type(data).__name__)
        if data.num_nodes != self.num_nodes:
            raise InputError("data", f"{self.num_nodes} nodes, those of the complex", f"{data.num_nodes}")
        top = self.dim if dim is None else dim
        if top < self.dim:
            raise OptionError(f"dim: expected at least {self.dim}, the dimension of the complex; came {top}")
        copy = data.clone()
        for field in [key for key in copy.keys() if key.startswith("simplex_index_")]:  # noqa: SIM118
            del copy[field]  # of another complex, which may reach higher than this one
        for k in range(1, top + 1):
            rows = self.simplices[k] if k <= self.dim else self.ptr.new_empty(0, k + 1)
            copy[FIELD.format(k)] = rows.t().contiguous()
        return copy

    def tolist(self) -> list[list[list[tuple[int, ...]]]]:
        """For each graph, for each dimension, its simplices with node numbers of their own graph."""
        first = self.ptr.tolist()
        listed: list[list[list[tuple[int, ...]]]] = [[[] for _ in self.simplices] for _ in first[1:]]
        for k, (rows, graphs) in enumerate(zip(self.simplices, self.graph_of, strict=True)):
            for nodes, graph in zip(rows.tolist(), graphs.tolist(), strict=True):
                listed[graph][k].append(tuple(node - first[graph] for node in nodes))
        return listed


def _nodes(simplex: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """The nodes of a named simplex, in order; numpy and torch numbers are numbers too."""
    try:
        nodes = tuple(sorted(operator.index(node) for node in simplex))
    except TypeError as error:
        raise InputError("simplices", "sets of node numbers", f"{simplex!r}") from error
    if not nodes or nodes[0] < 0:
        raise InputError("simplices", "non-empty sets of nodes 0, 1, ..", f"{nodes}")
    return nodes


def _find(codes: Tensor, wanted: Tensor) -> Tensor:
    """Position of each wanted code among sorted ones, -1 where it is not."""
    if codes.numel() == 0:
        return torch.full_like(wanted, -1)
    found = torch.searchsorted(codes, wanted.contiguous()).clamp_(max=codes.numel() - 1)
    return torch.where(codes[found] == wanted, found, -1)


def _first_of_equals(codes: Tensor) -> Tensor:
    first = torch.ones_like(codes, dtype=torch.bool)
    first[1:] = codes[1:] != codes[:-1]
    return first


def _name(nodes: Tensor, ptr: Tensor) -> str:
    """A simplex by the node numbers of its own graph, and which graph that is if there are several."""
    graph = int(torch.searchsorted(ptr, nodes[:1].contiguous(), right=True)) - 1
    where = f" in graph {graph}" if len(ptr) > 2 else ""
    return f"{tuple((nodes - ptr[graph]).tolist())}{where}"


def _refuse_degenerate(rows: Tensor, ptr: Tensor, k: int, field: str) -> None:
    if rows.numel() == 0:
        return
    repeated = (rows[:, 1:] == rows[:, :-1]).any(1)
    if bool(repeated.any()):
        row = rows[int(repeated.nonzero()[0])]
        raise InputError(field, f"{k + 1} different nodes in each simplex", f"the simplex {_name(row, ptr)}")
    graphs = torch.searchsorted(ptr, rows, right=True)
    spanning = graphs[:, 0] != graphs[:, -1]
    if bool(spanning.any()):
        row = rows[int(spanning.nonzero()[0])]
        raise InputError(field, "simplices within one graph", f"the nodes {row.tolist()} of the batch")


def _refuse_open(number: Tensor, rows: Tensor, places: tuple[int, ...], ptr: Tensor, field: str) -> None:
    """Refuse a complex in which a face was not found."""
    if number.numel() and bool((number < 0).any()):
        row = rows[int((number < 0).nonzero()[0])]
        raise InputError(
            field,
            "a complex closed under faces",
            f"the simplex {_name(row, ptr)} without its face {_name(row[list(places)], ptr)}",
            "Complex.from_simplices(.., close=True) adds missing faces.",
        )
