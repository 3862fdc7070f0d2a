"""The cases that the fused kernels are tried on, one list for a GPU and for Triton's interpreter.

A case is a pattern on a batch of graphs with an arithmetic. Factors are covered pairwise, sizes one by one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations, cycle

import torch
from torch_geometric.data import Data

from tuplet.graphs import GraphBatch, read
from tuplet.patterns import (
    CrossNeighbour,
    Dense,
    EdgeKinds,
    LocalNeighbour,
    Neighbour,
    Pattern,
    SimplexDense,
    SimplexNeighbour,
)
from tuplet.tokens import Simplices, Tokens, Tuples, connected_tuples, random_tuples
from tuplet.topology import clique_complex

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
KERNELS, RELATIONS = ("softmax", "relu", "positive"), ("none", "bias", "scale", "reweight")
KINDS = EdgeKinds((3,), (0,))
GRAPHS = ("one", "ragged", "isolated", "edgeless", "directed")
HEAD_SIZES = (4, 8, 16, 24, 32, 64)
OTHER_SIZE = {4: 6, 8: 4, 16: 24, 24: 16, 32: 8, 64: 32}
PRECISIONS = {"fp32": 2.0**-23, "tf32": 2.0**-10, "bf16": 2.0**-8, "amp": 2.0**-8}
"""Size of an ulp; "amp" is bfloat16 with the relation's table in float32, as under autocast."""


@dataclass(frozen=True)
class Case:
    """One thing to try.

    Args:
        pattern: a name of ``PATTERNS``.
        n: nodes of the largest graph.
        graphs: a name of ``GRAPHS``.
        kernel, relation: as in ``Rule``.
        softmax: "groups", heads dealt to the groups, or "joint", one softmax over all of them.
        heads: how many more than there must be: one a group, one in the joint form.
        head: c.
        form: "views" (of wider tensors), "columns" (last axis strided), "values" (of another width than keys).
        precision: a name of ``PRECISIONS``.
    """

    pattern: str
    n: int
    graphs: str = "ragged"
    kernel: str = "softmax"
    relation: str = "none"
    softmax: str = "groups"
    heads: int = 0
    head: int = 8
    form: str = "views"
    precision: str = "fp32"

    def __str__(self) -> str:
        return "-".join(str(value).replace(" ", "_") for value in self.__dict__.values())

    @property
    def ulp(self) -> float:
        return PRECISIONS[self.precision]

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.precision in ("bf16", "amp") else torch.float32


