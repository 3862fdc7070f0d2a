"""networkx graphs to PyG ``Data``: nodes in iteration order, attributes ``x`` and ``edge_attr``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from tuplet.errors import InputError


def is_networkx(graph: object) -> bool:
    """Whether ``graph`` is a networkx graph, without importing networkx for those who do not use it."""
    return any(cls.__module__.startswith("networkx.") and cls.__name__ == "Graph" for cls in type(graph).__mro__)


def from_networkx(graph: Any) -> Data:
    """A networkx ``Graph``, ``DiGraph`` or multigraph as ``Data``; an undirected edge becomes both directions."""
    number = {node: position for position, node in enumerate(graph.nodes)}
    x = _column("x", [graph.nodes[node].get("x") for node in graph.nodes])
    edges, values = [], []
    for u, v, attributes in graph.edges(data=True):
        both = not graph.is_directed() and u != v
        edges += [(number[u], number[v]), (number[v], number[u])] if both else [(number[u], number[v])]
        values += [attributes.get("edge_attr")] * (2 if both else 1)
    edge_index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t().contiguous()
    data = Data(edge_index=edge_index, num_nodes=len(number))
    if x is not None:
        data.x = x
    if (edge_attr := _column("edge_attr", values)) is not None:
        data.edge_attr = edge_attr
    return data


def _column(field: str, values: list[Any]) -> torch.Tensor | None:
    missing = sum(value is None for value in values)
    if missing == len(values):
        return None
    if missing:
        raise InputError(field, f"a value for all {len(values)} or for none", f"{missing} without one")
    try:
        return torch.from_numpy(np.stack([np.asarray(value) for value in values]))
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(field, "numbers of one shape and type", str(error)) from error
