"""The one door: PyG ``Data`` / ``Batch``, networkx graphs and graph6 strings become one checked ``GraphBatch``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData

from tuplet.errors import InputError, OptionError
from tuplet.graphs.batch import GraphBatch, offsets, repeat
from tuplet.graphs.edges import symmetrise, tidy
from tuplet.graphs.from_networkx import from_networkx, is_networkx
from tuplet.graphs.graph6 import from_graph6

Undirected = Literal["require", "symmetrise"]
_KINDS = "a PyG Data or Batch, a networkx graph, a graph6 string, or a list of one of these"
_INTEGERS = (torch.int64, torch.int32)


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
        if graphs.directed != directed:
            raise InputError("directed", f"a batch read with directed={directed}", f"directed={graphs.directed}")
        return graphs if device is None else graphs.to(device)
    batch = _collate(graphs)
    edge_index = _pairs(batch.edge_index, "edge_index")
    device = edge_index.device if device is None else torch.device(device)
    edge_index = edge_index.to(device)
    x = _columns(batch.get("x"), "x")
    edge_attr = _columns(batch.get("edge_attr"), "edge_attr")
    sizes = _sizes(batch)
    _check_sizes(sizes)
    ptr = offsets(sizes, device)
    num_nodes, num_edges = sum(sizes), edge_index.shape[1]
    checked = bool(getattr(batch, "_checked", False))
    if not checked:
        edges = _counts(batch, "edge_index", num_edges, len(sizes))
        _check_range(edge_index, "edge_index", ptr, edges)
        _check_rows(x, "x", num_nodes, sizes, batch, "nodes")
        _check_rows(edge_attr, "edge_attr", num_edges, edges, batch, "edges")
    edge_attr = None if edge_attr is None else edge_attr.to(device)
    if not directed and undirected == "symmetrise":
        edge_index, edge_attr = symmetrise(edge_index, edge_attr)
    rowptr, col, loop, edge_attr = tidy(edge_index, edge_attr, num_nodes, directed, ptr, checked)
    tuples, tuple_counts = _sample(batch, sizes)
    return GraphBatch(
        sizes=sizes,
        ptr=ptr,
        rowptr=rowptr,
        col=col,
        loop=loop,
        x=None if x is None else x.to(device),
        edge_attr=edge_attr,
        directed=directed,
        queries=_queries(batch, ptr, checked),
        tuples=None if tuples is None else tuples.to(device),
        tuple_counts=tuple_counts,
        simplices=_simplices(batch, ptr, checked),
        statistics=_statistics(batch, device),
        checked=checked,
    )


def _collate(graphs: Any) -> Data:
    """One PyG object that holds all graphs."""
    one = isinstance(graphs, (str, bytes, BaseData, Tensor, Mapping)) or is_networkx(graphs)
    if one or not isinstance(graphs, Iterable):
        return as_data(graphs)
    data = [as_data(item) for item in graphs]
    if not data:
        raise InputError("graphs", "at least one graph", "an empty list")
    kept = [_fields(item, number) for number, item in enumerate(data)]
    _fill_edgeless(kept)
    for field in ("x", "edge_attr", "edge_label_index", "tuples", *_simplex_fields(data), *_statistic_fields(data)):
        _check_alike(field, [item.get(field) for item in kept])
    try:
        return _joined(kept)
    except RuntimeError as error:
        raise InputError("graphs", "graphs that can be joined", str(error).splitlines()[0]) from error


def _joined(items: list[dict[str, Any]]) -> Data:
    """What PyG's ``Batch.from_data_list`` makes of checked fields, in one step for each field instead of each graph."""
    fields = {}
    for field in (name for name in items[0] if name != "num_nodes"):
        rows = [item[field] for item in items]
        if rows[0] is not None:
            axis = int(holds_nodes(field))
            fields[field] = torch.cat(rows, dim=axis), torch.tensor([part.shape[axis] for part in rows])
    return joined(torch.tensor([item["num_nodes"] for item in items]), fields)


def is_read(field: str) -> bool:
    """Whether ``read`` looks at an attribute of that name."""
    return field in ("x", "edge_attr", "tuples") or field.startswith("pe_") or holds_nodes(field)


def holds_nodes(field: str) -> bool:
    """Whether an attribute of that name holds numbers of nodes, in columns."""
    return re.fullmatch(r"edge_index|edge_label_index|simplex_index_[1-9]\d*", field) is not None


