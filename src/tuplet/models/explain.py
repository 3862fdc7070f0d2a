"""Attention weights of one layer, with the tuple that each of them belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tuplet.attention.weights import TINY, Rule, finite
from tuplet.models.attention import Group, heads_of_groups
from tuplet.models.block import Block
from tuplet.models.prepare import Prepared

Token = tuple[int, tuple[int, ...] | str]
"""A graph of the batch, and the tuple in it; virtual tuples are called "virtual 0", "virtual 1", .."""


@dataclass(frozen=True)
class GroupWeights:
    """The weights of one group of keys, a row a pair.

    Args:
        name: which pattern and group, such as "LocalNeighbour 0" or "virtual".
        heads: the heads that attend to this group.
        query, key: (P,) positions in ``Explanation.queries`` and in this group's ``keys``.
        weight: (P, heads).
        keys: the tokens that ``key`` counts.
    """

    name: str
    heads: tuple[int, ...]
    query: Tensor
    key: Tensor
    weight: Tensor
    keys: list[Token]


@dataclass(frozen=True)
class Explanation:
    """Attention weights of one layer.

    Args:
        queries: the token of each row.
        groups: weights of each group of keys.
    """

    queries: list[Token]
    groups: list[GroupWeights]

    def of(self, query: Token) -> list[tuple[str, int, Token, float]]:
        """What one token looks at: (group, head, key, weight), heaviest first."""
        row = self.queries.index(query)
        found = []
        for group in self.groups:
            for pair in (group.query == row).nonzero().flatten().tolist():
                key = group.keys[int(group.key[pair])]
                weights = group.weight[pair].tolist()
                found += [(group.name, head, key, weight) for head, weight in zip(group.heads, weights, strict=True)]
        return sorted(found, key=lambda entry: -entry[3])


def explain_layer(layer: Block, x: Tensor, y: Tensor | None, virtual: Tensor | None, prepared: Prepared) -> Explanation:
    """Compute every weight of a layer explicitly. Memory is that of the pairs: for graphs one wants to look at."""
    attention, layouts = layer.attention, prepared.layouts
    entered = layer.tokens.enter(x)
    unreal_in = virtual if layer.virtual is None or virtual is None else layer.virtual.enter(virtual)
    real, unreal = attention.project(entered, entered if y is None else y, unreal_in, layouts)
    queries, keys = _tokens(prepared.queries.tolist()), _tokens(prepared.keys.tolist())
    heads = tuple(range(attention.heads))

    parts: list[tuple[GroupWeights, Tensor]] = []  # weights still to be normalised, and the factor of +reweight
    for number, groups in enumerate(layouts.patterns):
        sizes = heads_of_groups(attention.heads, len(groups))
        first = 0
        for group, pairs in enumerate(groups):
            span = slice(0, attention.heads) if attention.joint else slice(first, first + sizes[group])
            first += sizes[group]
            table = attention._table(number, group, span)
            labels = heads if attention.joint else tuple(range(group, attention.heads, len(groups)))
            name = f"{type(attention.patterns[number]).__name__} {group}"
            parts.append(_scores(name, labels, real[0][:, span], real[1][:, span], pairs, table, attention.rule, keys))
    if layouts.from_virtual is not None:
        count = len(unreal[1]) // layouts.graphs
        names = [(token // count, f"virtual {token % count}") for token in range(len(unreal[1]))]
        joined = attention.joint and attention.rule.relation != "none"
        table = attention.tables[-1] if joined else None
        rule = attention.rule if joined else attention.plain
        parts.append(_scores("virtual", heads, real[0], unreal[1], layouts.from_virtual, table, rule, list(names)))
    sets = [parts] if attention.joint else [[part] for part in parts]
    return Explanation(
        queries, [group for together in sets for group in _normalise(together, len(queries), attention.rule)]
    )


def _tokens(graphs: list[list[tuple[int, ...]]]) -> list[Token]:
    return [(graph, entries) for graph, tuples in enumerate(graphs) for entries in tuples]


def _scores(
    name: str,
    heads: tuple[int, ...],
    q: Tensor,
    k: Tensor,
    pairs: Group,
    table: Tensor | None,
    rule: Rule,
    keys: list[Token],
) -> tuple[GroupWeights, Tensor]:
    query, key, kind = pairs.pairs()
    dot = (q[query] * k[key]).sum(-1)
    entry = None if table is None else table[kind]
    _, score = rule.score(dot, entry)
    factor = entry if entry is not None and rule.relation == "reweight" else torch.ones_like(score)
    return GroupWeights(name, heads, query, key, score, keys), factor


def _normalise(parts: list[tuple[GroupWeights, Tensor]], queries: int, rule: Rule) -> list[GroupWeights]:
    """One softmax over all pairs of a query in ``parts`` (or a ReLU), then the factors of +reweight."""
    query = torch.cat([group.query for group, _ in parts])
    score = torch.cat([group.weight for group, _ in parts])
    if rule.normalised:
        rows = query[:, None].expand_as(score)
        largest = score.new_full((queries, score.shape[1]), -torch.inf).scatter_reduce(0, rows, score, "amax")
        weight = (score - finite(largest)[query]).exp()
        weight = weight / weight.new_zeros(largest.shape).index_add(0, query, weight).clamp_min(TINY)[query]
    else:
        weight = score.clamp_min(0)
    sizes = [len(group.query) for group, _ in parts]
    return [
        GroupWeights(group.name, group.heads, group.query, group.key, part * factor, group.keys)
        for (group, factor), part in zip(parts, weight.split(sizes), strict=True)
    ]
