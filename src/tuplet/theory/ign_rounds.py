"""How many rounds of k-WL one layer of k-IGN takes, and how far a round sees (appendix B.2.2 and the discussion)."""

from __future__ import annotations

import numpy as np

from tuplet.theory.check import Check, Result
from tuplet.theory.ign import Array, pattern_of_pairs
from tuplet.theory.index import same_pairs


def isomorphism_types(adjacency: Array, k: int) -> Array:
    """(G, n^k) isomorphism types of all tuples of graphs (G, n, n): which entries are equal, and which are joined."""
    n = adjacency.shape[1]
    entries = np.indices((n,) * k).reshape(k, -1)
    types = np.zeros((len(adjacency), n**k), np.int64)
    for a in range(k):
        for b in range(k):
            pair = np.where(entries[a] == entries[b], 2, adjacency[:, entries[a], entries[b]])
            types = np.unique(types * 3 + pair, return_inverse=True)[1].reshape(types.shape)
    return types


def wl_round(colours: Array, k: int, counts: bool = True) -> Array:
    """One round of k-WL on (G, n^k) integer colours, jointly; without ``counts`` multisets become sets."""
    graphs, n = len(colours), round(colours.shape[1] ** (1 / k))
    cube = colours.reshape(graphs, *[n] * k)
    rows = [colours.reshape(-1, 1)]
    for axis in range(1, k + 1):
        line = np.sort(np.moveaxis(cube, axis, -1), axis=-1)
        if not counts:
            line = np.sort(np.where(np.diff(line, axis=-1, prepend=-1) == 0, -1, line), axis=-1)
        spread = np.broadcast_to(np.expand_dims(line, axis), (*cube.shape, n))
        rows.append(spread.reshape(-1, n))
    return np.unique(np.concatenate(rows, axis=1), axis=0, return_inverse=True)[1].reshape(colours.shape)


def ign_layer(colours: Array, k: int) -> Array:
    """Classes after one k-IGN layer with generic weights and injective colours: for each pattern, the multiset of colours in it."""
    n = round(colours.shape[1] ** (1 / k))
    pattern = pattern_of_pairs(k, k, n).numpy()  # the pattern of (i, i) holds the own colour
    rows = np.sort(pattern[None] * (colours.max() + 1) + colours[:, None, :], axis=-1)
    return np.unique(rows.reshape(-1, n**k), axis=0, return_inverse=True)[1].reshape(colours.shape)


def _broken(finer: Array, coarser: Array) -> int:
    """Pairs that the first partition keeps together and the second one separates."""
    return same_pairs(finer.reshape(-1)) - same_pairs(finer.reshape(-1), coarser.reshape(-1))


def _graphs(n: int, count: int, seed: int, symmetric: bool = True) -> Array:
    draws = np.random.default_rng(seed).random((count, n, n)) < 0.5
    upper = np.triu(draws, 1)
    return (upper | upper.transpose(0, 2, 1) if symmetric else draws).astype(np.int64)


