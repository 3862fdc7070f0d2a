"""Dense attention sees its first features and nothing else (Theorem 3.2, its corollary, and Theorem 4.1)."""

from __future__ import annotations

import numpy as np
import torch

from tuplet.theory.bank import classes, exactly, expect, judge, largest, largest_gaps, merge, small_graphs
from tuplet.theory.check import Check, Result
from tuplet.theory.separation import random_model

SIZES = {1: 7, 2: 7, 3: 5}
"""Largest graphs of the atlas on which each order is run."""


def _tokens_stay_together(name: str) -> Result:
    """Tuples that begin equal stay equal, layer after layer."""
    model = random_model(name, 0)
    error, together, apart = 0.0, 0, 0
    for graph in small_graphs(5)[20:]:
        prepared = model.prepare(graph)
        with torch.no_grad():
            first = model.embed(prepared)[1]
            last = model.run_layers(first, None, None, prepared, model.config.depth)[0]
        begins_equal = torch.cdist(first, first, p=float("inf")) < 1e-9 * float(first.abs().max())
        distance = torch.cdist(last, last, p=float("inf")) / last.abs().max()
        off = ~torch.eye(len(first), dtype=torch.bool)
        error = max(error, float(distance[begins_equal & off].max()) if bool((begins_equal & off).any()) else 0.0)
        together += int((begins_equal & off).sum()) // 2
        apart += int((~begins_equal).sum()) // 2
    failures = () if error < 1e-10 else (f"{name}: equal tuples drift apart by {error:.0e}",)
    return Result(apart, together, error, failures)


def dense_is_below_k_wl(mutation: str | None) -> Result:
    """A_k separates exactly what the first colours of k-WL do; k-WL separates more."""
    results, remarks = [], []
    for k, nodes in SIZES.items():
        name = f"A{k}^LN" if mutation == "local neighbours" else f"A{k}"
        graphs = small_graphs(min(nodes, largest(mutation)))
        first, stable = classes(f"{k}-WL", graphs, rounds=0), classes(f"{k}-WL", graphs)
        beyond = _refined(first, stable)
        results += [
            exactly(name, graphs, first),
            expect(beyond > 0, f"no pair that {k}-WL separates and A{k} does not"),
        ]
        results.append(_tokens_stay_together(name))
        remarks.append(f"k = {k}: {beyond:,} pairs (n <= {nodes}) are separated by {k}-WL and not by A{k}")
    return merge(*results, remark="; ".join(remarks))


def _refined(coarse: np.ndarray, fine: np.ndarray) -> int:
    """Pairs that the second partition separates and the first does not."""
    same = coarse[:, None] == coarse[None]
    return int((same & (fine[:, None] != fine[None])).sum()) // 2


def orders_grow(mutation: str | None) -> Result:
    """A_{k+1} separates all that A_k does, and more: first colours of order k + 1 know the (k+1)-cliques."""
    results, remarks = [], []
    graphs = small_graphs(5)
    gaps = {k: largest_gaps(f"A{k}", graphs) for k in (1, 2, 3)}
    for k in (1, 2):
        low, high = (k + 1, k) if mutation == "orders swapped" else (k, k + 1)
        upper = torch.ones_like(gaps[k], dtype=torch.bool).triu(1)
        lost = upper & (gaps[low] >= 1) & (gaps[high] < 1)
        gained = upper & (gaps[low] < 1) & (gaps[high] >= 1)
        results += [
            judge(f"A{high}", gaps[high], classes(f"{high}-WL", graphs, rounds=0)),
            expect(not bool(lost.any()), f"A{low} separates {int(lost.sum())} pairs that A{high} does not"),
            expect(bool(gained.any()), f"A{high} separates nothing that A{low} does not"),
        ]
        remarks.append(f"A{high} separates {int(gained.sum())} pairs that A{low} does not")
    return merge(*results, remark="; ".join(remarks))


def kernels_add_nothing(mutation: str | None) -> Result:
    """Kernelised A_k separates no pair that A_k does not (and, on these graphs, all that it does)."""
    results = []
    for k, kernel in ((1, "Performer"), (1, "Linear"), (2, "Performer"), (2, "Linear")):
        name = f"A{k}-{kernel}" + ("^LN" if mutation == "local neighbours" else "")
        graphs = small_graphs(6)
        results.append(exactly(name, graphs, classes(f"{k}-WL", graphs, rounds=0)))
    return merge(*results, remark="graphs with at most 6 nodes, k = 1 and 2, FAVOR+ and elu + 1")


def basis_is_k_wl(mutation: str | None) -> Result:
    """Dense attention that knows the equality pattern of a pair (k-IGN's basis) separates exactly what k-WL does."""
    name = "A2" if mutation == "basis ignored" else "A2+basis"
    graphs = small_graphs(largest(mutation))
    return exactly(name, graphs, classes("2-WL", graphs))


CHECKS = (
    Check(
        "dense",
        "A_k is strictly less expressive than k-WL; its histogram never refines the first one",
        "Theorem 3.2",
        dense_is_below_k_wl,
        ("local neighbours",),
    ),
    Check("orders", "A_{k+1} is strictly more powerful than A_k", "Corollary of 3.2", orders_grow, ("orders swapped",)),
    Check(
        "kernelised-power",
        "kernelised A_k is no more powerful than A_k",
        "Theorem 4.1",
        kernels_add_nothing,
        ("local neighbours",),
    ),
    Check(
        "basis",
        "A_k with the equivalence classes of k-IGN is as powerful as k-WL",
        "Appendix B.2.2",
        basis_is_k_wl,
        ("basis ignored",),
    ),
)
