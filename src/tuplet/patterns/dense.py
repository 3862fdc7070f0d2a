"""Dense attention A_k and A_{k1,k2} (Definition 3.1): every query sees every key of its graph."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch

from tuplet.patterns.base import Pattern, PlainGraph, Tuple
from tuplet.patterns.relation import Equality, bell, equality_code, equality_codes
from tuplet.patterns.structure import Lines, Side
from tuplet.tokens import Tokens, Tuples


def whole_graphs(tokens: Tokens) -> Side:
    """One line a graph: all its tokens."""
    start = tokens.ptr[:-1]
    return Side(start, torch.ones_like(start), tokens.ptr[1:] - start, tokens.by_graph)


class Dense(Pattern[Tuples]):
    """All tuples as keys; with ``basis``, the equality pattern of the pair as relation (k-IGN's basis).

    Args:
        orders: k1 of the queries and k2 of the keys.
        basis: tell the bell(k1 + k2) equality patterns apart.
    """

    groups = 1

    def __init__(self, orders: tuple[int, int], basis: bool = False) -> None:
        self.orders = orders
        self.basis = basis
        self.types = bell(sum(orders)) if basis else 1

    def keys(self, query: Tuple, group: int, graph: PlainGraph) -> Iterator[tuple[Tuple, int]]:
        for key in product(range(graph.n), repeat=self.orders[1]):
            yield key, self._type(query + key) if self.basis else 0

    @staticmethod
    def _type(entries: Tuple) -> int:
        code = equality_code(tuple(entries.index(value) for value in entries))
        return equality_codes(len(entries)).index(code)

    def layout(self, queries: Tuples, keys: Tuples, group: int, typed: bool, skip_self: bool = False) -> Lines:
        relation = None
        if typed and self.basis:
            codes = torch.tensor(equality_codes(sum(self.orders)), device=queries.device)
            empty = codes.new_empty(0)
            relation = Equality(
                codes,
                queries.graph.n,
                empty if queries.nodes is None else queries.nodes,
                empty if keys.nodes is None else keys.nodes,
                self.orders,
            )
        return Lines(whole_graphs(queries), whole_graphs(keys), (queries.longest, keys.longest), relation, skip_self)

    def count_pairs(self, queries: Tuples, keys: Tuples) -> int:
        return sum(a * b for a, b in zip(queries.counts, keys.counts, strict=True))
