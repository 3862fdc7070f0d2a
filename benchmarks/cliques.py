"""How fast clique complexes are made, beside networkx's enumeration of the same cliques.

python benchmarks/cliques.py
"""

from __future__ import annotations

import networkx as nx
import torch

import tuplet
from tuplet.cli.table import align
from tuplet.experiments.measure import seconds
from tuplet.topology import clique_complex

CASES = (
    ("G(500, 0.1), triangles", [nx.gnp_random_graph(500, 0.1, seed=0)], 2),
    ("G(500, 0.1), up to 5 nodes", [nx.gnp_random_graph(500, 0.1, seed=0)], 4),
    ("power law, 20,000 nodes", [nx.powerlaw_cluster_graph(20_000, 3, 0.3, seed=0)], 2),
    ("128 molecule-like graphs", [nx.gnm_random_graph(23, 25, seed=seed) for seed in range(128)], 2),
)


def by_networkx(graphs: list[nx.Graph], dim: int) -> int:
    """Cliques of at most dim + 1 nodes, as networkx enumerates them."""
    found = 0
    for graph in graphs:
        for clique in nx.enumerate_all_cliques(graph):
            if len(clique) > dim + 1:
                break
            found += 1
    return found


def main() -> None:
    cpu = torch.device("cpu")
    rows = []
    for name, graphs, dim in CASES:
        batch = tuplet.read(graphs)
        known = clique_complex(batch, dim)
        assert sum(known.counts) == by_networkx(graphs, dim)
        ours = seconds(lambda batch=batch, dim=dim: clique_complex(batch, dim), cpu)
        theirs = seconds(lambda graphs=graphs, dim=dim: by_networkx(graphs, dim), cpu, repeats=1)
        counts = " + ".join(f"{count:,}" for count in known.counts)
        rows.append((name, counts, f"{1000 * ours:.0f}", f"{1000 * theirs:.0f}", f"{theirs / ours:.0f}"))
    print(align(("graphs", "simplices by dimension", "ms", "networkx ms", "ratio"), rows, right=(2, 3, 4)))


if __name__ == "__main__":
    main()
