"""Attention over simplices (appendix "Simplicial Transformers"): dense AS_{k1:k2}, and simplex neighbours AS^SN.

Two simplices are related in up to four ways: the key is a face of the query (boundary), the query a face of the key
(coboundary), both share a face (lower adjacent), both are faces of one simplex (upper adjacent). A pair's type is the set
of the ways that hold, so that none cancels another, as signs of the Hodge Laplacian do, and nothing depends on an
orientation. Two simplices of dimension >= 1 that are upper adjacent are lower adjacent too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import torch
from torch import Tensor

from tuplet.graphs import offsets, repeat
from tuplet.native import in_order
from tuplet.patterns.base import Kept, Pattern, PlainGraph, Tuple
from tuplet.patterns.dense import whole_graphs
from tuplet.patterns.fused import Fused, FusedRows
from tuplet.patterns.relation import TypeMatrix
from tuplet.patterns.structure import Lines, Rows, Structure
from tuplet.tokens import Simplices
from tuplet.topology import Complex, block_laplacian, inter_order_laplacian

BOUNDARY, COBOUNDARY, LOWER, UPPER, BOTH, SELF, UNRELATED = range(7)
"""Types of a pair of simplices; the last two occur in dense attention only."""
GROUPS = ((BOUNDARY,), (COBOUNDARY,), (LOWER, BOTH), (UPPER, BOTH))
"""The four relations by the types of their pairs, in the order in which they take heads."""
RELATIONS = ("boundary", "coboundary", "lower adjacent", "upper adjacent")
"""Their names."""


def relation_type(query: Tuple, key: Tuple, graph: PlainGraph) -> int:
    """The type of a pair of simplices, straight from the definition."""
    q, k = set(query), set(key)
    if q == k:
        return SELF
    if len(q) == len(k) + 1:
        return BOUNDARY if k < q else UNRELATED
    if len(q) + 1 == len(k):
        return COBOUNDARY if q < k else UNRELATED
    if len(q) != len(k) or len(q | k) != len(q) + 1:
        return UNRELATED
    lower, upper = len(q) > 1, tuple(sorted(q | k)) in graph.simplices
    return BOTH if lower and upper else UPPER if upper else LOWER if lower else UNRELATED


class SimplexNeighbour(Pattern[Simplices]):
    """SN: the boundary, the coboundary, lower and upper adjacent simplices of a simplex.

    Args:
        joint: all of them as one group, told apart by their types; otherwise one group a relation.
    """

    types = 5

    def __init__(self, joint: bool) -> None:
        self.groups = 1 if joint else len(GROUPS)
        self.joint = joint

    def keys(self, query: Tuple, group: int, graph: PlainGraph) -> Iterator[tuple[Tuple, int]]:
        wanted = range(self.types) if self.joint else GROUPS[group]
        for key in graph.simplices:
            kind = relation_type(query, key, graph)
            if kind in wanted:
                yield key, kind

    def layout(self, queries: Simplices, keys: Simplices, group: int, typed: bool, skip_self: bool = False) -> Rows:
        return self._rows(queries, group, typed, *related_pairs(queries))

    def layouts(self, queries: Simplices, keys: Simplices, typed: bool, joint: bool) -> tuple[Structure, ...]:
        pairs = related_pairs(queries)  # once for all groups
        return tuple(self._rows(queries, group, typed, *pairs) for group in range(self.groups))

    def _rows(self, tokens: Simplices, group: int, typed: bool, query: Tensor, key: Tensor, kind: Tensor) -> Rows:
        if not self.joint:
            wanted = torch.isin(kind, torch.tensor(GROUPS[group], dtype=kind.dtype, device=kind.device))
            query, key, kind = query[wanted], key[wanted], kind[wanted]
        return Rows.of(query, key, tokens.total, kind if typed else None)

    def fused(self, queries: Simplices, keys: Simplices, typed: bool, joint: bool) -> tuple[Structure | Fused, ...]:
        kept = queries.kept
        if kept is None:
            return super().fused(queries, keys, typed, joint)
        empty = queries.ptr.new_empty(0)
        bounds = kept["bounds"].movedim(0, -1) + kept["start"][queries.graph_of_token]  # (2, 2, groups, T)
        key = queries.by_graph[queries.ptr[kept["owner"]] + kept["key"].t()]  # (2, P)
        kind = kept["type"].t() if "type" in kept else (empty, empty)
        (begin, end), (back_begin, back_end) = bounds
        forth, back = (begin, end, key[0], kind[0]), (back_begin, back_end, key[1], kind[1])
        return (FusedRows(*forth, *back, empty, empty, self.groups),)

    def keep(self, tokens: Simplices, typed: bool) -> Kept:
        """Of each token, from queries to keys and back, where its keys of each group begin and end (T, 2, 2, groups) among
        the keys of its graph, whose places and types are rows (P, 2)."""
        (found,) = self.fused(tokens, tokens, typed, False)
        assert isinstance(found, FusedRows)
        counts = torch.bincount(tokens.graph_of_token[found.col], minlength=tokens.graph.num_graphs)
        first = (counts.cumsum(0) - counts)[tokens.graph_of_token]
        code = tokens.position * self.groups + torch.arange(self.groups, device=tokens.device)[:, None]
        bounds, keys, kinds = [], [], []
        for begin, end, key, kind in found.ways:
            count = (end - begin).t()
            # keys stand graph after graph, token after token, group after group
            order = torch.argsort(repeat(code.flatten(), (end - begin).flatten(), len(key)), stable=True)
            last = count[tokens.by_graph].flatten().cumsum(0).view_as(count)[tokens.position] - first[:, None]
            bounds.append(torch.stack([last - count, last], dim=1))
            keys.append(tokens.place[key[order]].int())
            kinds += [kind[order]] if typed else []
        rows = {"key": torch.stack(keys, dim=1)} | ({"type": torch.stack(kinds, dim=1)} if typed else {})
        return Kept(counts, rows, {"bounds": torch.stack(bounds, dim=1)})

    def name(self, group: int) -> str:
        return "simplex neighbours" if self.joint else RELATIONS[group]

    def count_pairs(self, queries: Simplices, keys: Simplices) -> int:
        """Exact: 2 (k+1) pairs a simplex with its faces, c (c-1) a face with c cofaces, (k+1)(k+2) a coface."""
        known, pairs = queries.complex, 0
        for k in range(queries.low, queries.high + 1):
            if k > queries.low:
                pairs += 2 * (k + 1) * known.counts[k]
            upper = (k + 1) * (k + 2) * known.counts[k + 1] if k < known.dim else 0
            cofaces = known.cofaces(k - 1) if k else None
            lower = 0 if cofaces is None else int((cofaces * (cofaces - 1)).sum())
            # an upper adjacent pair of dimension >= 1 is a lower adjacent one: one key jointly, a key of two groups apart
            pairs += max(lower, upper) if self.joint else lower + upper
        return pairs


class SimplexDense(Pattern[Simplices]):
    """Every simplex sees every simplex of its graph; the pair's entry in the Hodge Laplacian says how they are related.

    Args:
        signed: the type is the entry of the signed Laplacian, counted from -1; otherwise one of the seven types above.
        inter: read 𝓛_{0:K}; otherwise the block Laplacian L, in which simplices of different dimension are unrelated.
    """

    groups = 1
    types = 7
    edge_types = (BOUNDARY, COBOUNDARY, LOWER, UPPER, BOTH)

    def __init__(self, signed: bool = False, inter: bool = True) -> None:
        self.signed = signed
        self.inter = inter

    def keys(self, query: Tuple, group: int, graph: PlainGraph) -> Iterator[tuple[Tuple, int]]:
        for key in graph.simplices:
            if self.signed:
                yield key, self._entry(query, key, graph) + 1
            else:
                kind = relation_type(query, key, graph)
                yield key, UNRELATED if kind in (BOUNDARY, COBOUNDARY) and not self.inter else kind

    def _entry(self, query: Tuple, key: Tuple, graph: PlainGraph) -> int:
        """The entry of L or 𝓛 at a pair of simplices; the orientation is that of increasing node numbers."""
        kind = relation_type(query, key, graph)
        if kind == UNRELATED:
            return 0
        if kind in (BOUNDARY, COBOUNDARY):
            longer, shorter = (query, key) if kind == BOUNDARY else (key, query)
            return _sign(longer, shorter) if self.inter else 0
        cofaces = [other for other in graph.simplices if set(query) | set(key) <= set(other)]
        cofaces = [other for other in cofaces if len(other) == len(query) + 1]
        if kind == SELF:
            return len(cofaces) + (len(query) if len(query) > 1 else 0)
        up = sum(_sign(other, query) * _sign(other, key) for other in cofaces)
        shared = tuple(sorted(set(query) & set(key)))
        down = _sign(query, shared) * _sign(key, shared) if kind in (LOWER, BOTH) else 0
        return up + down

    def layout(self, queries: Simplices, keys: Simplices, group: int, typed: bool, skip_self: bool = False) -> Lines:
        side = whole_graphs(queries)
        relation = self._matrix(queries) if typed else None
        return Lines(side, side, (queries.longest,) * 2, relation, skip_self)

    def _matrix(self, tokens: Simplices) -> TypeMatrix:
        """The types of all pairs of simplices of a graph."""
        sizes = tokens.ptr[1:] - tokens.ptr[:-1]
        if tokens.kept is not None:
            return TypeMatrix(tokens.kept["matrix"], tokens.kept["start"], sizes, tokens.place)
        areas = tuple(count * count for count in tokens.counts)
        start = offsets(areas, tokens.device)[:-1]
        if self.signed:
            query, key, kind = _signed_entries(tokens, self.inter)
        else:
            query, key, kind = related_pairs(tokens, self.inter)
        fill = torch.full((), 1 if self.signed else UNRELATED, dtype=kind.dtype, device=tokens.device)
        matrix = fill.repeat(sum(areas))
        owner, place = tokens.graph_of_token, tokens.place
        if not self.signed:
            matrix[start[owner] + place * (sizes[owner] + 1)] = SELF
        matrix[start[owner[query]] + place[query] * sizes[owner[query]] + place[key]] = kind
        return TypeMatrix(matrix, start, sizes, matrix.new_empty(0))

    def keep(self, tokens: Simplices, typed: bool) -> Kept | None:
        """The types of all pairs."""
        return Kept(tokens.ptr.diff() ** 2, {"matrix": self._matrix(tokens).matrix}, {}) if typed else None

    def values(self, tokens: Simplices) -> Tensor | None:
        """The numbers that the types of the signed form stand for: -1, 0, .., the largest entry of the diagonal."""
        if not self.signed:
            return None
        largest = 1
        for k in range(tokens.low, tokens.high + 1):
            if tokens.complex.counts[k]:
                largest = max(largest, int(tokens.complex.cofaces(k).max()) + (k + 1 if k else 0))
        return torch.arange(-1, largest + 1, device=tokens.device)

    def count_pairs(self, queries: Simplices, keys: Simplices) -> int:
        return sum(count * count for count in queries.counts)


def _sign(simplex: Tuple, face: Tuple) -> int:
    missing = next(place for place, node in enumerate(simplex) if node not in face)
    return -1 if missing % 2 else 1


def related_pairs(tokens: Simplices, inter: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """All ordered pairs of related simplices as tokens: (P,) queries, keys and types (int8). ``inter``: across dimensions too."""
    known = tokens.complex
    parts = []
    for k in range(tokens.low, tokens.high + 1):
        first = tokens.first(k)
        if k > tokens.low and inter:
            faces = known.faces[k]
            longer = torch.arange(first, first + len(faces), device=tokens.device)[:, None].expand_as(faces).reshape(-1)
            shorter = (faces + tokens.first(k - 1)).reshape(-1)
            parts += [_typed(longer, shorter, BOUNDARY), _typed(shorter, longer, COBOUNDARY)]
        parts += [(a + first, b + first, kind) for a, b, kind in _adjacent(known, k)]
    query, key, kind = (torch.cat(column) for column in zip(*parts, strict=True))
    return query, key, kind


def _typed(query: Tensor, key: Tensor, kind: int) -> tuple[Tensor, Tensor, Tensor]:
    return query, key, torch.full_like(query, kind, dtype=torch.int8)


def _adjacent(known: Complex, k: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Pairs of k-simplices that share a face or a coface, one list for k >= 1: each pair once, with the set of its flags."""
    count = known.counts[k]
    upper = _pairs_of_faces(known.faces[k + 1]) if k < known.dim else (known.ptr[:0], known.ptr[:0])
    if k == 0:
        return [_typed(*upper, UPPER)]
    # entries (simplex, face) by face: an entry's partners are those of its face
    begin, order = in_order(known.faces[k].reshape(-1), known.counts[k - 1])
    simplex, width = order // (k + 1), begin.diff()
    partners = repeat(width, width, len(order))
    total = int(partners.sum())
    entry = repeat(torch.arange(len(order), device=order.device), partners, total)
    first = repeat(begin[:-1], width, len(order)) - (partners.cumsum(0) - partners)
    query = simplex.index_select(0, entry)
    key = simplex.index_select(0, first.index_select(0, entry) + torch.arange(total, device=order.device))
    other = (query != key).nonzero()[:, 0]
    query, key, kind = _typed(query.index_select(0, other), key.index_select(0, other), LOWER)
    if len(upper[0]):
        code, wanted = query * count + key, (upper[0] * count + upper[1]).sort().values
        kind[wanted[torch.searchsorted(wanted, code).clamp_(max=len(wanted) - 1)] == code] = BOTH
    return [(query, key, kind)]


def _pairs_of_faces(faces: Tensor) -> tuple[Tensor, Tensor]:
    """All ordered pairs of different faces of each simplex."""
    columns = faces.unbind(1)
    a, b = zip(*permutations(columns, 2), strict=True)
    return torch.cat(a), torch.cat(b)


def _signed_entries(tokens: Simplices, inter: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Non-zero entries of the signed Laplacian as tokens and types, which are the entries counted from -1."""
    below = sum(tokens.complex.counts[: tokens.low])
    build = inter_order_laplacian if inter else block_laplacian
    matrix = build(tokens.complex, tokens.high)[below:, below:].tocoo()
    query, key = (torch.from_numpy(index).long().to(tokens.device) for index in matrix.coords)
    kind = torch.from_numpy(matrix.data).to(tokens.device, torch.int32) + 1
    return query, key, kind
