"""Time and memory of exact Weisfeiler-Leman tests, beside the most that they may take on two cores.

    python benchmarks/wl.py [--json FILE] [--rows 0,2]

Each row runs once, in a process of its own, from graphs in memory to classes and colours, all rounds until stable. Memory is
the peak of the resident set above what the process held before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import networkx as nx
import torch
from torch_geometric.data import Data

import tuplet
from tuplet.cli.table import align
from tuplet.datasets import cfi
from tuplet.experiments.measure import resident_bytes
from tuplet.wl.bank import atlas


@dataclass(frozen=True)
class Row:
    """One call: the test, what it runs on in words and as graphs, and the most seconds it may take."""

    test: str
    what: str
    graphs: Callable[[], Any]
    target: float | None = None


def hard_pair() -> list[Data]:
    """A CFI pair of 198 nodes over a random cubic graph on 48 nodes with three edges subdivided: 48 * 4 + 3 * 2."""
    base = nx.random_regular_graph(3, 48, seed=0)
    for u, v in list(base.edges)[:3]:
        nx.add_path(base, [u, base.number_of_nodes(), v])
        base.remove_edge(u, v)
    return list(cfi(base))


def circles() -> list[nx.Graph]:
    return [nx.cycle_graph(198), nx.disjoint_union(nx.cycle_graph(99), nx.cycle_graph(99))]


def random_pair(n: int, degree: int) -> list[nx.Graph]:
    return [nx.random_regular_graph(degree, n, seed=seed) for seed in (0, 1)]


def million_edges(nodes: int) -> Data:
    """A random graph: a million pairs drawn at random, both directions."""
    ends = torch.randint(nodes, (2, 1_000_000), generator=torch.Generator().manual_seed(0))
    return Data(edge_index=torch.cat([ends, ends.flip(0)], dim=1), num_nodes=nodes)


def skip_links() -> list[nx.Graph]:
    return [nx.circulant_graph(41, [1, skip]) for skip in (2, 3)]


ROWS = (
    Row("2-FWL", "CFI pair, 2 × 198 nodes", hard_pair, 5),
    Row("2-FWL", "one circle / two, 2 × 198 nodes", circles, 5),
    Row("2-FWL", "random 3-regular, 2 × 198 nodes", lambda: random_pair(198, 3), 5),
    Row("3-WL", "CSL(2), CSL(3), 2 × 41 nodes", skip_links, 20),
    Row("3-WL", "random 4-regular, 2 × 41 nodes", lambda: random_pair(41, 4), 20),
    Row("1-WL", "10^6 edges, 10^5 nodes", lambda: million_edges(100_000), 10),
    Row("1-WL", "10^6 edges, 10^6 nodes", lambda: million_edges(1_000_000), 10),
    Row("2-FWL", "atlas, 1,252 graphs of at most 7 nodes", atlas, 20),
    Row("delta-2-LWL", "CFI pair, 2 × 198 nodes", hard_pair),
    Row("delta-2-LWL+", "CFI pair, 2 × 198 nodes", hard_pair),
    Row("delta-2-WL", "CFI pair, 2 × 198 nodes", hard_pair),
    Row("3-FWL", "CSL(2), CSL(3), 2 × 41 nodes", skip_links),
)


def measure(row: Row) -> dict[str, Any]:
    """Run one row in this process."""
    graphs = row.graphs()
    tuplet.wl.compare(row.test, [nx.path_graph(3)])
    base, _ = resident_bytes()
    started = time.perf_counter()
    result = tuplet.wl.compare(row.test, graphs)
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "bytes": resident_bytes()[1] - base,
        "rounds": result.rounds,
        "colors": result.history[-1],
        "classes": result.classes,
        "graphs": len(result.partition),
    }


def table(results: dict[int, dict[str, Any]]) -> str:
    header = ["test", "graphs", "seconds", "at most", "MB", "rounds", "colours", "classes"]
    lines = []
    for number, found in results.items():
        row = ROWS[number]
        target = "" if row.target is None else f"{row.target:.0f}"
        if row.target is not None and found["seconds"] > row.target:
            target += " (missed)"
        took = [f"{found['seconds']:.2f}", target, f"{found['bytes'] / 1e6:.0f}"]
        came = [f"{found['rounds']}", f"{found['colors']:,}", f"{found['classes']} of {found['graphs']}"]
        lines.append([row.test, row.what, *took, *came])
    return align(header, lines, right=range(2, 8))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(map(str, range(len(ROWS)))))
    parser.add_argument("--json")
    parser.add_argument("--row", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row is not None:
        print(json.dumps(measure(ROWS[options.row])))
        return
    results = {}
    for number in map(int, options.rows.split(",")):
        command = [sys.executable, __file__, "--row", str(number)]
        results[number] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"measured {ROWS[number].test} on {ROWS[number].what}", file=sys.stderr)
    print(table(results))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(
                [{"test": ROWS[n].test, "what": ROWS[n].what, **found} for n, found in results.items()], file, indent=1
            )


if __name__ == "__main__":
    main()
