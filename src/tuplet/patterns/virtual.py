"""Virtual tuple attention A_k^VT (section 4.2): m tokens a graph that see all tuples and are seen by all of them."""

from __future__ import annotations

import torch
from torch import Tensor

from tuplet.patterns.base import DefinedPairs
from tuplet.patterns.dense import whole_graphs
from tuplet.patterns.structure import Lines


def virtual_ptr(graphs: int, virtual: int, device: torch.device) -> Tensor:
    """(G+1,) first virtual token of each graph."""
    return torch.arange(graphs + 1, device=device) * virtual


def virtual_layout(queries: Tensor, keys: Tensor) -> Lines:
    """Lines in which the tokens of a graph see those of another kind; one of the two kinds is virtual.

    Args:
        queries, keys: (G+1,) first token of each graph.
    """
    return Lines.plan(whole_graphs(queries), whole_graphs(keys))


def virtual_pairs(queries: Tensor, keys: Tensor) -> DefinedPairs:
    """The definition of ``virtual_layout``, pair by pair."""
    rows = []
    spans = zip(queries.tolist(), queries.tolist()[1:], keys.tolist(), keys.tolist()[1:], strict=False)
    for first_query, end_query, first_key, end_key in spans:
        rows += [(q, k) for q in range(first_query, end_query) for k in range(first_key, end_key)]
    table = torch.tensor(rows, dtype=torch.long, device=queries.device).reshape(-1, 2)
    return DefinedPairs(table[:, 0], table[:, 1], torch.zeros_like(table[:, 0]), int(queries[-1]), int(keys[-1]))
