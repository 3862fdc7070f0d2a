"""Simplicial attention, message passing and SWL (appendix "Theoretical Analysis on Simplicial Transformers")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from tuplet import wl
from tuplet.models.attention import TokenAttention
from tuplet.models.prepare import Prepared
from tuplet.theory.bank import classes, exactly, expect, hard_graphs, judge, largest_gaps, merge, small_graphs
from tuplet.theory.check import Check, Result
from tuplet.theory.neighbours import P4, STAR
from tuplet.theory.separation import draw, random_model
from tuplet.tokens import Simplices
from tuplet.topology import boundary, clique_complex, hodge_laplacian

GRAPHS = tuple(nx.gnp_random_graph(n, density, seed=n) for n, density in ((6, 0.5), (7, 0.7), (8, 0.6), (9, 0.5)))


def constant_scores(attention: TokenAttention) -> None:
    """XQ = XK = 1, as in the proofs: every score is the same."""
    assert attention.key is not None
    with torch.no_grad():
        for linear in (attention.query, attention.key):
            linear.weight.zero_()
            linear.bias.fill_(1.0)
        attention.output.weight.copy_(torch.eye(len(attention.output.weight)))
        attention.output.bias.zero_()
        assert attention.values is not None
        for value in attention.values:
            value.bias.zero_()  # type: ignore[operator]


def _layer(name: str, graph: Any, **options: Any) -> tuple[TokenAttention, Prepared, Tensor]:
    """One attention layer with constant scores, and random features of its tokens."""
    model = random_model(name, 0, depth=1, dim=8, heads=4, **options)
    attention: TokenAttention = model.layers[0].attention  # type: ignore[assignment]
    constant_scores(attention)
    prepared = model.prepare(graph)
    generator = torch.Generator().manual_seed(1)
    return attention, prepared, torch.randn(prepared.queries.total, 8, generator=generator, dtype=torch.float64)


@torch.no_grad()
def laplacian_update(mutation: str | None) -> Result:
    """AS_{0:K} reweighted by 𝓛 with the proof's weights is δ X_{k-1} W_{k-1} + L_k X_k W_k + δ* X_{k+1} W_{k+1}."""
    error, zeros, upper_pairs, entries = 0.0, 0, 0, 0
    failures = []
    for graph in GRAPHS:
        attention, prepared, x = _layer("AS0:2+reweight", graph, phi="identity")
        tokens = prepared.queries
        assert isinstance(tokens, Simplices)
        known = tokens.complex
        assert attention.values is not None
        message = attention(x, x, None, prepared.layouts)[0] * tokens.total  # V^k = W_k times the number of simplices
        parts = x.split(known.counts[:3])
        mapped = [part @ value.weight.t() for part, value in zip(parts, attention.values, strict=True)]  # type: ignore[operator]
        expected = []
        for k in range(3):
            row = _dense(hodge_laplacian(known, k)) @ mapped[k]
            if k > 0:
                sign = -1 if mutation == "sign flipped" else 1
                row = row + sign * _dense(boundary(known, k)).t() @ mapped[k - 1]
            if k < 2:
                row = row + _dense(boundary(known, k + 1)) @ mapped[k + 1]
            expected.append(row)
        wanted = torch.cat(expected)
        error = max(error, float((message - wanted).abs().max() / wanted.abs().max()))
        entries += wanted.numel()
        for k in (1, 2):
            upper = _upper(known, k)
            matrix = _dense(hodge_laplacian(known, k))
            upper_pairs += int(upper.sum())
            zeros += int((matrix[upper] == 0).sum())
    if error > 1e-10:
        failures.append(f"attention and update differ by {error:.0e}")
    if zeros != upper_pairs:
        failures.append(f"{upper_pairs - zeros} upper adjacent pairs have a non-zero entry of L_k")
    remark = (
        f"the linear update is reproduced; but L_k is zero at all {upper_pairs} upper adjacent pairs of dimension >= 1, so they "
        "exchange nothing and this is not MPSN's update"
    )
    return Result(entries, upper_pairs, error, tuple(failures), remark)


def _dense(matrix: Any) -> Tensor:
    return torch.from_numpy(matrix.toarray()).double()


def _upper(known: Any, k: int) -> Tensor:
    """(S_k, S_k) which k-simplices are faces of one simplex, from its definition."""
    upper = torch.zeros(known.counts[k], known.counts[k], dtype=torch.bool)
    for faces in known.faces[k + 1].tolist():
        for a in faces:
            for b in faces:
                if a != b:
                    upper[a, b] = True
    return upper


