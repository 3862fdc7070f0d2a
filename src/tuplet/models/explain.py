"""Attention weights of one layer, with the tuple that each of them belongs to."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tuplet.attention import Group
from tuplet.attention.weights import TINY, Rule, finite
from tuplet.models.block import Block
from tuplet.models.prepare import Prepared
from tuplet.patterns import FusedLines, FusedRows

Token = tuple[int, tuple[int, ...] | str]
"""A graph of the batch, and the tuple in it; virtual tuples are called "virtual 0", "virtual 1", .."""


@dataclass(frozen=True)
class GroupWeights:
    """The weights of one group of keys, a row a pair.

    Args:
        name: which pattern and group, such as "LocalNeighbour 0", "upper adjacent", "from virtual" or "to virtual".
        heads: the heads that attend to this group.
        query, key: (P,) positions in ``queries`` and ``keys``.
        weight: (P, heads).
        queries, keys: the tokens that rows and columns stand for.
    """

    name: str
    heads: tuple[int, ...]
    query: Tensor
    key: Tensor
    weight: Tensor
    queries: list[Token]
    keys: list[Token]


@dataclass(frozen=True)
class Explanation:
    """Attention weights of one layer.

    Args:
        queries: the tuples that attend.
        groups: weights of each group of keys.
    """

    queries: list[Token]
    groups: list[GroupWeights]

    def of(self, query: Token) -> list[tuple[str, int, Token, float]]:
        """What one token looks at: (group, head, key, weight), heaviest first."""
        found = []
        for group in self.groups:
            if query not in group.queries:
                continue
            row = group.queries.index(query)
            for pair in (group.query == row).nonzero().flatten().tolist():
                key = group.keys[int(group.key[pair])]
                weights = group.weight[pair].tolist()
                found += [(group.name, head, key, weight) for head, weight in zip(group.heads, weights, strict=True)]
        return sorted(found, key=lambda entry: -entry[3])


def explain_layer(layer: Block, x: Tensor, y: Tensor | None, virtual: Tensor | None, prepared: Prepared) -> Explanation:
    """Compute every weight of a layer explicitly. Memory is that of the pairs: for graphs one wants to look at."""
    attention, layouts = layer.attention, prepared.layouts
    real, unreal = attention.project(*layer.enter(x, y, virtual, layouts), layouts)
    queries: list[Token] = list(prepared.queries.tolist())
    keys: list[Token] = list(prepared.keys.tolist())
    heads = list(range(attention.heads))

    parts: list[tuple[GroupWeights, Tensor]] = []  # scores still to be normalised, and the factor of +reweight
    for number, groups in enumerate(layouts.patterns):
        for group, pairs in enumerate(groups):
            span = attention.heads_of(len(groups), group)
            table = attention.table(number, group, span, layouts)
            name = attention.patterns[number].name(group)
            ends = real[0][:, span], real[1][:, span]
            parts.append(_scores(name, heads[span], ends, (queries, keys), pairs, table, attention.rule))
    upward = []
    if layouts.from_virtual is not None:
        count = len(unreal[1]) // layouts.graphs
        names: list[Token] = [(token // count, f"virtual {token % count}") for token in range(len(unreal[1]))]
        joined = attention.joint and attention.rule.relation != "none"
        table, rule = (attention.tables[-1], attention.rule) if joined else (None, attention.plain)
        parts.append(
            _scores("from virtual", heads, (real[0], unreal[1]), (queries, names), layouts.from_virtual, table, rule)
        )
        if layouts.to_virtual is not None and attention.virtual_output is not None:
            ends = unreal[0], real[1]
            upward = [_scores("to virtual", heads, ends, (names, keys), layouts.to_virtual, None, attention.plain)]
    sets = [parts] if attention.joint else [[part] for part in parts]
    sets += [upward] if upward else []
    return Explanation(queries, [group for together in sets for group in _normalise(together, attention.rule)])


def _scores(
    name: str,
    heads: list[int],
    ends: tuple[Tensor, Tensor],
    tokens: tuple[list[Token], list[Token]],
    pairs: Group,
    table: Tensor | None,
    rule: Rule,
) -> tuple[GroupWeights, Tensor]:
    assert not isinstance(pairs, FusedLines | FusedRows), "weights are explained on a layout that lists its pairs"
    query, key, kind = pairs.pairs()
    dot = (ends[0][query] * ends[1][key]).sum(-1)
    entry = None if table is None else table[kind]
    _, score = rule.score(dot, entry)
    factor = entry if entry is not None and rule.relation == "reweight" else torch.ones_like(score)
    return GroupWeights(name, tuple(heads), query, key, score, *tokens), factor


def _normalise(parts: list[tuple[GroupWeights, Tensor]], rule: Rule) -> list[GroupWeights]:
    """One softmax over all pairs of a query in ``parts`` (or a ReLU), then the factors of +reweight."""
    query = torch.cat([group.query for group, _ in parts])
    score = torch.cat([group.weight for group, _ in parts])
    if rule.normalised:
        rows = query[:, None].expand_as(score)
        largest = score.new_full((len(parts[0][0].queries), score.shape[1]), -torch.inf).scatter_reduce(
            0, rows, score, "amax"
        )
        weight = (score - finite(largest)[query]).exp()
        weight = weight / weight.new_zeros(largest.shape).index_add(0, query, weight).clamp_min(TINY)[query]
    else:
        weight = score.clamp_min(0)
    sizes = [len(group.query) for group, _ in parts]
    return [
        replace(group, weight=part * factor) for (group, factor), part in zip(parts, weight.split(sizes), strict=True)
    ]
