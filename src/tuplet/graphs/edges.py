"""Edge lists made tidy: symmetric where they must be, sorted, without duplicates, self loops set apart."""

from __future__ import annotations

import torch
from torch import Tensor

from tuplet.errors import InputError


def symmetrise(edge_index: Tensor, edge_attr: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Append the reverse of every edge, with the same features; ``tidy`` merges what was there already."""
    edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    return edge_index, None if edge_attr is None else torch.cat([edge_attr, edge_attr])


def tidy(
    edge_index: Tensor,
    edge_attr: Tensor | None,
    num_nodes: int,
    directed: bool,
    ptr: Tensor | None = None,
    symmetric: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Compressed sparse rows of a checked edge list; ``ptr`` (G+1,) lets errors name the graph of an edge. ``symmetric``: it is known that
    both directions are there.

    Returns:
        ``rowptr`` (N+1,), ``col`` (E,), ``loop`` (N,) and ``edge_attr`` (E + loops, c), as ``GraphBatch`` describes them.
    """
    row, col = edge_index[0], edge_index[1].clone()
    code = row * num_nodes + col
    if bool((code[1:] <= code[:-1]).any()):
        code, edge_attr = _sorted_once(code, edge_attr, num_nodes, ptr)
        row, col = code // num_nodes, code % num_nodes
    loop = torch.full((num_nodes,), -1, dtype=torch.long, device=code.device)
    is_loop = row == col
    if bool(is_loop.any()):
        loops = row[is_loop]
        row, col, code = row[~is_loop], col[~is_loop], code[~is_loop]
        loop[loops] = len(col) + torch.arange(len(loops), device=code.device)
        if edge_attr is not None:
            edge_attr = torch.cat([edge_attr[~is_loop], edge_attr[is_loop]])
    if not directed and not symmetric:
        _refuse_asymmetry(row, col, code, edge_attr, num_nodes, ptr)
    rowptr = torch.zeros(num_nodes + 1, dtype=torch.long, device=code.device)
    rowptr[1:] = torch.bincount(row, minlength=num_nodes).cumsum(0)
    return rowptr, col, loop, edge_attr


def _sorted_once(
    code: Tensor, edge_attr: Tensor | None, num_nodes: int, ptr: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Codes of edges in order, each once, and their features."""
    code, order = torch.sort(code, stable=True)
    first = torch.ones_like(code, dtype=torch.bool)
    first[1:] = code[1:] != code[:-1]
    if edge_attr is not None:
        edge_attr = edge_attr[order]
        _refuse_unequal_duplicates(code, edge_attr, first, num_nodes, ptr)
        edge_attr = edge_attr[first]
    return code[first], edge_attr


def _name(u: int, v: int, ptr: Tensor | None) -> str:
    """The edge with the node numbers of its own graph, and which graph that is if there are several."""
    if ptr is None or len(ptr) == 2:
        return f"({u}, {v})"
    graph = int(torch.searchsorted(ptr, u, right=True)) - 1
    return f"({u - int(ptr[graph])}, {v - int(ptr[graph])}) of graph {graph}"


def _refuse_unequal_duplicates(
    code: Tensor, edge_attr: Tensor, first: Tensor, num_nodes: int, ptr: Tensor | None
) -> None:
    unequal = ~first[1:] & (edge_attr[1:] != edge_attr[:-1]).any(1)
    if bool(unequal.any()):
        edge = int(code[int(unequal.nonzero()[0]) + 1])
        raise InputError(
            "edge_attr",
            "equal features for repeated edges",
            f"the edge {_name(edge // num_nodes, edge % num_nodes, ptr)} twice with different ones",
        )


def _refuse_asymmetry(
    row: Tensor, col: Tensor, code: Tensor, edge_attr: Tensor | None, num_nodes: int, ptr: Tensor | None
) -> None:
    if code.numel() == 0:
        return
    reverse = col * num_nodes + row
    back = torch.searchsorted(code, reverse).clamp_(max=code.numel() - 1)
    missing = code[back] != reverse
    if bool(missing.any()):
        edge = int(missing.nonzero()[0])
        raise InputError(
            "edge_index",
            "both directions of every edge of an undirected graph",
            f"{_name(int(row[edge]), int(col[edge]), ptr)} without its reverse ({int(missing.sum())} such edges)",
            "Pass undirected='symmetrise' to add the reverses, or directed=True to keep the direction.",
        )
    if edge_attr is None:
        return
    unequal = (edge_attr[: len(code)] != edge_attr[back]).any(1)
    if bool(unequal.any()):
        edge = int(unequal.nonzero()[0])
        raise InputError(
            "edge_attr",
            "equal features in both directions of an undirected edge",
            f"different ones for {_name(int(row[edge]), int(col[edge]), ptr)} and its reverse",
            "Pass directed=True to keep both.",
        )