@torch.no_grad()
def mpsn_update(mutation: str | None) -> Result:
    """AS_{0:K}^SN with sums and a head a relation is MPSN's update with linear messages, written from its definition."""
    error, entries, empty = 0.0, 0, 0
    for graph in GRAPHS:
        attention, prepared, x = _layer("AS0:2-ReLU^SN", graph, softmax="groups")
        tokens = prepared.queries
        assert isinstance(tokens, Simplices)
        simplices = [frozenset(nodes) for _, nodes in tokens.tolist()]
        whole = {frozenset(nodes) for level in tokens.complex.tolist()[0] for nodes in level}
        assert attention.values is not None
        mapped = torch.cat(
            [part @ v.weight.t() for part, v in zip(x.split(tokens.sizes), attention.values, strict=True)]  # type: ignore[operator]
        ).unflatten(1, (4, 2))
        score = 2 * 2**-0.5  # two ones times two ones, over the root of the head's width
        expected = torch.zeros_like(mapped)
        for i, sigma in enumerate(simplices):
            for j, tau in enumerate(simplices):
                for relation in _relations(sigma, tau, whole, mutation):
                    expected[i, relation] += score * mapped[j, relation]
        message = attention(x, x, None, prepared.layouts)[0].unflatten(1, (4, 2))
        error = max(error, float((message - expected).abs().max() / expected.abs().max()))
        entries += int((expected != 0).sum())
        empty += int((expected == 0).sum())
        if bool((message[expected == 0] != 0).any()):
            error = max(error, 1.0)
    failures = (f"attention and MPSN differ by {error:.0e}",) if error > 1e-10 else ()
    remark = "messages that read the neighbour alone; MPSN's adjacent messages may read the shared (co)face too, which SN does not"
    return Result(entries, empty, error, failures, remark)


def _relations(
    sigma: frozenset[int], tau: frozenset[int], whole: set[frozenset[int]], mutation: str | None
) -> list[int]:
    """Which of boundary, coboundary, lower and upper adjacency hold (Bodnar et al. 2021, definitions 3 and 4)."""
    found = []
    if tau < sigma and len(sigma) == len(tau) + 1:
        found.append(0)
    if sigma < tau and len(tau) == len(sigma) + 1:
        found.append(1)
    if len(sigma) == len(tau) and sigma != tau:
        upper = len(sigma | tau) == len(sigma) + 1 and (sigma | tau) in whole
        if len(sigma & tau) == len(sigma) - 1 and len(sigma) > 1 and not (mutation == "flags cancel" and upper):
            found.append(2)
        if upper:
            found.append(3)
    return found


def neighbour_classes(graphs: Sequence[Any], dim: int) -> np.ndarray:
    """(G,) classes of graphs under the refinement that SN can at most do: simplices of dimension <= dim alone have colours.

    A colour is refined by the numbers of each colour among its boundary, coboundary, lower and upper adjacent simplices,
    the last read in the complex up to dim + 1; exact, with integer matrices.
    """
    known = clique_complex(list(graphs), dim + 1)
    incidence = [abs(boundary(known, k)) for k in range(dim + 2)]
    grid: dict[str, list[list[Any]]] = {}
    for relation in ("boundary", "coboundary", "lower", "upper"):
        grid[relation] = [
            [sparse.csr_array((a, b), dtype=np.int64) for b in known.counts[:-1]] for a in known.counts[:-1]
        ]
    for k in range(dim + 1):
        grid["upper"][k][k] = _without_diagonal(incidence[k + 1] @ incidence[k + 1].T)
        if k:
            grid["lower"][k][k] = _without_diagonal(incidence[k].T @ incidence[k])
            grid["boundary"][k][k - 1], grid["coboundary"][k - 1][k] = incidence[k].T, incidence[k]
    matrices = [sparse.block_array(blocks, format="csr") for blocks in grid.values()]
    rows = [np.split(matrix.indices, matrix.indptr[1:-1]) for matrix in matrices]
    colors = np.repeat(np.arange(dim + 1), known.counts[:-1])
    while True:
        seen = [
            (color, *(tuple(np.sort(colors[neighbours[token]])) for neighbours in rows))
            for token, color in enumerate(colors.tolist())
        ]
        number = {kind: place for place, kind in enumerate(dict.fromkeys(seen))}
        if len(number) == len(set(colors.tolist())):
            break
        colors = np.array([number[kind] for kind in seen])
    owner = np.concatenate([owners.numpy() for owners in known.graph_of[:-1]])
    histograms = [tuple(np.sort(colors[owner == graph])) for graph in range(len(graphs))]
    classes_seen = list(dict.fromkeys(histograms))
    return np.array([classes_seen.index(histogram) for histogram in histograms])


def _without_diagonal(matrix: Any) -> Any:
    return matrix - sparse.diags_array(matrix.diagonal(), format="csr", dtype=np.int64)