def _run_rounds(mutation: str | None) -> Result:
    must = must_not = between = enough = fewer = 0
    failures, back = [], 0
    for k, n, count in ((2, 4, 60), (2, 6, 40), (3, 4, 40), (3, 5, 24)):
        types = isomorphism_types(_graphs(n, count, 10 * k + n), k)
        for start in (types, wl_round(types, k)):
            layer, colours = ign_layer(start, k), [start]
            for _ in range(k):
                colours.append(wl_round(colours[-1], k, counts=mutation != "counts dropped"))
            after = colours[k - 2 if mutation == "one round fewer" else k - 1]
            histograms = np.unique(np.sort(start, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
            if mutation == "histograms ignored":
                histograms = histograms * 0
            for kind in np.unique(histograms):
                chosen = histograms == kind
                kept, broken = same_pairs(after[chosen].reshape(-1)), _broken(after[chosen], layer[chosen])
                fewer += _broken(colours[k - 2][chosen], layer[chosen])
                back += _broken(layer[chosen], after[chosen]) if k == 2 else 0
                must += same_pairs(start[chosen].reshape(-1)) - same_pairs(layer[chosen].reshape(-1))
                must_not += kept
                if broken:
                    failures.append(f"k={k}, n={n}: the layer separates {broken} of {kept} pairs that the rounds keep")
            between += _broken(colours[k - 1], layer)
            enough += _broken(colours[k], layer)
    if enough:
        failures.append(f"the layer separates {enough} pairs of different graphs that k rounds keep")
    if back and mutation is None:
        failures.append(f"one round of 2-WL separates {back} pairs that a 2-IGN layer keeps")
    within, small, converse = _one_way_colours(), _smallest_counterexample(), _converse()
    found = {"between histograms": between, "with k-2 rounds": fewer, "with one-way colours": within}
    found |= {"in K2+2K1 and 2K2": small, "to the converse": converse}
    failures += [f"no counterexample {what}" for what, count in found.items() if not count]
    remark = (
        "Holds between tuples of one graph, or of graphs with the same histogram of colours, if a tuple's colour tells those of its "
        f"rearrangements (isomorphism types do). Not between graphs of different histograms ({between} pairs, e.g. the end of an edge in "
        "K2+2K1 and in 2K2 for k = 2), unless it is k rounds, nor for colours of ordered pairs that say nothing of the reversed pair "
        f"({within} pairs within a graph); k-2 rounds leave {fewer} pairs. The converse, that one layer says as much as k-1 rounds "
        f"(“equivalent”, appendix D.2), holds for k = 2 and fails for k = 3 ({converse} pairs within graphs of 7 nodes)."
    )
    return Result(must, must_not, None, tuple(failures), remark)


def _one_way_colours() -> int:
    """Pairs of tuples within a graph that show that colours must tell those of rearranged tuples (k = 2)."""
    diagonal = np.eye(5, dtype=np.int64).reshape(-1)
    start = _graphs(5, 20, 99, symmetric=False).reshape(20, -1) * (1 - diagonal) + 2 * diagonal
    layer, rounds = ign_layer(start, 2), wl_round(start, 2)
    return sum(_broken(rounds[g : g + 1], layer[g : g + 1]) for g in range(len(start)))


def _converse() -> int:
    """Pairs of triples within a graph that two rounds of 3-WL separate and one 3-IGN layer does not."""
    found = 0
    for graph in _graphs(7, 10, 5):
        start = isomorphism_types(graph[None], 3)
        found += _broken(ign_layer(start, 3), wl_round(wl_round(start, 3), 3))
    return found


def _smallest_counterexample() -> bool:
    """One round of 2-WL gives node 0 of K2+2K1 and of 2K2 the same colour, a 2-IGN layer does not."""
    graphs = np.zeros((2, 4, 4), np.int64)
    graphs[:, 0, 1] = graphs[:, 1, 0] = graphs[1, 2, 3] = graphs[1, 3, 2] = 1
    start = isomorphism_types(graphs, 2)
    layer, rounds = ign_layer(start, 2), wl_round(start, 2)
    return bool(rounds[0, 0] == rounds[1, 0] and layer[0, 0] != layer[1, 0])


def _run_reach(mutation: str | None) -> Result:
    must = must_not = 0
    failures, needed = [], []
    for k, n in ((1, 4), (2, 4), (3, 3), (4, 3)):
        # two colourings that differ at one tuple: whose colour differs has heard of it
        marked = n**k // 2
        colours = np.zeros((2, n**k), np.int64)
        colours[1, marked] = 1
        heard = [colours[0] != colours[1]]
        for _ in range(k):
            colours = wl_round(colours, k)
            heard.append(colours[0] != colours[1])
        needed.append(next(t for t, known in enumerate(heard) if known.all()))
        entries = np.indices((n,) * k).reshape(k, -1)
        distance = (entries != entries[:, marked : marked + 1]).sum(0)
        rounds = k // 2 + 1 if mutation == "the paper's count" else k
        must += n**k
        if not heard[rounds].all():
            failures.append(
                f"k={k}: after {rounds} rounds {int((~heard[rounds]).sum())} tuples have not heard of the marked one"
            )
        for t, known in enumerate(heard):
            must_not += int((distance > t).sum())
            if known[distance > t].any():
                failures.append(f"k={k}: news of a tuple travels further than one exchanged entry a round")
    remark = f"k = 1, 2, 3, 4 take {', '.join(map(str, needed))} rounds, i.e. k: a round exchanges one entry. [k/2]+1 fails from k = 3."
    return Result(must, must_not, None, tuple(failures), remark)


ROUNDS = Check(
    name="ign-rounds",
    statement="k-1 rounds of k-WL (layers of neighbour attention) simulate one k-IGN layer",
    paper="Appendix B.2.2 and D.2",
    run=_run_rounds,
    mutations=("one round fewer", "counts dropped", "histograms ignored"),
    verdict="holds under a condition",
)
REACH = Check(
    name="ign-reach",
    statement="a tuple has gathered information of all tuples after [k/2]+1 rounds of k-WL",
    paper="Appendix D.2, comparison of transformer, MPNN, WL and IGN",
    run=_run_reach,
    mutations=("the paper's count",),
    verdict="fails as stated",
)

CHECKS = (ROUNDS, REACH)
