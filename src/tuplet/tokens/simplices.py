"""Simplices of dimensions k1..k2 as tokens (appendix "Simplicial Transformers"), and their first features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuplet.graphs import GraphBatch, offsets
from tuplet.kernels import Lists, RowLinear, linear, take, take_sum
from tuplet.tokens.base import Tokens
from tuplet.tokens.features import FIRST_EDGE, NO_EDGE
from tuplet.topology import Complex


@dataclass(frozen=True)
class Simplices(Tokens):
    """The simplices of dimensions ``low`` .. ``high`` of a complex that may reach higher.

    Tokens are numbered dimension after dimension, and in a dimension as in the complex: what belongs to one dimension is
    a slice. ``by_graph`` lists them graph after graph.

    Args:
        complex: the complex whose faces and cofaces say how tokens are related.
        low, high: k1 and k2.
        kept: what a pattern would have to find out about these tokens, kept from before by ``Pattern.keep``; None otherwise.
    """

    complex: Complex
    low: int
    high: int
    kept: dict[str, Tensor] | None = None

    @classmethod
    def take(cls, graph: GraphBatch, complex_: Complex, low: int, high: int) -> Simplices:
        """The tokens of ``complex_``, which belongs to ``graph``."""
        owners = torch.cat(complex_.graph_of[low : high + 1])
        counts = tuple(torch.bincount(owners, minlength=graph.num_graphs).tolist())
        ptr = offsets(counts, graph.device)
        return cls(graph, ptr, len(owners), max(counts), complex_, low, high)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Tokens of each dimension."""
        return self.complex.counts[self.low : self.high + 1]

    def first(self, k: int) -> int:
        """The first token of dimension k."""
        return sum(self.complex.counts[self.low : k])

    @cached_property
    def graph_of_token(self) -> Tensor:
        """(T,) graph of each token."""
        return torch.cat(self.complex.graph_of[self.low : self.high + 1])

    @cached_property
    def position(self) -> Tensor:
        """(T,) the place of each token when tokens stand graph after graph, and in a graph dimension after dimension.

        Before a simplex come those before it in its dimension, of lower dimensions those up to its graph, its own
        included, and of higher dimensions those of earlier graphs.
        """
        own = slice(self.low, self.high + 1)
        starts, parts = self.complex.starts[own], []
        for k, (size, graph) in enumerate(zip(self.sizes, self.complex.graph_of[own], strict=True)):
            number = torch.arange(size, device=self.device)
            others = [start[1:] for start in starts[:k]] + [start[:-1] for start in starts[k + 1 :]]
            parts.append(number + sum(others[1:], others[0])[graph] if others else number)
        return torch.cat(parts)

    @cached_property
    def by_graph(self) -> Tensor:
        """(T,) the token at each place when tokens stand graph after graph."""
        return torch.empty_like(self.position).scatter_(0, self.position, torch.arange(self.total, device=self.device))

    @cached_property
    def place(self) -> Tensor:
        """(T,) the number of each token within its own graph, in ``by_graph``; 0 for padding."""
        place = self.position - self.ptr[self.graph_of_token]
        return place if self.live is None else torch.where(self.live, place, 0)

    @cached_property
    def edge_rows(self) -> Tensor:
        """(2, S_1) the row of the pair table of both directions of the 1-simplices, from the lower node and to it."""
        u, v = self.complex.simplices[1].unbind(1)
        number = torch.stack([self.graph.edge_number(u, v), self.graph.edge_number(v, u)])
        return torch.where(number >= 0, number + FIRST_EDGE, NO_EDGE)

    @cached_property
    def edge_lists(self) -> tuple[Lists, ...]:
        """The same, with the simplices of each row."""
        return tuple(Lists.sort(rows, FIRST_EDGE + self.graph.num_edges, FIRST_EDGE) for rows in self.edge_rows)

    @cached_property
    def face_lists(self) -> tuple[tuple[Lists, ...], ...]:
        """For each dimension k from 1 to k2 and each place the (S_k,) face without the node there, with the simplices of
        each face."""
        known = self.complex
        return tuple(
            tuple(Lists.sort(face, known.counts[k - 1]) for face in known.faces[k].unbind(1))
            for k in range(1, self.high + 1)
        )

    def tolist(self) -> list[tuple[int, tuple[int, ...]]]:
        listed = []
        first = self.graph.ptr.tolist()
        for k in range(self.low, self.high + 1):
            owners = self.complex.graph_of[k].tolist()
            for nodes, owner in zip(self.complex.simplices[k].tolist(), owners, strict=True):
                listed.append((owner, tuple(node - first[owner] for node in nodes)))
        return listed