def joined(sizes: Tensor, fields: Mapping[str, tuple[Tensor, Tensor]], checked: bool = False) -> Data:
    """One PyG object that holds graphs of ``sizes`` (G,) nodes; ``fields`` are the rows of all of them, numbers of nodes being each graph's
    own, and how many (G,) each has. ``checked``: as in ``GraphBatch``."""
    data = Data(num_nodes=int(sizes.sum()), ptr=F.pad(sizes.cumsum(0), (1, 0)))
    data._slice_dict, data._checked = {}, checked
    for field, (rows, counts) in fields.items():
        data._slice_dict[field] = F.pad(counts.cumsum(0), (1, 0))
        if holds_nodes(field):
            rows = rows + repeat(data.ptr[:-1], counts, rows.shape[1]).to(rows)
        data[field] = rows
    return data


def as_data(graph: Any) -> Data:
    if isinstance(graph, Data):
        return graph
    if isinstance(graph, str):
        return from_graph6(graph)
    if is_networkx(graph):
        return from_networkx(graph)
    raise InputError("graphs", _KINDS, type(graph).__name__)


def _fields(item: Data, number: int) -> dict[str, Any]:
    """What is kept of one graph of a list, in the form in which graphs can be joined."""
    where = f" in graph {number}"
    fields: dict[str, Any] = {"edge_index": _pairs(item.edge_index, "edge_index", where)}
    for field in ("x", "edge_attr"):
        fields[field] = _columns(item.get(field), field, where)
    fields["tuples"] = _tuples(item.get("tuples"), where)
    if item.get("edge_label_index") is not None:
        fields["edge_label_index"] = _pairs(item.edge_label_index, "edge_label_index", where)
    for field in _simplex_fields([item]):
        fields[field] = _index(item[field], field, _dimension(field) + 1, where)
    for field in _statistic_fields([item]):
        fields[field] = _raw(item[field], field, where)
    sizes = _sizes(item)
    if len(sizes) != 1:
        raise InputError("graphs", "one graph in every item of a list", f"{len(sizes)} graphs in item {number}")
    return {**fields, "num_nodes": sizes[0]}


def _fill_edgeless(items: list[dict[str, Any]]) -> None:
    """Give graphs without edges the empty ``edge_attr`` that goes with the other graphs of their list."""
    like = next((item["edge_attr"] for item in items if item["edge_attr"] is not None), None)
    for item in items:
        if like is not None and item["edge_attr"] is None and item["edge_index"].shape[1] == 0:
            item["edge_attr"] = like[:0]


def _check_alike(field: str, values: list[Tensor | None]) -> None:
    """Refuse a list of graphs of which only some have the field, or which have it in several widths."""
    missing = [number for number, value in enumerate(values) if value is None]
    if missing and len(missing) < len(values):
        raise InputError(field, "in every graph of a list or in none", f"none in graph {missing[0]}")
    widths = (
        []
        if missing or "index" in field or field.startswith("pe_")
        else [value.shape[1] for value in values if value is not None]
    )
    for number, width in enumerate(widths):
        if width != widths[0]:
            raise InputError(field, f"{widths[0]} columns, as in graph 0", f"{width} in graph {number}")


def _pairs(index: Any, field: str, where: str = "") -> Tensor:
    return _index(index, field, 2, where)


def _index(index: Any, field: str, rows: int, where: str = "") -> Tensor:
    """A checked tensor of node numbers, one column a pair or simplex."""
    shape = f"({rows}, {'S' if field.startswith('simplex') else 'E'})"
    if not isinstance(index, Tensor):
        came = "None" if index is None else type(index).__name__
        raise InputError(field, f"a tensor of shape {shape}", came + where)
    if index.dim() != 2 or index.shape[0] != rows:
        raise InputError(field, f"shape {shape}", f"shape {tuple(index.shape)}{where}")
    if index.dtype not in _INTEGERS:
        raise InputError(field, "torch.int64 or torch.int32", f"{index.dtype}{where}")
    return (index.as_tensor() if isinstance(index, EdgeIndex) else index).long()


