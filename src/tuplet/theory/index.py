"""Theorem 3.3: A_k that reads tuple indices selects the neighbourhoods of k-WL, and so runs one round of it.

Head h writes every index but the h-th as a point of the circle, φ_h(i) = (cos 2πi_l/M, sin 2πi_l/M : l ≠ h), width 2(k-1).
Then c·φ_h(i)·φ_h(j) = c Σ_{l≠h} cos(2π(i_l - j_l)/M) is largest, c(k-1), exactly on the h-th neighbourhood of i if M >= n. So

* softmax tends to 1/n there and to 0 elsewhere as c grows; the gap to the next score is c(1 - cos 2π/M) ~ 2π²c/M², so
  c must grow like M² ln n, and Q is not bounded as n grows;
* ReLU with the threshold c(k-1-1/M²) gives c/M² there and 0 elsewhere, because 1 - cos(2π/M) > 1/M² for M >= 2.

The checks give these features as queries and keys to ``tuplet.attention.attend`` over all tuples, and read its weights off
by taking the identity matrix as values. TokenGT's orthonormal node identifiers take the circle's place in the last check.

k = 1 is degenerate: the features have width 0, all scores are equal and the one neighbourhood is the whole graph. That is what
the formula of k-WL says at k = 1, but it contains no edge, and is not colour refinement (1-WL).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from tuplet.attention import Rule, attend
from tuplet.graphs import GraphBatch, read
from tuplet.models import build
from tuplet.patterns import Dense
from tuplet.theory.check import Check, Result
from tuplet.tokens import Tuples
from tuplet.wl import compare

CASES = ((2, 3, 3), (2, 5, 5), (2, 5, 11), (2, 8, 8), (2, 8, 20), (3, 3, 3), (3, 4, 4), (3, 5, 7))
"""(k, n, M) of the selections."""
SHARPNESS = (10.0, 100.0, 1e3, 1e4)
"""c."""


def random_graph(n: int, probability: float, generator: torch.Generator) -> Data:
    """An undirected graph in which every pair of nodes is joined with the given probability."""
    upper = (torch.rand(n, n, generator=generator) < probability).triu(1)
    return Data(edge_index=(upper | upper.t()).nonzero().t().contiguous(), num_nodes=n)


def renumber(graph: Data, order: Tensor) -> Data:
    """The same graph with node v called ``order[v]``."""
    assert graph.edge_index is not None
    return Data(edge_index=order[graph.edge_index], num_nodes=graph.num_nodes)


def circle(n: int, modulus: int) -> Tensor:
    """(n, 2) nodes as points of the circle: (cos 2πi/M, sin 2πi/M)."""
    angle = 2 * math.pi * torch.arange(n, dtype=torch.float64) / modulus
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def index_features(tuples: Tuples, identifiers: Tensor, dropped: Sequence[int]) -> Tensor:
    """(T, heads, w(k-1)) the identifiers (n, w) of the entries of each tuple, without the entry that the head drops."""
    entries = [identifiers[tuples.entry(axis)] for axis in range(tuples.order)]
    empty = identifiers.new_zeros(tuples.total, 0)
    heads = [torch.cat([empty, *(e for axis, e in enumerate(entries) if axis != drop)], dim=1) for drop in dropped]
    return torch.stack(heads, dim=1)


def _attend(features: Tensor, c: float, values: Tensor, tuples: Tuples, threshold: float | None = None) -> Tensor:
    """(T, h, c') messages of dense attention with queries c·φ and keys φ: softmax, or ReLU with a threshold."""
    layout = Dense((tuples.order, tuples.order)).layout(tuples, tuples, 0, typed=False).planned()
    if threshold is None:
        return attend(c * features, features, values, layout, None, Rule("softmax", "none", 1.0))[0]
    table = features.new_full((1, features.shape[1]), -threshold)
    return attend(c * features, features, values, layout, table, Rule("relu", "bias", 1.0))[0]


def _weights(features: Tensor, c: float, tuples: Tuples, threshold: float | None = None) -> Tensor:
    """(h, T, T) attention weights of one graph: its messages when the values are the identity."""
    one = torch.eye(tuples.total, dtype=torch.float64)[:, None].expand(-1, features.shape[1], -1)
    return _attend(features, c, one, tuples, threshold).transpose(0, 1)


def _all_tuples(k: int, n: int) -> Tuples:
    return Tuples.all(read(Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=n)), k)