@dataclass(frozen=True)
class SimplexParts:
    """What the simplices of each dimension are made of.

    Args:
        faces: for each dimension k from 1 to k2 its k+1 (S_k,) faces; here and below with the simplices of each row where
            kernels ask for them.
        edges: two (S_1,) rows of the pair table, one for each direction of the 1-simplices; none for k2 = 0.
        cofaces: for each dimension from 0 to k2 the (S_k,) number of cofaces; empty where the model does not read them.
        encoded: numbers among all ordered pairs of nodes of (v, v) for each node, and of both directions of each 1-simplex;
            empty where the model has no encodings of pairs.
    """

    faces: Sequence[Sequence[Tensor | Lists]]
    edges: Sequence[Tensor | Lists]
    cofaces: list[Tensor]
    encoded: list[Tensor]

    @classmethod
    def prepare(cls, tokens: Simplices, degree: bool = False, encoded: bool = False) -> SimplexParts:
        graph, known = tokens.graph, tokens.complex
        dims = range(1, tokens.high + 1)
        faces: Sequence[Sequence[Tensor | Lists]]
        edges: Sequence[Tensor | Lists]
        if tokens.device.type == "cuda":
            faces, edges = tokens.face_lists, tokens.edge_lists if dims else ()
        else:
            faces, edges = [known.faces[k].unbind(1) for k in dims], tokens.edge_rows.unbind(0) if dims else ()
        codes = []
        if encoded:
            nodes = known.simplices[0][:, 0]
            ends = [known.simplices[1].unbind(1), known.simplices[1].flip(1).unbind(1)] if tokens.high > 0 else []
            codes = [graph.pair_number(u, v) for u, v in [(nodes, nodes), *ends]]
        return cls(faces, edges, [known.cofaces(k) for k in (0, *dims)] if degree else [], codes)