def _columns(features: Any, field: str, where: str = "") -> Tensor | None:
    """Features as (rows, columns); whole numbers as int64."""
    if features is None:
        return None
    if not isinstance(features, Tensor) or features.layout != torch.strided:
        raise InputError(field, "a dense tensor", type(features).__name__ + where)
    if features.dim() not in (1, 2):
        raise InputError(field, "shape (rows,) or (rows, columns)", f"shape {tuple(features.shape)}{where}")
    if features.is_complex():
        raise InputError(field, "real or integer numbers", f"{features.dtype}{where}")
    features = features[:, None] if features.dim() == 1 else features
    return features if features.is_floating_point() else features.long()


def _tuples(tuples: Any, where: str = "") -> Tensor | None:
    if tuples is None:
        return None
    expected = "an integer tensor of shape (S, k)"
    if not isinstance(tuples, Tensor):
        raise InputError("tuples", expected, type(tuples).__name__ + where)
    if tuples.dim() != 2 or tuples.shape[1] == 0 or tuples.dtype not in _INTEGERS:
        raise InputError("tuples", expected, f"{tuples.dtype} of shape {tuple(tuples.shape)}{where}")
    return tuples.long()


def _sizes(data: Data) -> tuple[int, ...]:
    """Nodes of each graph: by ``ptr`` of a Batch, else by a hand-made ``batch`` vector, else one graph."""
    if data.get("ptr") is not None:
        return tuple(end - start for start, end in pairwise(data.ptr.tolist()))
    if data.get("batch") is not None:
        return _sizes_by_vector(data.batch)
    return (data.num_nodes or 0,)


def _check_sizes(sizes: tuple[int, ...]) -> None:
    if not sizes:
        raise InputError("batch", "at least one graph", "an empty batch")
    for number, n in enumerate(sizes):
        if n < 1:
            raise InputError("num_nodes", "at least one node in every graph", f"n = {n} in graph {number}")


def _sizes_by_vector(batch: Any) -> tuple[int, ...]:
    expected = "the graph number 0, 1, .. of each node, in increasing order"
    if not isinstance(batch, Tensor) or batch.dim() != 1 or batch.dtype not in _INTEGERS:
        shape = f" {batch.dtype} of shape {tuple(batch.shape)}" if isinstance(batch, Tensor) else ""
        raise InputError("batch", expected, type(batch).__name__ + shape)
    if batch.numel() == 0:
        return ()
    if int(batch[0]) < 0 or bool((batch.diff() < 0).any()):
        raise InputError("batch", expected, "negative or decreasing numbers")
    return tuple(torch.bincount(batch).tolist())


def _counts(data: Data, field: str, rows: int, graphs: int) -> tuple[int, ...] | None:
    """Rows that each graph had when PyG collated the field; None if it did not, or the field was replaced since."""
    slices = (getattr(data, "_slice_dict", None) or {}).get(field)
    if not isinstance(slices, Tensor) or len(slices) != graphs + 1 or int(slices[-1]) != rows:
        return None
    return tuple(slices.diff().tolist())


def _check_range(index: Tensor, field: str, ptr: Tensor, counts: tuple[int, ...] | None) -> None:
    """Refuse columns that leave their graph. PyG shifts indices when it collates: only ``counts`` tell whose they were."""
    if index.numel() == 0:
        return
    if counts is None:
        graph = (torch.searchsorted(ptr, index[0].contiguous(), right=True) - 1).clamp(0, len(ptr) - 2)
        first, end = ptr[graph], ptr[graph + 1]
    else:
        bounds = torch.stack([ptr[:-1], ptr[1:]], dim=1)
        numbers = torch.tensor(counts, device=index.device)
        first, end = torch.repeat_interleave(bounds, numbers, dim=0, output_size=index.shape[1]).unbind(1)
    outside = (index < first) | (index >= end)
    if not bool(outside.any()):
        return
    pair = int(outside.any(0).nonzero()[0])
    by_node = torch.searchsorted(ptr, index.contiguous(), right=True) - 1
    n = int(end[pair] - first[pair])
    owner = int(torch.searchsorted(ptr, first[pair], right=True)) - 1
    nodes = tuple((index[:, pair] - first[pair]).tolist())
    other_graph = len(set(by_node[:, pair].tolist())) == 1 and 0 <= int(by_node[0, pair]) < len(ptr) - 1
    raise InputError(
        field,
        f"node numbers 0..{n - 1} in graph {owner} (n = {n})",
        f"the {'pair' if len(nodes) == 2 else 'simplex'} {nodes}",
        f"If {field} was replaced after the graphs were collated, collate them again." if other_graph else "",
    )