def _neighbourhoods(tuples: Tuples) -> Tensor:
    """(k, T, T) whether the key is in the h-th neighbourhood of the query, straight from the definition."""
    entries = torch.tensor([entry for _, entry in tuples.tolist()])
    same = entries[:, None] == entries[None]
    return torch.stack([same[:, :, [a for a in range(tuples.order) if a != h]].all(-1) for h in range(tuples.order)])


def _dropped(k: int, mutation: str | None) -> list[int]:
    shift = 1 if mutation == "index dropped at the wrong place" else 0
    return [(h + shift) % k for h in range(k)]


def _run_softmax(mutation: str | None) -> Result:
    must = must_not = 0
    final, failures, table = 0.0, [], dict.fromkeys(SHARPNESS, 0.0)
    for k, n, modulus in CASES:
        tuples = _all_tuples(k, n)
        inside = _neighbourhoods(tuples)
        m = n - 1 if mutation == "M below n" else modulus
        features = index_features(tuples, circle(n, m), _dropped(k, mutation))
        entries = torch.tensor([entry for _, entry in tuples.tolist()], dtype=torch.float64)
        cosines = torch.cos(2 * math.pi * (entries[:, None] - entries[None]) / modulus)
        last = math.inf
        for c in SHARPNESS:
            weight = _weights(features, c, tuples)
            literal = torch.stack([c * (cosines.sum(-1) - cosines[..., h]) for h in range(k)]).softmax(-1)
            error = float((weight - inside.to(weight.dtype) / n).abs().max())
            if mutation is None and float((weight - literal).abs().max()) > 1e-11:
                failures.append(f"k={k}, n={n}, M={modulus}, c={c:g}: the operator is not the formula of the proof")
            if error > max(last, 1e-11):
                failures.append(f"k={k}, n={n}, M={modulus}: the error grows from {last:.1e} to {error:.1e} at c={c:g}")
            last, table[c] = error, max(table[c], error)
        if last > 1e-10:
            failures.append(f"k={k}, n={n}, M={modulus}: error {last:.1e} at c={SHARPNESS[-1]:g}")
        must, must_not, final = must + int(inside.sum()), must_not + int((~inside).sum()), max(final, last)
    falls = ", ".join(f"{error:.0e} at c={c:g}" for c, error in table.items())
    remark = f"Worst error {falls}. Needs M >= n and c ~ M² ln n (the paper's Q is not bounded); k = 1: width 0, a plain mean."
    return Result(must, must_not, final, tuple(failures), remark)


def _run_relu(mutation: str | None) -> Result:
    must = must_not = leaks = 0
    worst = 0.0
    for k, n, modulus in (*CASES, (2, 8, 100)):
        tuples = _all_tuples(k, n)
        inside = _neighbourhoods(tuples)
        features = index_features(tuples, circle(n, modulus), _dropped(k, mutation))
        for c in (1.0, 100.0):
            slack = 10.0 if mutation == "threshold too low" else 1 / modulus**2
            weight = _weights(features, c, tuples, c * (k - 1 - slack))
            worst = max(worst, float((weight[inside] * modulus**2 / c - 1).abs().max()))
            leaks += int((weight[~inside] != 0).sum())
            must, must_not = must + int(inside.sum()), must_not + int((~inside).sum())
    failures = [f"{leaks} weights outside the neighbourhood are not zero"] if leaks else []
    if worst > 1e-10:
        failures.append(f"relative error {worst:.1e} of c/M² inside")
    remark = (
        "Zeros are exact; inside, c(k-1) - c(k-1-1/M²) loses M²(k-1) roundings, so exactness is that of real numbers."
    )
    return Result(must, must_not, worst, tuple(failures), remark)


def _classes(*columns: Tensor) -> np.ndarray:
    """(T,) class of each row of integers."""
    _, inverse = torch.unique(torch.cat([c.reshape(len(c), -1) for c in columns], dim=1), dim=0, return_inverse=True)
    return np.asarray(inverse.numpy())


