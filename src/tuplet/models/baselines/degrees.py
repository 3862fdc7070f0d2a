"""How many nodes of a data set have each number of incoming edges: what PNA scales by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

from tuplet.errors import InputError
from tuplet.graphs import read

GRAPHS_AT_ONCE = 4096


def degree_histogram(
    graphs: Sequence[Any], *, directed: bool = False, undirected: Literal["require", "symmetrise"] = "require"
) -> tuple[int, ...]:
    """Numbers of nodes with 0, 1, 2, .. incoming edges, self loops not counted: the option ``degrees`` of PNA.

    Args:
        graphs: the training set; anything of which ``tuplet.read`` takes a list.
        directed, undirected: how edges are read, to agree with the model.
    """
    if len(graphs) == 0:
        raise InputError("graphs", "at least one graph", "none")
    total = torch.zeros(0, dtype=torch.long)
    for start in range(0, len(graphs), GRAPHS_AT_ONCE):
        part = [graphs[number] for number in range(start, min(start + GRAPHS_AT_ONCE, len(graphs)))]
        batch = read(part, directed=directed, undirected=undirected, device="cpu")
        counts = torch.bincount(torch.bincount(batch.col, minlength=batch.num_nodes), minlength=len(total))
        counts[: len(total)] += total
        total = counts
    return tuple(total.tolist())
