"""Graphormer: attention over all nodes with a bias from distances and from the edges along shortest paths."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.utils import softmax

from tuplet.models.baselines.config import BaselineConfig
from tuplet.models.baselines.pairs import lay_down, take
from tuplet.models.baselines.prepared import PreparedGraphs
from tuplet.models.block import Stream
from tuplet.models.encoded import pair_width


class PairBias(nn.Module):
    """b_{d(i,j)} + c_ij for each ordered pair and head, shared by all layers (Ying et al. 2021, sections 3.1.2 and 3.1.3).

    d is the distance, with numbers of their own for "further than the largest" and "no path". c_ij is the mean of e · w_p over
    the first edges e of a shortest path, with p the place of the edge on it; where there are several paths, of its
    expectation (``paths``). Without features or encodings of edges it would only repeat b and is left out. Encodings of
    pairs are mapped to the heads and added. All pairs with the virtual node have one bias of their own (section 3.2).
    """

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        self.heads, self.steps = config.heads, config.max_path
        self.distance = config.distance_encoding.encoder()
        self.edges = nn.Linear(config.dim, self.steps * self.heads, bias=False) if config.reads_edges else None
        width = pair_width(config.encodings)
        self.encoded = nn.Linear(width, self.heads, bias=False) if width else None
        self.virtual = nn.Parameter(torch.zeros(self.heads)) if config.virtual_node else None

    def forward(self, e: Tensor | None, encoded: Tensor | None, prepared: PreparedGraphs) -> list[Tensor]:
        """For each stack (B, h, m, m): the bias of each query (row) and key (column), -inf at keys that are not there.

        With a virtual node m is one more than the stack has, and it is the last.
        """
        bias = self.distance(prepared.graph.statistics, prepared.graph)
        paths, pairs = prepared.paths, prepared.pairs
        if self.edges is not None and paths is not None and e is not None:
            numbers = F.embedding(paths.place, self.edges(e).reshape(-1, self.heads))
            along = numbers.to(bias.dtype) * paths.weight.to(bias.dtype)[:, None]
            bias = bias.index_add(0, paths.pair, along)
        if self.encoded is not None and encoded is not None:
            bias = bias + self.encoded(encoded)
        assert pairs is not None
        found = []
        for stack in pairs.stacks:
            square = take(bias, stack.pairs).permute(0, 3, 1, 2)
            square = square.masked_fill(~stack.inside[:, None, None, :], float("-inf"))
            found.append(square if self.virtual is None else _framed(square, self.virtual))
        return found


def _framed(square: Tensor, bias: Tensor) -> Tensor:
    """(B, h, m+1, m+1) with one bias a head in the last row and column; keys that are not there stay away."""
    column = bias.to(square.dtype)[None, :, None, None].expand(len(square), -1, square.shape[2], 1)
    rows = torch.cat([square, column], 3)
    last = torch.where(rows[:, :, :1].isneginf(), rows[:, :, :1], column[:, :, :1])
    return torch.cat([rows, last], 2)


class GraphormerLayer(nn.Module):
    """x ← x + D(MHA(N x)), x ← x + D(FFN(N x)), with softmax(q·k / sqrt(c) + bias)."""

    looks_at = "all nodes"

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.query_key_value = nn.Linear(config.dim, 3 * config.dim)
        self.output = nn.Linear(config.dim, config.dim)
        self.stream = Stream(config.common)

    def forward(self, x: Tensor, bias: list[Tensor], prepared: PreparedGraphs) -> tuple[Tensor, list[Tensor]]:
        """Nodes (N, d), and after them virtual ones if there are any, after the layer; and biases as they came."""
        pairs = prepared.pairs
        assert pairs is not None
        nodes = len(pairs.node_graph)
        virtual = len(x) > nodes
        projected = self.query_key_value(self.stream.enter(x))
        messages, upward = [], []
        for stack, numbers in zip(pairs.stacks, bias, strict=True):
            rows = take(projected[:nodes], stack.nodes)
            if virtual:
                rows = torch.cat([rows, projected[nodes + stack.graphs][:, None]], 1)
            q, k, v = rows.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            message = F.scaled_dot_product_attention(q, k, v, attn_mask=numbers.to(q.dtype))  # (B, h, m, c)
            message = message.transpose(1, 2).flatten(2)
            messages.append(message[:, :-1] if virtual else message)
            upward += [message[:, -1]] if virtual else []
        heard = lay_down(messages, pairs.node_places)
        if virtual:
            order = torch.cat([stack.graphs for stack in pairs.stacks]).argsort()
            heard = torch.cat([heard, torch.cat(upward)[order]])
        return self.stream.leave(x, heard, self.output), bias

    def weights(self, x: Tensor, bias: list[Tensor], prepared: PreparedGraphs) -> tuple[Tensor, Tensor, Tensor]:
        """The node that looks, the one looked at, and the weight (Σ n², h); a virtual node is one more in each graph."""
        pairs = prepared.pairs
        assert pairs is not None
        q, k, _ = self.query_key_value(self.stream.enter(x)).unflatten(-1, (3, self.heads, -1)).unbind(1)
        first, second, owner = pairs.first, pairs.second, pairs.node_graph
        sides = [stack.nodes.shape[1] for stack in pairs.stacks]
        squares = [numbers[:, :, :m, :m].permute(0, 2, 3, 1) for numbers, m in zip(bias, sides, strict=True)]
        number = lay_down(squares, pairs.pair_places)
        if len(x) > len(owner):  # nodes and virtual nodes, both ways, and virtual nodes themselves: one bias for all
            nodes, virtual = (
                torch.arange(len(owner), device=x.device),
                torch.arange(len(owner), len(x), device=x.device),
            )
            first = torch.cat([first, nodes, virtual[owner], virtual])
            second = torch.cat([second, virtual[owner], nodes, virtual])
            number = torch.cat([number, bias[0][0, :, -1, -1].expand(2 * len(nodes) + len(virtual), -1)])
        score = (q[first] * k[second]).sum(-1) * q.shape[-1] ** -0.5 + number
        return first, second, softmax(score, first)


class DegreeInput(nn.Module):
    """Centrality: a learned vector for the in-degree and one for the out-degree of a node, added to it."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        self.encoder = config.degree_encoding.encoder()

    def forward(self, x: Tensor, prepared: PreparedGraphs) -> Tensor:
        return x + self.encoder(prepared.graph.statistics, prepared.graph)
