"""Random small graphs for the tests, with everything that a graph may have."""

import networkx as nx
import numpy as np
import torch
from torch_geometric.data import Data

SETTINGS = {
    "plain": {},
    "labelled": {"types": 2},
    "directed": {"directed": True},
    "directed, labelled": {"types": 2, "directed": True},
}


def random_graph(rng, n, density, types=0, directed=False, loops=True):
    """n nodes; each pair (each ordered pair) and each loop is an edge with the given probability, labels are uniform."""
    edges, labels = [], []
    for u in range(n):
        for v in range(n) if directed else range(u, n):
            if rng.random() < density * (u != v or 0.5 * loops):
                label = int(rng.integers(max(types, 1)))
                both = not directed and u != v
                edges += [(u, v), (v, u)] if both else [(u, v)]
                labels += [label] * (2 if both else 1)
    data = Data(edge_index=torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t().contiguous(), num_nodes=n)
    if types:
        data.x = torch.from_numpy(rng.integers(types, size=n)) * 0.1
        data.edge_attr = torch.tensor(labels, dtype=torch.float64).reshape(-1, 1) / 3
    return data


def some_graphs(seed, max_nodes, types=0, directed=False):
    """One node; no edges; isolated nodes; a complete graph; some random ones, and a renumbered copy of the last."""
    rng = np.random.default_rng(seed)
    graphs = [
        random_graph(rng, 1, 0.0, types, directed),
        random_graph(rng, 3, 0.0, types, directed),
        random_graph(rng, 3, 1.0, types, directed, loops=False),
    ]
    graphs += [random_graph(rng, max_nodes - i % 2, 0.3 + 0.2 * i, types, directed, loops=i > 0) for i in range(3)]
    return [*graphs, permute(graphs[-1], rng.permutation(graphs[-1].num_nodes))]


def permute(data, order):
    """The same graph with node i renumbered to order[i]."""
    order = torch.as_tensor(np.asarray(order))
    renumbered = data.clone()
    renumbered.edge_index = order[data.edge_index]
    if data.get("x") is not None:
        renumbered.x = data.x[order.argsort()]
    return renumbered


def as_networkx(data):
    """A directed networkx graph whose nodes and edges carry their labels."""
    graph = nx.DiGraph()
    x = [0.0] * data.num_nodes if data.get("x") is None else data.x.tolist()
    graph.add_nodes_from((node, {"label": label}) for node, label in enumerate(x))
    pairs = data.edge_index.t().tolist()
    labels = [0.0] * len(pairs) if data.get("edge_attr") is None else data.edge_attr.reshape(-1).tolist()
    graph.add_edges_from((u, v, {"label": label}) for (u, v), label in zip(pairs, labels, strict=True))
    return graph


def isomorphic(one, other):
    """By brute force, with labels."""

    def same(a, b):
        return a["label"] == b["label"]

    return nx.is_isomorphic(as_networkx(one), as_networkx(other), node_match=same, edge_match=same)