def same_pairs(*partitions: np.ndarray) -> int:
    """Unordered pairs that are together in all the given partitions."""
    _, counts = np.unique(np.stack(partitions), axis=1, return_counts=True)
    return int((counts.astype(np.int64) * (counts - 1) // 2).sum())


def _wl(k: int, batch: list[Data], rounds: int) -> np.ndarray:
    return np.concatenate([c.reshape(-1) for c in compare(f"{k}-WL", batch, rounds=rounds).colors])


def _one_layer(k: int, graph: GraphBatch, before: np.ndarray, kernel: str, mutation: str | None) -> np.ndarray:
    """(T,) classes of (own colour, k sums or means of one-hot colours) of one layer of A_k with the proof's weights."""
    tuples, modulus = Tuples.all(graph, k), max(graph.sizes)
    dropped = [0] * k if mutation == "every head drops the first index" else list(range(k))
    features = index_features(tuples, circle(modulus, modulus), dropped)
    values = torch.nn.functional.one_hot(torch.from_numpy(before)).to(torch.float64)[:, None].expand(-1, k, -1)
    if kernel == "relu":
        out = _attend(features, 1.0, values, tuples, k - 1 - 1 / modulus**2) * modulus**2
    else:
        out = _attend(features, 1e4, values, tuples)
    out = (out * 1e6).round()
    if mutation == "counts dropped":
        out = (out > 0).to(out.dtype)
    own = torch.from_numpy(before if mutation != "own colour forgotten" else before * 0)
    return _classes(own, out.long())


def _run_wl(mutation: str | None) -> Result:
    generator = torch.Generator().manual_seed(3)
    must = must_not = 0
    failures = []
    for k, sizes in ((2, (4, 5, 6, 6, 6, 7)), (3, (4, 4, 5, 5))):
        graphs = [random_graph(n, 0.5, generator) for n in sizes]
        before, after = _wl(k, graphs, 0), _wl(k, graphs, 1)
        for kernel in ("relu", "softmax"):
            mine = _one_layer(k, read(graphs), before, kernel, mutation)
            kept, both = same_pairs(after), same_pairs(after, mine)
            split = len(after) * (len(after) - 1) // 2 - kept
            missed, torn = same_pairs(mine) - both, kept - both
            must, must_not = must + split, must_not + kept
            if missed or torn:
                failures.append(f"k={k}, {kernel}: {missed} pairs not separated, {torn} pairs torn apart")
    path = [Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)]
    lone = _one_layer(1, read(path), _wl(1, path, 0), "relu", None)
    if same_pairs(lone) != 3 or same_pairs(_wl(1, path, 1)) != 1:
        failures.append("k = 1: the path of three nodes is no counterexample any more")
    remark = (
        "For k >= 2, both kernels, graphs of different n in one batch: the factor 1/n hides nothing, since a line holds as "
        "many tuples with a repeated entry as the query has different other entries. k = 1 fails: the layer keeps all nodes "
        "of the path P3 together, 1-WL does not."
    )
    return Result(must, must_not, None, tuple(failures), remark)


def _run_invariance(mutation: str | None) -> Result:
    generator = torch.Generator().manual_seed(4)
    graphs = [random_graph(n, 0.4, generator) for n in (5, 6, 7, 8)]
    orders = [torch.randperm(int(graph.num_nodes or 0), generator=generator) for graph in graphs]
    moved: dict[str, list[float]] = {}
    for name in ("A2+index", "A2"):
        moved[name] = []
        for seed in range(3):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model = build("A2" if mutation == "index left out" else name, dim=16, depth=2, heads=2).double().eval()
            with torch.no_grad():
                for graph, order in zip(graphs, orders, strict=True):
                    here, there = model([graph]), model([renumber(graph, order)])
                    moved[name].append(float((here - there).abs().max() / here.abs().max()))
    still = 0
    for graph, order in zip(graphs, orders, strict=True):
        # the proof's own weights: the layer's classes move with the tuples, and nothing else
        n, both = int(graph.num_nodes or 0), [graph, renumber(graph, order)]
        mine = torch.from_numpy(_one_layer(2, read(both), _wl(2, both, 0), "relu", None)).reshape(2, n, n)
        still += int((mine[0] != mine[1][order][:, order]).sum())
    stays, moves = max(moved["A2"]), moved["A2+index"]
    failures = [f"A2+index moves by {move:.1e} only" for move in moves if move < 1e-6]
    failures += [f"A2 moves by {stays:.1e}"] if stays > 1e-10 else []
    failures += [f"{still} tuples change class under the proof's weights"] if still else []
    cases = len(moved["A2"]) + sum(int(g.num_nodes or 0) ** 2 for g in graphs)
    remark = (
        f"Random weights move A2+index by {min(moves):.0e} to {max(moves):.0e} of its output when nodes are renumbered, A2 by "
        f"{stays:.0e}; with the proof's weights the ReLU form is invariant."
    )
    return Result(len(moves), cases, stays, tuple(failures), remark)


def _run_identifiers(mutation: str | None) -> Result:
    must = must_not = 0
    worst, failures, widths = 0.0, [], []
    generator = torch.Generator().manual_seed(5)
    c = 100.0
    for k, n in ((2, 3), (2, 5), (2, 8), (3, 3), (3, 5)):
        tuples = _all_tuples(k, n)
        inside = _neighbourhoods(tuples)
        rotated = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))[0]
        if mutation == "identifiers not orthonormal":
            rotated = torch.randn(n, n, generator=generator, dtype=torch.float64)
        for identifiers in (torch.eye(n, dtype=torch.float64), rotated):
            features = index_features(tuples, identifiers, _dropped(k, mutation))
            softmax = _weights(features, c, tuples) * n
            relu = _weights(features, c, tuples, c * (k - 1 - 1 / 2)) * 2 / c
            worst = max(worst, *(float((weight - inside.to(weight.dtype)).abs().max()) for weight in (softmax, relu)))
            must, must_not = must + int(inside.sum()), must_not + int((~inside).sum())
        ours = index_features(tuples, circle(n, n), range(k)).shape[2]
        if (features.shape[2], ours) != (n * (k - 1), 2 * (k - 1)):
            failures.append(f"k={k}, n={n}: widths {features.shape[2]} and {ours}")
        widths.append(f"{features.shape[2]}:{ours}")
    if worst > 1e-10:
        failures.append(f"error {worst:.1e} at c={c:g}")
    remark = (
        f"Widths n(k-1):2(k-1) are {', '.join(widths)}. What the circle saves in width it pays in c: its gap is 2π²c/M², that "
        "of orthonormal vectors is c whatever n is."
    )
    return Result(must, must_not, worst, tuple(failures), remark)