class SimplexEmbedding(nn.Module):
    """First features of simplices: nodes from their features, edges with their end points, the rest from their faces.

    h_v = W_0 g(A_0 x_v);  h_uv = W_1 (g(A x_u + B x_v + C e_uv) + g(A x_v + B x_u + C e_vu));  h_σ = W_k g(A_k Σ_faces h),
    with g = GELU, each plus a vector of its dimension. Sums over faces and over both directions of an edge know neither an
    order of vertices nor an orientation; in a directed graph e_uv may be "no edge", which is how direction enters.
    ``init="sum"`` adds the vectors of faces and edges as they are.

    Args:
        low, high: k1 and k2; lower simplices are embedded on the way and left out at the end.
        dim: d.
        init: "concat" (as above) or "sum".
        degree: append the number of cofaces: with the dimension, it is the diagonal of the Hodge Laplacian.
        pair_width: width of encodings of ordered pairs of nodes, 0 without any: (v, v) joins the node, (u, v) and (v, u) the
            directions of an edge.
    """

    def __init__(
        self, low: int, high: int, dim: int, init: str = "concat", degree: bool = False, pair_width: int = 0
    ) -> None:
        super().__init__()
        self.low = low
        concat = init == "concat"
        maps = [RowLinear(dim, dim) for _ in range(high + 1)]
        self.inputs = nn.ModuleList(maps) if concat else None
        self.outputs = nn.ModuleList(RowLinear(dim, dim) for _ in range(high + 1)) if concat else None
        self.target = RowLinear(dim, dim, bias=False) if concat and high > 0 else None
        self.edge = RowLinear(dim, dim, bias=False) if concat and high > 0 else None
        self.degrees = nn.ModuleList(nn.Linear(1, dim, bias=False) for _ in range(high + 1)) if degree else None
        self.dimension = nn.Parameter(torch.randn(high + 1, dim) * 0.5)
        count = 2 if high > 0 else 1
        self.encoded_maps = nn.ModuleList(
            nn.Linear(pair_width, dim, bias=False) for _ in range(count if pair_width else 0)
        )

    def forward(
        self,
        nodes: Tensor,
        table: Tensor | None,
        parts: SimplexParts,
        encoded: Tensor | None = None,
        simplices: dict[int, Tensor] | None = None,
    ) -> Tensor:
        """(T, d) from node vectors (N, d) and the pair table (2 + E, d; None for k2 = 0), encodings of pairs, and encodings
        of simplices (S_k, d) of dimension k >= 1."""
        pairs = (
            [F.embedding(row, encoded_map(encoded)) for row, encoded_map in self._encoded_rows(parts)]
            if encoded is not None
            else []
        )
        start = self._with_degree(0, nodes + pairs[0] if pairs else nodes, parts)
        h = self._leave(0, start if self.inputs is None else F.gelu(self.inputs[0](start)))
        levels = [h]
        for k, faces in enumerate(parts.faces, start=1):
            inside = self._edges(h, table, faces, parts.edges, pairs[1:]) if k == 1 else self._faces(k, h, faces)
            inside = self._with_degree(k, inside, parts)
            if simplices is not None and k in simplices:
                inside = inside + simplices[k]
            h = self._leave(k, inside)
            levels.append(h)
        return torch.cat(levels[self.low :]) if len(levels) > self.low + 1 else levels[self.low]

    def _with_degree(self, k: int, inside: Tensor, parts: SimplexParts) -> Tensor:
        if self.degrees is None:
            return inside
        return inside + self.degrees[k](torch.log1p(parts.cofaces[k].to(inside.dtype))[:, None])

    def _leave(self, k: int, inside: Tensor) -> Tensor:
        if self.outputs is None:
            return inside + self.dimension[k]
        output = self.outputs[k]
        assert isinstance(output, nn.Linear)
        return linear(inside, output.weight, output.bias + self.dimension[k])

    def _encoded_rows(self, parts: SimplexParts) -> list[tuple[Tensor, nn.Module]]:
        """For nodes and for both directions of edges, which pairs to read and through which map."""
        return [(row, self.encoded_maps[min(place, 1)]) for place, row in enumerate(parts.encoded)]

    def _edges(
        self,
        h: Tensor,
        table: Tensor | None,
        faces: Sequence[Tensor | Lists],
        rows: Sequence[Tensor | Lists],
        pairs: list[Tensor],
    ) -> Tensor:
        """Inner vectors of 1-simplices: both directions, each with its own edge and its own encodings."""
        assert table is not None
        v, u = faces  # the j-th one is the face without the j-th node
        if self.inputs is None or self.target is None or self.edge is None:
            both = take_sum(take(h, u), [(h, v), (table, rows[0]), (table, rows[1])])
            return both + pairs[0] + pairs[1] if pairs else both
        source, target, edge = self.inputs[1](h), self.target(h), self.edge(table)
        directions = []
        for place, (a, b) in enumerate(((u, v), (v, u))):
            inside = take_sum(take(source, a), [(target, b), (edge, rows[place])])
            directions.append(F.gelu(inside + pairs[place] if pairs else inside))
        return directions[0] + directions[1]

    def _faces(self, k: int, h: Tensor, faces: Sequence[Tensor | Lists]) -> Tensor:
        """Inner vectors of k-simplices for k >= 2."""
        mapped = h if self.inputs is None else self.inputs[k](h)
        total = take_sum(take(mapped, faces[0]), [(mapped, face) for face in faces[1:]])
        return total if self.inputs is None else F.gelu(total)
