"""Graphs and encodings that the tests of this folder share."""

from __future__ import annotations

import networkx as nx
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from tuplet.encodings import (
    DEG,
    MAP,
    RD,
    RRWP,
    RWSE,
    SPD,
    SPE,
    BasisNet,
    EdgeRWSE,
    Encoding,
    Hodge1Lap,
    HodgeRW,
    LapPE,
    SignNet,
)
from tuplet.graphs import GraphBatch, read
from tuplet.graphs.door import as_data
from tuplet.testing import permute
from tuplet.topology import complex_of

GRAPHS = {
    "one node": nx.empty_graph(1),
    "no edges": nx.empty_graph(4),
    "one edge": nx.path_graph(2),
    "path": nx.path_graph(6),
    "star": nx.star_graph(5),
    "cycle": nx.cycle_graph(8),
    "complete": nx.complete_graph(5),
    "two components": nx.disjoint_union(nx.cycle_graph(4), nx.path_graph(3)),
    "isolated node": nx.disjoint_union(nx.lollipop_graph(4, 3), nx.empty_graph(1)),
    "self loops": nx.Graph([(0, 0), (0, 1), (1, 2), (2, 2), (2, 0), (2, 3)]),
    "petersen": nx.petersen_graph(),
    "canonical planes": nx.from_graph6_bytes(b"Fhf_g"),
    "canonical plane, sym": nx.from_graph6_bytes(b"FjsGG"),
    "random": nx.gnp_random_graph(11, 0.35, seed=3),
    "large": nx.gnp_random_graph(19, 0.2, seed=1),
}
"""Every edge case: fewer nodes than K, several components, no edges, repeated eigenvalues with
and without a canonical basis, loops."""

SIMPLE = {
    "path": nx.path_graph(7),
    "lollipop, tail": nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (1, 6)]),
    "random": nx.gnp_random_graph(11, 0.35, seed=7),
    "denser": nx.gnp_random_graph(9, 0.5, seed=5),
}
"""Graphs whose eigenvalues are all simple."""

INVARIANT: tuple[Encoding, ...] = (
    DEG(4, 5),
    RWSE(7, 5),
    BasisNet(4, 5),
    BasisNet("all", 5),
    BasisNet(4, 5, whole="keep", laplacian="comb"),
    SPE(4, 5, layers=3, hidden=16),
    SPE("all", 5, layers=3, hidden=16),
    SPE(4, 5, whole="keep", laplacian="comb", layers=3, hidden=16),
    MAP(4, 5),
    MAP("all", 5, laplacian="comb"),
    MAP(4, 5, whole="keep"),
    MAP(4, 5, model="mlp"),
    RRWP(6, 5),
    SPD(2, 5),
    RD(5),
    EdgeRWSE(6, 5),
    EdgeRWSE(6, 5, directed=True),
    Hodge1Lap(5, 5),
    HodgeRW(6, 5, dim=0),
    HodgeRW(6, 5, dim=1),
    HodgeRW(6, 5, dim=1, rings=(4, 5)),
    HodgeRW(6, 5, dim=2, rings=(4, 5)),
    HodgeRW(6, 5, dim=3, rings=(5,)),
)
"""Encodings that depend on the graph alone, whatever the graph."""

SMALL_SIGNNET = {"phi_layers": 2, "rho_layers": 2, "hidden": 12}

OTHERS: tuple[Encoding, ...] = (
    LapPE(4, 5),
    LapPE(4, 5, model="mlp"),
    LapPE("all", 5),
    LapPE(4, 5, whole="keep"),
    MAP(4, 5, uncanonical="flip"),
    SignNet(4, 5, **SMALL_SIGNNET),
    SignNet(4, 5, rho="sum", **SMALL_SIGNNET),
    SignNet(4, 5, phi="mlp", **SMALL_SIGNNET),
    SignNet("all", 5, **SMALL_SIGNNET),
    SPE(4, 5, whole="cut", layers=2, hidden=8),
)
"""Encodings that see signs, or bases, that the numbering of nodes settles."""

EVERY = INVARIANT + OTHERS


def name(encoding: Encoding) -> str:
    return str(encoding)


def random_encoder(encoding: Encoding, seed: int = 0) -> nn.Module:
    """An encoder in float64 and evaluation mode in which no parameter and no running statistic is at a special value."""
    encoder = encoding.encoder().double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, value in encoder.state_dict().items():
            noise = torch.rand(value.shape, generator=generator, dtype=torch.float64)
            value.copy_(0.5 + noise if key.endswith("var") else value + 0.4 * (noise - 0.5))
    return encoder


def encode(encoding: Encoding, encoder: nn.Module, graph: GraphBatch) -> list[Tensor]:
    """Vectors in float64: of nodes, of pairs, or of the simplices of each dimension."""
    with torch.no_grad():
        out = encoder(encoding.compute(graph, torch.float64), graph)
    return list(out.values()) if isinstance(out, dict) else [out]


def rename(graph: nx.Graph, seed: int = 0) -> tuple[Data, Data, Tensor]:
    """A graph, the same graph with node i renamed to permutation[i], and the permutation."""
    data = as_data(graph)
    permutation = torch.randperm(len(graph), generator=torch.Generator().manual_seed(seed))
    return data, permute(data, permutation), permutation


def back(encoding: Encoding, rows: list[Tensor], original: Data, renamed: Data, permutation: Tensor) -> list[Tensor]:
    """Vectors of the renamed graph in the order of the original one."""
    n = len(permutation)
    if encoding.level == "node":
        return [rows[0][permutation]]
    if encoding.level == "pair":
        square = rows[0].reshape(n, n, -1)
        return [square[permutation][:, permutation].flatten(0, 1)]
    top = 1 if len(rows) == 1 else len(rows) - 1
    first, second = complex_of(read(original), top), complex_of(read(renamed), top)
    dims = [1] if len(rows) == 1 and encoding.fields[0].find("hodgerw0") < 0 else range(len(rows))
    out = []
    for k, part in zip(dims, rows, strict=True):
        out.append(part[second.find(permutation[first.simplices[k]].sort(dim=1).values)])
    return out


def difference(first: list[Tensor], second: list[Tensor]) -> float:
    """Largest difference, relative to the largest number where that is above 1."""
    worst = 0.0
    for a, b in zip(first, second, strict=True):
        assert a.shape == b.shape
        assert torch.isfinite(a).all()
        assert torch.isfinite(b).all()
        if a.numel():
            worst = max(worst, float((a - b).abs().max() / b.abs().max().clamp_min(1)))
    return worst
