"""The one door: PyG ``Data`` / ``Batch``, networkx graphs and graph6 strings become one checked ``GraphBatch``."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from tuplet.errors import InputError, OptionError
from tuplet.graphs.batch import GraphBatch
from tuplet.graphs.edges import symmetrise, tidy
from tuplet.graphs.from_networkx import from_networkx, is_networkx
from tuplet.graphs.graph6 import from_graph6

Undirected = Literal["require", "symmetrise"]
_KINDS = "a PyG Data or Batch, a networkx graph, a graph6 string, or a list of one of these"
_CARRIED = ("x", "edge_attr", "edge_label_index", "tuples")


def read(
    graphs: Any,
    *,
    undirected: Undirected = "require",
    directed: bool = False,
    device: torch.device | str | None = None,
) -> GraphBatch:
    """Check graphs once and bring them into the layout that everything else uses.

    Args:
        graphs: a PyG ``Data`` or ``Batch``, a networkx graph, a graph6 string, or a list of these.
        undirected: "require" refuses an edge whose reverse is missing; "symmetrise" adds the reverse with the same features.
        directed: keep the direction of edges; then ``undirected`` has no say.
        device: where the result lives; by default where the input does.

    Self loops become a flag of their node. Duplicate edges with equal features merge; with unequal ones they are refused.
    """
    if undirected not in ("require", "symmetrise"):
        raise OptionError(f"undirected: expected 'require' or 'symmetrise'; came {undirected!r}")
    if isinstance(graphs, GraphBatch):
        return graphs
    batch = _collate(graphs)
    if device is not None:
        batch = batch.to(device)
    edge_index = _check_edge_index(batch.edge_index, "edge_index")
    sizes, ptr = _sizes(batch)
    num_nodes = sum(sizes)
    _check_range(edge_index, ptr, num_nodes, batch)
    x = _rows(batch.x if "x" in batch else None, "x", num_nodes, "nodes")
    edge_attr = _rows(batch.edge_attr if "edge_attr" in batch else None, "edge_attr", edge_index.shape[1], "edges")
    if not directed and undirected == "symmetrise":
        edge_index, edge_attr = symmetrise(edge_index, edge_attr)
    rowptr, col, loop, edge_attr = tidy(edge_index, edge_attr, num_nodes, directed)
    tuples, tuple_counts = _sample(batch, sizes)
    return GraphBatch(
        sizes=sizes,
        ptr=ptr,
        rowptr=rowptr,
        col=col,
        loop=loop,
        x=x,
        edge_attr=edge_attr,
        directed=directed,
        queries=_queries(batch, ptr, num_nodes),
        tuples=tuples,
        tuple_counts=tuple_counts,
    )


def _collate(graphs: Any) -> Batch:
    if isinstance(graphs, Batch):
        return graphs
    items = [graphs] if isinstance(graphs, (Data, str)) or is_networkx(graphs) else graphs
    if not isinstance(items, Iterable):
        raise InputError("graphs", _KINDS, type(graphs).__name__)
    data = [_as_data(item) for item in items]
    if not data:
        raise InputError("graphs", "at least one graph", "an empty list")
    for field in _CARRIED:
        missing = [number for number, item in enumerate(data) if field not in item or item[field] is None]
        if missing and len(missing) < len(data):
            raise InputError(field, "in every graph of a list or in none", f"none in graph {missing[0]}")
    for number, item in enumerate(data):
        _check_edge_index(item.edge_index, f"edge_index of graph {number}" if len(data) > 1 else "edge_index")
    kept = [
        Data(
            num_nodes=item.num_nodes,
            edge_index=item.edge_index,
            **{f: item[f] for f in _CARRIED if item.get(f) is not None},
        )
        for item in data
    ]
    for item in kept:
        if "tuples" in item:
            item.num_tuples = len(item.tuples)
    try:
        return Batch.from_data_list(kept)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            "graphs", "features of one width and type in all graphs", str(error).splitlines()[0]
        ) from error


def _as_data(graph: Any) -> Data:
    if isinstance(graph, Data):
        return graph
    if isinstance(graph, str):
        return from_graph6(graph)
    if is_networkx(graph):
        return from_networkx(graph)
    raise InputError("graphs", _KINDS, type(graph).__name__)


def _check_edge_index(edge_index: Any, field: str) -> Tensor:
    if not isinstance(edge_index, Tensor):
        raise InputError(field, "a tensor of shape (2, E)", "None" if edge_index is None else type(edge_index).__name__)
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise InputError(field, "shape (2, E)", f"shape {tuple(edge_index.shape)}")
    if edge_index.dtype not in (torch.int64, torch.int32):
        raise InputError(field, "torch.int64", str(edge_index.dtype))
    return edge_index.long()


def _sizes(batch: Batch) -> tuple[tuple[int, ...], Tensor]:
    ptr = batch.ptr if "ptr" in batch else None
    if ptr is None:
        ptr = torch.tensor([0, batch.num_nodes], device=batch.edge_index.device)
    bounds = ptr.tolist()
    sizes = tuple(end - start for start, end in pairwise(bounds))
    if not sizes:
        raise InputError("batch", "at least one graph", "an empty batch")
    for number, n in enumerate(sizes):
        if n < 1:
            raise InputError("num_nodes", "at least one node in every graph", f"n = {n} in graph {number}")
    return sizes, ptr.to(batch.edge_index.device)


def _check_range(edge_index: Tensor, ptr: Tensor, num_nodes: int, batch: Batch) -> None:
    if edge_index.numel() == 0:
        return
    graph = _graph_of(edge_index[0].clamp(0, num_nodes - 1), ptr)
    slices = getattr(batch, "_slice_dict", {}).get("edge_index")
    if slices is not None:  # PyG shifts indices when it collates: only the slices tell whose edge it was
        edges = torch.arange(edge_index.shape[1], device=edge_index.device)
        graph = torch.searchsorted(slices.to(edge_index.device), edges, right=True) - 1
    first, end = ptr[graph], ptr[graph + 1]
    outside = ((edge_index < first) | (edge_index >= end)).any(0)
    if bool(outside.any()):
        edge = int(outside.nonzero()[0])
        number, n = int(graph[edge]), int(end[edge] - first[edge])
        u, v = (edge_index[:, edge] - first[edge]).tolist()
        raise InputError("edge_index", f"node numbers 0..{n - 1} in graph {number} (n = {n})", f"the edge ({u}, {v})")


def _graph_of(nodes: Tensor, ptr: Tensor) -> Tensor:
    return torch.searchsorted(ptr, nodes.contiguous(), right=True) - 1


def _rows(features: Any, field: str, rows: int, what: str) -> Tensor | None:
    if features is None:
        return None
    if not isinstance(features, Tensor):
        raise InputError(field, "a tensor", type(features).__name__)
    if features.dim() not in (1, 2):
        raise InputError(field, f"shape ({rows},) or ({rows}, c)", f"shape {tuple(features.shape)}")
    if features.shape[0] != rows:
        raise InputError(field, f"{rows} rows, one for each of the {what}", f"{features.shape[0]} rows")
    if features.is_complex():
        raise InputError(field, "real or integer numbers", str(features.dtype))
    if features.is_floating_point() and not bool(torch.isfinite(features).all()):
        row = int((~torch.isfinite(features.reshape(rows, -1))).any(1).nonzero()[0])
        raise InputError(field, "finite numbers", f"NaN or infinity in row {row}")
    return features.reshape(rows, -1)


def _queries(batch: Batch, ptr: Tensor, num_nodes: int) -> Tensor | None:
    if "edge_label_index" not in batch or batch.edge_label_index is None:
        return None
    queries = _check_edge_index(batch.edge_label_index, "edge_label_index")
    if queries.numel() == 0:
        return queries
    if int(queries.min()) < 0 or int(queries.max()) >= num_nodes:
        raise InputError(
            "edge_label_index", f"node numbers 0..{num_nodes - 1}", f"{int(queries.min())}..{int(queries.max())}"
        )
    graphs = _graph_of(queries, ptr)
    if bool((graphs[0] != graphs[1]).any()):
        pair = int((graphs[0] != graphs[1]).nonzero()[0])
        raise InputError("edge_label_index", "both nodes of a pair in one graph", f"pair {pair} joins two graphs")
    return queries


def _sample(batch: Batch, sizes: tuple[int, ...]) -> tuple[Tensor | None, tuple[int, ...] | None]:
    if "tuples" not in batch or batch.tuples is None:
        return None, None
    tuples = batch.tuples
    if not isinstance(tuples, Tensor) or tuples.dim() != 2 or tuples.dtype not in (torch.int64, torch.int32):
        raise InputError(
            "tuples", "an integer tensor of shape (S, k)", str(getattr(tuples, "shape", type(tuples).__name__))
        )
    if "num_tuples" in batch:
        counts = tuple(torch.as_tensor(batch.num_tuples).reshape(-1).tolist())
    elif "tuples" in getattr(batch, "_slice_dict", {}):
        counts = tuple(batch._slice_dict["tuples"].diff().tolist())
    else:
        counts = (len(tuples),) if len(sizes) == 1 else ()
    if len(counts) != len(sizes) or sum(counts) != len(tuples):
        raise InputError("num_tuples", f"{len(sizes)} counts that sum to {len(tuples)}", f"{counts}")
    n = torch.tensor(sizes, device=tuples.device).repeat_interleave(torch.tensor(counts, device=tuples.device))
    outside = ((tuples < 0) | (tuples >= n[:, None])).any(1)
    if bool(outside.any()):
        row = int(outside.nonzero()[0])
        raise InputError(
            "tuples", f"node numbers 0..{int(n[row]) - 1} of the tuple's own graph", f"{tuples[row].tolist()}"
        )
    return tuples.long(), counts
