"""Spectral monotonicity of Hodge Laplacians and of attention biased by them (appendix "Simplicial Transformers").

For K_1 ⊂ K_2 with m_1 < m_2 simplices and spectra in ascending order, the shorter one padded on the left with zeros:

* Lemma (Knill 2023): λ_j(L(K_1)) <= λ_j(L(K_2)) for the block Hodge Laplacian L = D², D the Dirac matrix. It holds, for whole
  complexes and for every order by itself.
* Theorem: the same for A_i = (X_iQ)(X_iQ)ᵀ + L(K_i). It holds if simplices of K_1 have the same rows of XQ in both complexes (used in
  the paper's proof, not in its statement); that XQ is positive (condition ii) is not needed.

The proof in the paper goes through the Loewner order, zero-padded L(K_1) <= L(K_2), and that step is false. If one simplex of
dimension p >= 1 is added and r simplices of dimension p share a face with it, the difference has the eigenvalue
((p+1) - √((p+1)² + 4r)) / 2 < 0 for r > 0; the smallest case is a second edge at a node, 1 - √2. (The same slip occurs for
(XQ)(XQ)ᵀ, whose mixed terms the proof leaves out.) What proves both statements is that D(K_1) is a submatrix of D(K_2), and so is
the matrix (D; (XQ)ᵀ) with A as its Gram matrix: singular values of a submatrix, in descending order, are at most those of the matrix.

The lemma writes 𝓛 for the matrix, the symbol of the inter-order Laplacian. For that one it fails: 𝓛 = D² + D = (D + 1/2)² - 1/4 has
negative eigenvalues, which the padded zeros exceed. By the argument above it holds when padded with -1/4 instead of 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations

import numpy as np

from tuplet.theory.check import Check, Result
from tuplet.topology import Complex, block_laplacian, dirac, hodge_laplacian, inter_order_laplacian

Array = np.ndarray
Simplex = tuple[int, ...]
CHAINS, STEPS, TOP = 6, 16, 3
"""Random chains of complexes, simplices added in each, and their highest dimension."""


def chain(generator: np.random.Generator) -> Iterator[tuple[list[Simplex], Simplex]]:
    """Complexes that grow by one locally maximal simplex at a time: the simplices before, and the one that comes."""
    known: list[Simplex] = [(node,) for node in range(4)]
    for _ in range(STEPS):
        nodes = sum(len(simplex) == 1 for simplex in known)
        held = set(known)
        open_ = [
            simplex
            for size in range(2, TOP + 2)
            for simplex in combinations(range(nodes), size)
            if simplex not in held and all(face in held for face in combinations(simplex, size - 1))
        ]
        # higher simplices are rarer, and chosen as often
        sizes = sorted({len(simplex) for simplex in open_})
        new: Simplex = (nodes,)
        if open_ and generator.random() > 0.1:
            size = int(generator.choice(sizes))
            candidates = [simplex for simplex in open_ if len(simplex) == size]
            new = candidates[int(generator.integers(len(candidates)))]
        yield list(known), new
        known.append(new)


def _complex(simplices: list[Simplex]) -> Complex:
    return Complex.from_simplices(simplices, sum(len(simplex) == 1 for simplex in simplices))


def _order(complex_: Complex) -> list[Simplex]:
    """The simplices in the order of the rows of the Laplacians."""
    return [simplex for level in complex_.tolist()[0] for simplex in level]


def _dense(matrix: object) -> Array:
    return np.asarray(matrix.toarray(), dtype=float)  # type: ignore[attr-defined]


def excess(smaller: Array, larger: Array, fill: float = 0.0, left: bool = True) -> float:
    """By how much the padded spectrum of the smaller matrix exceeds that of the larger at its worst place; <= 0 if nowhere."""
    mu, lam = np.linalg.eigvalsh(smaller), np.linalg.eigvalsh(larger)
    padding = np.full(len(lam) - len(mu), fill)
    padded = np.concatenate([padding, mu] if left else [mu, padding])
    return float((padded - lam).max())


def _padded(smaller: Array, places: list[int], size: int) -> Array:
    """The smaller matrix in the rows and columns ``places`` of a matrix of zeros."""
    out = np.zeros((size, size))
    out[np.ix_(places, places)] = smaller
    return out


@lru_cache(maxsize=1)
def _pairs() -> tuple[tuple[Complex, Complex, Simplex], ...]:
    """Consecutive complexes of all chains with the simplex added, and for each chain its first and last one."""
    pairs: list[tuple[Complex, Complex, Simplex]] = []
    for seed in range(CHAINS):
        steps = list(chain(np.random.default_rng(seed)))
        grown = [_complex(before) for before, _ in steps] + [_complex([*steps[-1][0], steps[-1][1]])]
        pairs += [(grown[i], grown[i + 1], new) for i, (_, new) in enumerate(steps)]
        pairs.append((grown[0], grown[-1], ()))
    return tuple(pairs)


def _run_hodge(mutation: str | None) -> Result:
    must = must_not = 0
    worst, failures, roots = -math.inf, [], 0
    for one, two, new in _pairs():
        build = dirac if mutation == "Dirac matrix instead of its square" else block_laplacian
        small, large = _dense(build(one)), _dense(build(two))
        roots += int(not np.array_equal(_dense(dirac(two)) @ _dense(dirac(two)), _dense(block_laplacian(two))))
        worst = max(worst, excess(small, large, left=mutation != "padding on the right"))
        must += len(large)
        for order in range(one.dim + 1):
            alone = _dense(hodge_laplacian(one, order)), _dense(hodge_laplacian(two, order))
            worst, must = max(worst, excess(*alone)), must + len(alone[1])
        if len(new) > 1:
            # the sum of all eigenvalues, the trace, grows
            must_not += 1
            grown = np.linalg.eigvalsh(large).sum() - np.linalg.eigvalsh(small).sum()
            failures += ["adding a simplex left the spectrum as it was"] if grown < 0.5 else []
    failures += [f"an eigenvalue falls by {worst:.1e}"] if worst > 1e-9 else []
    failures += ["L is not the square of the Dirac matrix"] if roots else []
    remark = "Holds for each L_k by itself too; must: inequalities, must not: spectra that stay the same when a simplex with faces comes."
    return Result(must, must_not, max(worst, 0.0), tuple(failures), remark)


def _features(size: int, positive: bool, generator: np.random.Generator) -> Array:
    draws = generator.normal(size=(size, 3))
    return np.abs(draws) if positive else draws


def _run_attention(mutation: str | None) -> Result:
    must = must_not = cases = 0
    worst = -math.inf
    generator = np.random.default_rng(11)
    for one, two, _ in _pairs():
        rows = {simplex: row for row, simplex in enumerate(_order(two))}
        places = [rows[simplex] for simplex in _order(one)]
        for positive in (True, False):
            features = _features(len(rows), positive, generator)
            others = _features(len(places), positive, generator)
            large = features @ features.T + _dense(block_laplacian(two))
            own = others if mutation == "features not shared" else features[places]
            small = own @ own.T + _dense(block_laplacian(one))
            worst, must = max(worst, excess(small, large, left=mutation != "padding on the right")), must + len(large)
            # with features of its own the smaller complex may have the larger eigenvalues
            cases += 1
            must_not += int(excess(others @ others.T + _dense(block_laplacian(one)), large) > 1e-6)
    failures = [f"an eigenvalue falls by {worst:.1e}"] if worst > 1e-9 else []
    remark = (
        "Condition (ii), XQ positive, is not needed: features of any sign do. Needed, and missing in the statement: simplices of K_1 have "
        f"the same XQ in both complexes; otherwise an eigenvalue falls in {must_not} of {cases} cases."
    )
    return Result(must, must_not, max(worst, 0.0), tuple(failures), remark)


def _run_loewner(mutation: str | None) -> Result:
    must = must_not = 0
    error, lowest, gram = 0.0, 0.0, -math.inf
    generator = np.random.default_rng(12)
    for one, two, new in _pairs():
        if not new:
            continue
        rows = {simplex: row for row, simplex in enumerate(_order(two))}
        places = [rows[simplex] for simplex in _order(one)]
        small, large = _dense(block_laplacian(one)), _dense(block_laplacian(two))
        if mutation == "nodes only":
            # the graph Laplacian L_0 alone, of which the step is true
            small[one.num_nodes :], large[two.num_nodes :] = 0, 0
        features = _features(len(rows), True, generator)
        shared = _padded(features[places] @ features[places].T, places, len(rows))
        gram = max(gram, float(np.linalg.eigvalsh(features @ features.T - shared)[0]))
        least = float(np.linalg.eigvalsh(large - _padded(small, places, len(large)))[0])
        faces = set(combinations(new, len(new) - 1)) if len(new) > 1 else set()
        sharing = sum(bool(faces & set(combinations(s, len(s) - 1))) for s in _order(one) if len(s) == len(new))
        size = len(new)
        if mutation == "neighbours miscounted":
            sharing = max(0, sharing - 1)
        expected = (size - math.sqrt(size**2 + 4 * sharing)) / 2 if faces else 0.0
        must, must_not = must + (1 if sharing else 0), must_not + (0 if sharing else 1)
        error, lowest = max(error, abs(least - expected)), min(lowest, least)
    failures = [f"the smallest eigenvalue is {error:.1e} off the formula"] if error > 1e-9 else []
    failures += ["(XQ)(XQ)ᵀ grows in the Loewner order"] if gram > -1e-9 else []
    remark = (
        f"L(K_1), zero-padded, is not below L(K_2) in {must} of {must + must_not} steps: whenever the new simplex shares a face with "
        f"another of its dimension. The difference has eigenvalues down to {lowest:.2f}; smallest case: a second edge at a node, "
        "1 - √2. (XQ)(XQ)ᵀ does not grow in that order in any step, even with XQ positive."
    )
    return Result(must, must_not, error, tuple(failures), remark)


def _run_inter_order(mutation: str | None) -> Result:
    must = must_not = 0
    worst, repaired, lowest = 0.0, -math.inf, 0.0
    for one, two, _ in _pairs():
        build = block_laplacian if mutation == "block Laplacian instead" else inter_order_laplacian
        small, large = _dense(build(one)), _dense(build(two))
        over = excess(small, large)
        must, must_not = must + len(large), must_not + int(over > 1e-9)
        worst, lowest = max(worst, over), min(lowest, float(np.linalg.eigvalsh(large)[0]))
        repaired = max(repaired, excess(small, large, 0.0 if mutation == "padding with zeros" else -0.25))
    failures = [f"padded with -1/4 an eigenvalue falls by {repaired:.1e}"] if repaired > 1e-9 else []
    remark = (
        f"Padded with zeros it fails for {must_not} of {len(_pairs())} pairs, by up to {worst:.2f}: 𝓛 = (D+1/2)² - 1/4 has "
        f"eigenvalues down to {lowest:.2f}. Padded with -1/4 all {must} inequalities hold."
    )
    return Result(must, must_not, max(repaired, 0.0), tuple(failures), remark)


HODGE = Check(
    name="spectrum-hodge",
    statement="K_1 ⊂ K_2 implies λ_j(L(K_1)) <= λ_j(L(K_2)), spectra padded on the left",
    paper="Appendix C.3, Lemma (spectral monotonicity); Knill 2023",
    run=_run_hodge,
    mutations=("padding on the right", "Dirac matrix instead of its square"),
)
ATTENTION = Check(
    name="spectrum-attention",
    statement="the same for (XQ)(XQ)ᵀ + L(K), attention biased by the Hodge Laplacian",
    paper="Appendix C.3, Theorem (spectral monotonicity of attention)",
    run=_run_attention,
    mutations=("padding on the right", "features not shared"),
    verdict="holds under a condition",
)
LOEWNER = Check(
    name="spectrum-loewner",
    statement="L(K_1), padded with zeros, is below L(K_2) in the Loewner order",
    paper="Appendix C.3, proof of the Theorem",
    run=_run_loewner,
    mutations=("nodes only", "neighbours miscounted"),
    verdict="fails as stated",
)
INTER_ORDER = Check(
    name="spectrum-inter-order",
    statement="K_1 ⊂ K_2 implies λ_j(𝓛(K_1)) <= λ_j(𝓛(K_2)), spectra padded on the left with zeros",
    paper="Appendix C.3, Lemma, as written with 𝓛",
    run=_run_inter_order,
    mutations=("block Laplacian instead", "padding with zeros"),
    verdict="fails as stated",
)
CHECKS = (HODGE, ATTENTION, LOEWNER, INTER_ORDER)
