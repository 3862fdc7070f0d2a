"""A plain A2^LN as one would write it with PyG's tools, the yardstick of `tuplet bench`: a list of pairs, gathering, scattering.

Nothing here is meant to be fast or general: 2-tuples, local neighbours, heads dealt to the two neighbourhoods, post-norm batch norm.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.nn import global_add_pool
from torch_geometric.utils import scatter, softmax


def tuples_of(batch: Batch) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """The two nodes and the graph of each pair of nodes, and the two lists of (query, key)."""
    sizes = batch.ptr.diff()
    graph = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes**2)
    first = torch.cat([sizes.new_zeros(1), (sizes**2).cumsum(0)])
    place = torch.arange(len(graph), device=sizes.device) - first[graph]
    n = sizes[graph]
    i, j = place // n + batch.ptr[graph], place % n + batch.ptr[graph]
    u, v = batch.edge_index
    owner = batch.batch[u]
    lists = []
    for axis in (0, 1):
        # every edge (u, v) gives n pairs: (u, w) sees (v, w), or (w, u) sees (w, v)
        edge = torch.repeat_interleave(torch.arange(len(u), device=u.device), sizes[owner])
        begin = torch.cat([sizes.new_zeros(1), sizes[owner].cumsum(0)])
        other = torch.arange(len(edge), device=u.device) - begin[edge]
        size, base = sizes[owner][edge], first[owner][edge]
        a, b = u[edge] - batch.ptr[owner[edge]], v[edge] - batch.ptr[owner[edge]]
        query = a * size + other if axis == 0 else other * size + a
        key = b * size + other if axis == 0 else other * size + b
        lists.append(torch.stack([query + base, key + base]))
    return i, j, graph, lists


class Layer(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(dim, dim) for _ in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm1d(dim) for _ in range(2))
        self.feed_forward = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor, lists: list[Tensor]) -> Tensor:
        q, k, v = (map_(x).view(len(x), self.heads, -1) for map_ in (self.query, self.key, self.value))
        parts = []
        for axis, (query, key) in enumerate(lists):
            heads = slice(axis, None, 2)
            score = (q[query, heads] * k[key, heads]).sum(-1) / q.shape[-1] ** 0.5
            weight = softmax(score, query, num_nodes=len(x))
            parts.append(scatter(weight[..., None] * v[key, heads], query, dim=0, dim_size=len(x), reduce="sum"))
        message = torch.stack(parts, dim=2).flatten(1)
        x = self.norms[0](x + self.output(message))
        return self.norms[1](x + self.feed_forward(x))


class Yardstick(nn.Module):
    def __init__(self, dim: int, depth: int, heads: int, node_types: int, edge_types: int, encoding: int) -> None:
        super().__init__()
        self.nodes = nn.Embedding(node_types, dim)
        self.pairs = nn.Embedding(edge_types + 2, dim)
        self.encoding = nn.Linear(encoding, dim) if encoding else None
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.head = nn.Sequential(nn.Linear(dim, dim // 2), nn.GELU(), nn.Linear(dim // 2, 1))

    def forward(self, batch: Batch) -> Tensor:
        batch = batch.to(self.nodes.weight.device)
        i, j, graph, lists = tuples_of(batch)
        nodes = self.nodes(batch.x[:, 0])
        fields = [field for field in batch.keys() if field.startswith("pe_")]  # noqa: SIM118
        if self.encoding is not None and fields:
            nodes = nodes + self.encoding(batch[fields[0]])
        codes = i * batch.num_nodes + j
        kind = (i == j).long()
        u, v = batch.edge_index
        edges, order = (u * batch.num_nodes + v).sort()
        found = torch.searchsorted(edges, codes).clamp_(max=len(edges) - 1)
        kind = torch.where(edges[found] == codes, batch.edge_attr[order[found], 0] + 2, kind)
        x = nodes[i] + nodes[j] + self.pairs(kind)
        for layer in self.layers:
            x = layer(x, lists)
        return self.head(global_add_pool(x, graph))


def build(
    dim: int, depth: int, heads: int, node_types: Any, edge_types: Any, encodings: Any = (), **_: Any
) -> Yardstick:
    """With the options of ``tuplet.build`` that matter here."""
    steps = int(str(encodings[0]).split(":")[1]) if encodings else 0
    return Yardstick(dim, depth, heads, node_types[0], edge_types[0], steps)
