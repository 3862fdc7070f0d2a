"""The definitions, written down as they read: dictionaries of colours, loops over nodes, no numbering of tuples.

Shares nothing with ``tuplet.wl``. A graph here is a ``Data`` with ``num_nodes``, ``edge_index`` and optional ``x`` and two-dimensional
``edge_attr``.
"""

import itertools
import re


class Graph:
    """Nodes, labels and edges of a ``Data`` in plain Python."""

    def __init__(self, data):
        self.nodes = range(data.num_nodes)
        rows = [()] * data.num_nodes if data.get("x") is None else data.x.reshape(data.num_nodes, -1).tolist()
        self.label = [tuple(row) for row in rows]
        pairs = list(map(tuple, data.edge_index.t().tolist()))
        rows = [()] * len(pairs) if data.get("edge_attr") is None else data.edge_attr.tolist()
        self.edge = {pair: tuple(row) for pair, row in zip(pairs, rows, strict=True)}

    def kind(self, u, v):
        """The edges between two different nodes; (None, None) where there is none."""
        return (None, None) if u == v else (self.edge.get((u, v)), self.edge.get((v, u)))

    def adjacent(self, u, v):
        return self.kind(u, v) != (None, None)

    def node(self, u):
        return self.label[u], self.edge.get((u, u))


def bag(elements):
    """A multiset that can be compared and put into a dictionary."""
    return tuple(sorted(elements, key=repr))


def refine(items, initial, update):
    """Colours of (graph, item) after rounds 0, 1, .., the last being stable; one palette over all graphs."""
    colors = recolor({key: initial(*key) for key in items})
    rounds = [colors]
    while True:
        finer = recolor({key: (colors[key], update(*key, colors)) for key in items})
        if len(set(finer.values())) == len(set(colors.values())):
            return rounds
        colors = finer
        rounds.append(colors)


def recolor(signatures):
    palette = {}
    return {key: palette.setdefault(signature, len(palette)) for key, signature in signatures.items()}


def psi(v, j, u):
    return (*v[:j], u, *v[j + 1 :])


def tuple_rounds(test, data):
    """Rounds of a test on tuples: a list of dictionaries (graph number, tuple) -> colour."""
    graphs = [Graph(item) for item in data]
    delta, k, kind = re.fullmatch(r"(delta-)?(\d+)-(.+)", test).groups()
    k = int(k)
    places = range(k)
    if k == 1 and delta is None:
        delta, kind = "delta-", "LWL"

    def initial(g, v):
        graph = graphs[g]
        return (
            tuple(v.index(node) for node in v),
            tuple(map(graph.node, v)),
            tuple(graph.kind(v[a], v[b]) for a in places for b in places),
        )

    def update(g, v, colors):
        graph = graphs[g]
        if delta is None and kind == "WL":
            return tuple(bag(colors[g, psi(v, j, u)] for u in graph.nodes) for j in places)
        if delta is None and kind == "FWL":
            return bag(tuple(colors[g, psi(v, j, u)] for j in places) for u in graph.nodes)
        if kind == "WL":
            return tuple(bag((colors[g, psi(v, j, u)], graph.kind(v[j], u)) for u in graph.nodes) for j in places)
        messages = []
        for j in places:
            everywhere = [colors[g, psi(v, j, w)] for w in graph.nodes]
            messages.append(
                bag(
                    (everywhere[u], graph.kind(v[j], u), everywhere.count(everywhere[u]) if kind == "LWL+" else None)
                    for u in graph.nodes
                    if graph.adjacent(v[j], u)
                )
            )
        return tuple(messages)

    items = [(g, v) for g, graph in enumerate(graphs) for v in itertools.product(graph.nodes, repeat=k)]
    return refine(items, initial, update)


def simplex_rounds(dim, data):
    """Rounds of SWL: a list of dictionaries (graph number, simplex) -> colour."""
    graphs = [Graph(item) for item in data]
    complexes = [
        [
            simplex
            for size in range(1, dim + 2)
            for simplex in itertools.combinations(graph.nodes, size)
            if all(graph.adjacent(u, v) for u, v in itertools.combinations(simplex, 2))
        ]
        for graph in graphs
    ]

    def initial(g, s):
        graph = graphs[g]
        edges = (bag([graph.kind(u, v), graph.kind(v, u)]) for u, v in itertools.combinations(s, 2))
        return len(s), bag(map(graph.node, s)), bag(edges)

    def role(g, face, coface):
        """What a node and its edge tell each other: the edges from the node to the other end."""
        if len(coface) != 2:
            return None
        (other,) = set(coface) - set(face)
        return graphs[g].kind(face[0], other)

    def is_face(face, coface):
        return len(face) + 1 == len(coface) and set(face) < set(coface)

    def update(g, s, colors):
        others = [r for r in complexes[g] if r != s and len(r) == len(s)]
        faces = [f for f in complexes[g] if is_face(f, s)]
        cofaces = [c for c in complexes[g] if is_face(s, c)]
        lower = [(r, f) for r in others for f in faces if is_face(f, r)]
        upper = [(r, c) for r in others for c in cofaces if is_face(r, c)]
        return (
            bag((colors[g, f], role(g, f, s)) for f in faces),
            bag((colors[g, c], role(g, s, c)) for c in cofaces),
            bag((colors[g, r], colors[g, f], role(g, f, s), role(g, f, r)) for r, f in lower),
            bag((colors[g, r], colors[g, c], role(g, s, c), role(g, r, c)) for r, c in upper),
        )

    return refine([(g, s) for g, simplices in enumerate(complexes) for s in simplices], initial, update)