def sn_is_swl(mutation: str | None) -> Result:
    """Random AS_{0:K}^SN with the sum kernel: SWL exactly where all simplices of the complex are tokens; below it otherwise."""
    graphs = (*small_graphs(6), *hard_graphs())
    results, remarks = [], []
    for dim in (0, 1, 2):
        whole = wl_partition(graphs, dim)
        results.append(exactly(f"AS0:{dim}-ReLU^SN", graphs, whole, draws=5, truncate=mutation != "not truncated"))
        expected, above = neighbour_classes(graphs, dim), classes("SWL", graphs, dim=dim)
        results.append(exactly(f"AS0:{dim}-ReLU^SN", graphs, expected, draws=5))
        joint = judge("joint softmax", largest_gaps(f"AS0:{dim}^SN", graphs), expected)
        missing = _pairs(graphs, expected, above)
        results.append(expect(not _pairs(graphs, above, expected), f"AS0:{dim}^SN can separate what SWL cannot"))
        remarks.append(
            f"K = {dim}: SWL({dim + 1}) separates {len(missing)} pair(s) more{_of_nodes(missing)}; "
            f"{joint.failures[0] if joint.failures else 'the joint softmax separates the same pairs'}"
        )
    groups = draw("AS0:1^SN", [P4, STAR], 0, softmax="groups").gap(0, 1)
    joint_gap = draw("AS0:1^SN", [P4, STAR], 0).gap(0, 1)
    results += [
        expect(groups < 1, f"head groups separate P4 from K_1,3 by {groups:.0e}"),
        expect(joint_gap >= 1, f"the joint softmax does not separate P4 from K_1,3: {joint_gap:.0e}"),
    ]
    remark = (
        "sum kernel, complex truncated at K: exactly SWL(K). With upper adjacency through dimension K + 1, exactly the "
        "refinement in which simplices of dimension K + 1 relate others and have no colours; SWL(K + 1) colours them and is "
        f"stronger. {'. '.join(remarks)}. Softmax with head groups fails on P4 / K_1,3, the joint softmax does not"
    )
    return merge(*results, remark=remark)


def wl_partition(graphs: Sequence[Any], dim: int) -> np.ndarray:
    """(G,) classes of graphs under SWL on the complex up to dimension ``dim``."""
    return wl.partition("SWL", list(graphs), dim=dim)


def _pairs(graphs: Sequence[Any], coarse: np.ndarray, fine: np.ndarray) -> list[int]:
    """Sizes of the graphs of each pair that the second partition separates and the first does not."""
    apart = np.argwhere(np.triu((coarse[:, None] == coarse[None]) & (fine[:, None] != fine[None]), 1))
    return [int(graphs[i].num_nodes) for i, _ in apart]


def _of_nodes(sizes: list[int]) -> str:
    return f" (graphs with {', '.join(map(str, sorted(set(sizes))))} nodes)" if sizes else ""


def rook_and_shrikhande(mutation: str | None) -> Result:
    """AS_{0:3} with 𝓛 as bias separates Rook's graph from the Shrikhande graph, which 3-WL does not; so does plain AS_{0:3}."""
    pair = hard_graphs(16)[:2]
    must: dict[str, dict[str, Any]] = {
        "AS0:3+bias": {},
        "AS0:3+reweight": {},
        "AS0:3^SN": {},
        "AS0:2^SN": {},
        "AS0:3": {},
    }
    must_not: dict[str, dict[str, Any]] = {"AS0:2^SN": {"truncate": True}, "AS0:1^SN": {}, "AS0:2": {}, "AS0:1": {}}
    if mutation == "truncated":
        must["AS0:2^SN"] = {"truncate": True}
    results = []
    for cases, expected in ((must, np.array([0, 1])), (must_not, np.array([0, 0]))):
        for name, options in cases.items():
            results.append(exactly(name, pair, expected, **options))
    results.append(expect(classes("3-WL", pair).max() == 0, "3-WL separates the pair"))
    remark = (
        "plain dense AS0:3 separates them too, by counting 4-cliques, so the bias is not what does it; AS0:2^SN does through "
        "upper adjacency, and not when truncated; AS0:1^SN, AS0:2 and AS0:1 do not"
    )
    return merge(*results, remark=remark)


CHECKS = (
    Check(
        "laplacian-update",
        "AS_{0:K} reweighted by 𝓛_{0:K} computes the update of message passing simplicial networks",
        "Theorem C.1",
        laplacian_update,
        ("sign flipped",),
        "fails as stated",
    ),
    Check(
        "mpsn",
        "AS_{0:K}^SN equals MPSN",
        "Table 1",
        mpsn_update,
        ("flags cancel",),
        "holds under a condition",
    ),
    Check(
        "swl", "AS_{0:K}^SN is as powerful as SWL", "Table 1", sn_is_swl, ("not truncated",), "holds under a condition"
    ),
    Check(
        "rook",
        "AS_{0:3} with 𝓛_{0:3} as bias separates Rook 4x4 from the Shrikhande graph",
        "Theorem C.4",
        rook_and_shrikhande,
        ("truncated",),
    ),
)