def _check_rows(
    features: Tensor | None, field: str, rows: int, counts: Sequence[int] | None, batch: Data, what: str
) -> None:
    if features is None:
        return
    if len(features) != rows:
        raise InputError(field, f"{rows} rows, one for each of the {what}", f"{len(features)} rows")
    own = None if counts is None else _counts(batch, field, rows, len(counts))
    for number, (wanted, came) in enumerate(zip(counts or (), own or (), strict=False)):
        if came != wanted:
            raise InputError(field, f"{wanted} rows in graph {number}, one for each of its {what}", f"{came} rows")
    if features.is_floating_point() and not bool(torch.isfinite(features).all()):
        row = int((~torch.isfinite(features)).any(1).nonzero()[0])
        raise InputError(field, "finite numbers", f"NaN or infinity in row {row}")


def _queries(batch: Data, ptr: Tensor, checked: bool) -> Tensor | None:
    if batch.get("edge_label_index") is None:
        return None
    queries = _pairs(batch.edge_label_index, "edge_label_index").to(ptr.device)
    if not checked:
        counts = _counts(batch, "edge_label_index", queries.shape[1], len(ptr) - 1)
        _check_range(queries, "edge_label_index", ptr, counts)
    return queries


def _statistic_fields(items: Sequence[Data]) -> list[str]:
    """Fields of raw statistics that some graph has; ``Precompute`` writes them."""
    return sorted({field for item in items for field in item.keys() if field.startswith("pe_")})  # noqa: SIM118


def _statistics(batch: Data, device: torch.device) -> dict[str, Tensor] | None:
    found = {}
    for field in _statistic_fields([batch]):
        found[field] = _raw(batch[field], field).to(device)
    return found or None


def _raw(value: Any, field: str, where: str = "") -> Tensor:
    if not isinstance(value, Tensor) or value.dim() == 0:
        raise InputError(field, "a tensor with a row for each node, pair or simplex", type(value).__name__ + where)
    return value


def _dimension(field: str) -> int:
    return int(field.rsplit("_", 1)[1])


def _simplex_fields(items: Sequence[Data]) -> list[str]:
    """The fields ``simplex_index_1``, ``simplex_index_2``, .. that some graph has, lowest dimension first."""
    named = (field for item in items for field in item.keys() if field.startswith("simplex_index_"))  # noqa: SIM118
    found = {field for field in named if re.fullmatch(r"simplex_index_[1-9]\d*", field)}
    fields = sorted(found, key=_dimension)
    for place, field in enumerate(fields, start=1):
        if _dimension(field) != place:
            raise InputError(f"simplex_index_{place}", "every dimension from 1 upwards", f"{field} without it")
    return fields


def _simplices(batch: Data, ptr: Tensor, checked: bool) -> tuple[Tensor, ...] | None:
    levels = []
    for k, field in enumerate(_simplex_fields([batch]), start=1):
        index = _index(batch[field], field, k + 1).to(ptr.device)
        if not checked:
            _check_range(index, field, ptr, _counts(batch, field, index.shape[1], len(ptr) - 1))
        levels.append(index.t())
    return tuple(levels) or None


def _sample(batch: Data, sizes: tuple[int, ...]) -> tuple[Tensor | None, tuple[int, ...] | None]:
    tuples = _tuples(batch.get("tuples"))
    if tuples is None:
        return None, None
    collated = _counts(batch, "tuples", len(tuples), len(sizes))
    if batch.get("num_tuples") is not None:
        counts = tuple(torch.as_tensor(batch.num_tuples).reshape(-1).tolist())
    else:
        counts = collated or ((len(tuples),) if len(sizes) == 1 else ())
    if len(counts) != len(sizes) or sum(counts) != len(tuples) or (collated or counts) != counts:
        expected = f"{len(sizes)} counts that sum to {len(tuples)}" if collated is None else f"{collated}"
        raise InputError("num_tuples", f"{expected}, the tuples of each graph", f"{counts}")
    n = torch.tensor(sizes, device=tuples.device).repeat_interleave(torch.tensor(counts, device=tuples.device))
    outside = ((tuples < 0) | (tuples >= n[:, None])).any(1)
    if bool(outside.any()):
        row = int(outside.nonzero()[0])
        raise InputError(
            "tuples", f"node numbers 0..{int(n[row]) - 1} of the tuple's own graph", f"{tuples[row].tolist()}"
        )
    return tuples, counts