SOFTMAX = Check(
    name="index-softmax",
    statement="with indices, softmax attention tends to 1/n on the h-th neighbourhood and 0 outside as c grows",
    paper="Theorem 3.3, proof",
    run=_run_softmax,
    mutations=("index dropped at the wrong place", "M below n"),
    verdict="holds under a condition",
)
RELU = Check(
    name="index-relu",
    statement="with ReLU and the threshold c(k-1-1/M²) the selection is exact",
    paper="Theorem 3.3, proof",
    run=_run_relu,
    mutations=("index dropped at the wrong place", "threshold too low"),
)
ROUND = Check(
    name="index-round",
    statement="one layer of A_k with indices and k heads is one round of k-WL",
    paper="Theorem 3.3",
    run=_run_wl,
    mutations=("every head drops the first index", "counts dropped", "own colour forgotten"),
    verdict="holds under a condition",
)
INVARIANCE = Check(
    name="index-invariance",
    statement="in general A_k with indices is not permutation invariant; with the proof's ReLU weights it is",
    paper="Section 3, after Theorem 3.3",
    run=_run_invariance,
    mutations=("index left out",),
)
IDENTIFIERS = Check(
    name="index-identifiers",
    statement="orthonormal node identifiers (TokenGT) select the same neighbourhoods, at width n(k-1) instead of 2(k-1)",
    paper="Section 3 and Appendix B.1.2, comparison with TokenGT",
    run=_run_identifiers,
    mutations=("index dropped at the wrong place", "identifiers not orthonormal"),
)
CHECKS = (SOFTMAX, RELU, ROUND, INVARIANCE, IDENTIFIERS)