@cache
def batch(kind: str, n: int) -> GraphBatch:
    """Sparse random graphs with edges of several kinds, the largest with n nodes; a batch of several has other sizes and graphs of one
    node among them."""
    chance = random.Random(f"{kind} {n}")
    several = kind in ("ragged", "directed", "edgeless")
    graphs = []
    for size in [max(n // 2, 1), n, 1, max(n - 1, 1)] if several and n > 2 else [n, 1] if several else [n]:
        joined = size if kind != "isolated" else size // 2
        some = 0 if kind == "edgeless" or joined < 2 else 2 * joined
        edges = {tuple(chance.sample(range(joined), 2)) for _ in range(some)}
        if kind != "directed":
            edges |= {(v, u) for u, v in edges}
        index = torch.tensor(sorted(edges), dtype=torch.long).reshape(-1, 2).t().contiguous()
        kinds = (index.sum(0) * 7 + index[0] * index[1]) % KINDS.count  # equal for both directions of an edge
        graphs.append(Data(edge_index=index, edge_attr=kinds[:, None], num_nodes=size))
    return read(graphs, directed=kind == "directed").to(DEVICE)


Tokened = tuple[Pattern, Tokens, Tokens]


def _tuples(make: Callable[[GraphBatch], Pattern], *orders: int) -> Callable[[GraphBatch], Tokened]:
    return lambda graph: (make(graph), Tuples.all(graph, orders[0]), Tuples.all(graph, orders[-1]))


def _sampled(make: Callable[[GraphBatch], Pattern], order: int) -> Callable[[GraphBatch], Tokened]:
    def build(graph: GraphBatch) -> Tokened:
        drawn = connected_tuples(graph, order) if order == 2 else random_tuples(graph, order, 90)
        sample = Tuples.sampled(drawn, order)
        return make(graph), sample, sample

    return build


def _contained(query: int, key: int) -> Callable[[GraphBatch], Tokened]:
    """Keys that are a sample and contain the queries."""

    def build(graph: GraphBatch) -> Tokened:
        sample = Tuples.sampled(random_tuples(graph, key, 90), key)
        return CrossNeighbour(query, key), Tuples.all(graph, query), sample

    return build


def _simplices(pattern: Pattern, high: int) -> Callable[[GraphBatch], Tokened]:
    def build(graph: GraphBatch) -> Tokened:
        simplices = Simplices.take(graph, clique_complex(graph, high + 1), 0, high)
        return pattern, simplices, simplices

    return build


def _plus(order: int) -> Callable[[GraphBatch], Pattern]:
    return lambda graph: Neighbour(order, adjacency=True, directed=graph.directed)


def _plus_by_kinds(order: int) -> Callable[[GraphBatch], Pattern]:
    return lambda graph: Neighbour(order, adjacency=True, directed=graph.directed, kinds=KINDS)


PATTERNS: dict[str, tuple[Callable[[GraphBatch], Tokened], tuple[int, ...]]] = {
    "dense 1": (_tuples(lambda _: Dense((1, 1)), 1), (5, 17, 64, 65, 130)),
    "dense 2": (_tuples(lambda _: Dense((2, 2)), 2), (2, 4, 8, 9, 12)),
    "dense 1,2": (_tuples(lambda _: Dense((1, 2)), 1, 2), (3, 8, 9, 20)),
    "LN 1": (_tuples(lambda _: LocalNeighbour(1), 1), (5, 40, 70)),
    "LN 2": (_tuples(lambda _: LocalNeighbour(2), 2), (2, 5, 16, 33)),
    "LN 3": (_tuples(lambda _: LocalNeighbour(3), 3), (2, 5, 9)),
    "LN 2 by kinds": (_tuples(lambda _: LocalNeighbour(2, KINDS), 2), (3, 6, 20)),
    "LN 3 by kinds": (_tuples(lambda _: LocalNeighbour(3, KINDS), 3), (3, 8)),
    "Ngbh 2": (_tuples(lambda _: Neighbour(2), 2), (3, 16, 32, 65)),
    "Ngbh 3": (_tuples(lambda _: Neighbour(3), 3), (2, 5, 9)),
    "Ngbh+ 1": (_tuples(_plus(1), 1), (6, 64, 66)),
    "Ngbh+ 2": (_tuples(_plus(2), 2), (4, 17, 31, 66)),
    "Ngbh+ 3": (_tuples(_plus(3), 3), (3, 6, 8)),
    "Ngbh+ 2 by kinds": (_tuples(_plus_by_kinds(2), 2), (5, 20, 40)),
    "cross 1,2": (_tuples(lambda _: CrossNeighbour(1, 2), 1, 2), (3, 20, 66)),
    "cross 2,1": (_tuples(lambda _: CrossNeighbour(2, 1), 2, 1), (4, 20)),
    "cross 1,3": (_tuples(lambda _: CrossNeighbour(1, 3), 1, 3), (3, 9)),
    "cross 3,2": (_tuples(lambda _: CrossNeighbour(3, 2), 3, 2), (2, 8)),
    "sampled LN 2": (_sampled(lambda _: LocalNeighbour(2), 2), (4, 30)),
    "sampled LN 3": (_sampled(lambda _: LocalNeighbour(3), 3), (3, 12)),
    "sampled LN 2 by kinds": (_sampled(lambda _: LocalNeighbour(2, KINDS), 2), (4, 30)),
    "sampled Ngbh+ 2": (_sampled(_plus(2), 2), (5, 40)),
    "sampled Ngbh 3": (_sampled(lambda _: Neighbour(3), 3), (3, 7)),
    "sampled cross 1,2": (_contained(1, 2), (4, 25)),
    "SN": (_simplices(SimplexNeighbour(joint=True), 1), (4, 30)),
    "SN of 4 groups": (_simplices(SimplexNeighbour(joint=False), 2), (5, 20)),
    "simplices": (_simplices(SimplexDense(), 1), (4, 25)),
    "simplices within dimensions": (_simplices(SimplexDense(inter=False), 2), (5, 15)),
    "from virtual": (_tuples(lambda _: Dense((2, 0)), 2), (3, 11, 40)),
    "to virtual": (_tuples(lambda _: Dense((0, 2)), 2), (3, 11, 40)),
    "simplices to virtual": (_simplices(SimplexNeighbour(joint=True), 1), (4, 30)),
}
"""How the tokens of each pattern are made, and numbers of nodes for the cases that cover factors pairwise."""


def pairwise(factors: dict[str, tuple], seed: int = 0) -> list[dict]:
    """Rows in which any two values of different factors meet, greedily few: each begins with a pair that has not met."""
    chance = random.Random(seed)
    names = list(factors)
    apart = {
        (a, x, b, y) for a, b in combinations(names, 2) for x in range(len(factors[a])) for y in range(len(factors[b]))
    }

    def meets(row: dict[str, int], name: str, value: int) -> int:
        """How many new pairs a value makes with those already in a row."""
        pairs = ((other, row[other], name, value) for other in row)
        return sum(pair in apart or (*pair[2:], *pair[:2]) in apart for pair in pairs)

    rows = []
    while apart:
        a, x, b, y = min(apart)
        row = {a: x, b: y}
        for name in chance.sample([name for name in names if name not in row], len(names) - 2):
            values = chance.sample(range(len(factors[name])), len(factors[name]))
            row[name] = max(values, key=lambda value, name=name: meets(row, name, value))
        apart -= {(a, row[a], b, row[b]) for a, b in combinations(names, 2)}
        rows.append({name: factors[name][row[name]] for name in names})
    return rows


FACTORS = {
    "pattern": tuple(PATTERNS),
    "kernel": KERNELS,
    "relation": RELATIONS,
    "graphs": GRAPHS,
    "softmax": ("groups", "joint"),
    "form": ("views", "columns", "values"),
    "heads": (0, 1),
}


LISTED = (
    *(name for name in PATTERNS if "LN" in name or "SN" in name),
    *(name for name in PATTERNS if name.startswith("cross")),
)
"""Patterns whose queries have lists of keys, on small graphs; all others are lines."""


def one_group(pattern: str) -> bool:
    """Patterns with nothing to join."""
    return pattern.endswith((" 1", "virtual", "SN", "simplices", "dimensions")) or pattern.startswith("dense")


def small_cases() -> Iterator[Case]:
    """All factors but sizes on graphs so small that Triton's interpreter is done soon, and lines of more than one tile."""
    sizes, sizes_of_triples = cycle((3, 1, 2)), cycle((2, 1))
    for row in pairwise({**FACTORS, "graphs": GRAPHS[1:], "precision": ("fp32", "bf16"), "head": (4, 8)}):
        if row["pattern"] not in LISTED:
            row["precision"] = "fp32"  # the interpreter has no products of bfloat16 matrices, which lines need
        yield _case(n=next(sizes_of_triples if "3" in row["pattern"] else sizes), **row)
    for kernel, relation in zip(cycle(KERNELS), RELATIONS, strict=False):
        yield Case("Ngbh+ 1", 67, kernel=kernel, relation=relation)
    yield Case("simplices", 24, "ragged", relation="bias", head=4)
    yield Case("to virtual", 9, "directed", form="values")
    yield Case("from virtual", 9, "isolated", kernel="positive")


def wide_cases() -> Iterator[Case]:
    """All factors, head sizes and precisions among them, on graphs of the sizes that suit a pattern."""
    sizes = {name: cycle(sizes) for name, (_, sizes) in PATTERNS.items()}
    for row in pairwise({**FACTORS, "precision": tuple(PRECISIONS), "head": HEAD_SIZES}, seed=1):
        yield _case(n=next(sizes[row["pattern"]]), **row)


def size_cases() -> Iterator[Case]:
    """Every size: n = 1..70 for pairs, n = 1..20 for triples, a sample up to 300; the other factors take turns."""
    turns = {
        "kernel": cycle(("softmax", "softmax", "relu", "softmax", "positive")),
        "relation": cycle(("none", "bias", "scale", "reweight")),
        "precision": cycle(("fp32", "tf32", "bf16")),
        "head": cycle((16, 8, 64, 4, 16, 32, 24)),
        "graphs": cycle(("one", "ragged", "one", "directed", "isolated", "one", "edgeless")),
        "softmax": cycle(("groups", "groups", "groups", "joint", "groups", "groups", "groups", "groups", "joint")),
    }
    sizes = [(order, n) for order, most in ((2, 70), (3, 20)) for n in range(1, most + 1)]
    for order, n in [*sizes, *[(2, n) for n in (100, 128, 161, 200, 256, 300)]]:
        for name in ("LN", "Ngbh", "Ngbh+"):
            row = {key: next(turn) for key, turn in turns.items()}
            yield _case(pattern=f"{name} {order}", n=n, **{**row, "graphs": "one"} if n > 70 else row)
    for n in (100, 200, 300):
        for precision in ("fp32", "tf32", "bf16"):
            yield Case("dense 1", n, "ragged", precision=precision, head=16)
            yield Case("cross 1,2", n, "one", precision=precision, head=16)
            yield Case("from virtual", n, "one", precision=precision, head=16)
            yield Case("to virtual", n, "one", precision=precision, head=16)


def _case(pattern: str, softmax: str, **row) -> Case:
    return Case(pattern, softmax="groups" if one_group(pattern) else softmax, **row)


SMALL = list(dict.fromkeys(small_cases()))
CASES = list(dict.fromkeys([*SMALL, *wide_cases(), *size_cases()]))
