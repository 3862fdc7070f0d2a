"""Match-m by Kronecker-product attention (appendix "Discussion", proposition on Match-m; Sanford et al. 2023, Theorems 6 and 18).

Match-m asks of each token i of x_1, .., x_n in {1..M}^d whether there are j_1, .., j_{m-1}, equal or not, with
x_i + x_{j_1} + .. + x_{j_{m-1}} = 0 (mod M). The score c·Σ_t cos(2π (x_i + x_{j_1} + .. )_t / M) is largest, c·d, exactly at a
match. The cosine of a sum of m angles is a sum of products with one factor a token, which is what Kronecker-product
attention of order m computes; one more coordinate gives the tuple of blank tokens alone a score halfway between a match and
the best other tuple, c·(d - (1 - cos(2π/M))/2). Values are 1 for tokens and 0 for the blank, so the output is near 1 with a
match and near 0 without: the output MLP is the threshold 1/2.

Beyond the paper: m products are enough (``expand_few``), so width d·m + 1.

Conditions that the paper does not state: tokens are taken from 1..M, so that the blank vector 0 is none of them; and c must
exceed 2(m-1) ln(n) / (1 - cos(2π/M)), about (m-1) M² ln(n) / π², so that weights grow with M and are not bounded.
"""

from __future__ import annotations

import math
from itertools import combinations, product

import torch
from torch import Tensor

from tuplet.attention.kronecker import kronecker_attend
from tuplet.theory.check import Check, Result

SIZES = {2: (6, 14, 30), 3: (5, 9, 14), 4: (4, 6, 8)}
"""Tokens of the instances, by m."""


def expand_all(m: int) -> list[tuple[float, list[float]]]:
    """cos(θ_1 + .. + θ_m) as 2^{m-1} products: a coefficient and the phases α of the factors cos(θ + α), the paper's way.

    A factor sin θ = cos(θ - π/2); an even number of sines occurs, with the sign (-1)^{half of it}.
    """
    terms = []
    for sines in product((0, 1), repeat=m - 1):
        choice = (sum(sines) % 2, *sines)
        terms.append(((-1.0) ** (sum(choice) // 2), [-math.pi / 2 * sine for sine in choice]))
    return terms


def expand_few(m: int) -> list[tuple[float, list[float]]]:
    """The same with m products only: cos(Σθ) = 2^{m-1}/m · Σ_{r<m} (-1)^r Π_l cos(θ_l + rπ/m)."""
    return [((-1.0) ** r * 2 ** (m - 1) / m, [r * math.pi / m] * m) for r in range(m)]


def sharpness(n: int, m: int, modulus: int) -> float:
    """c for which all other tuples together weigh less than e^-8 of the one that is to win."""
    return 2 * ((m - 1) * math.log(n + 1) + 8) / (1 - math.cos(2 * math.pi / modulus))


def match_weights(
    x: Tensor, m: int, modulus: int, terms: list[tuple[float, list[float]]], blank: bool = True
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Queries, keys and values for the tokens ``x`` (n, d) followed by one blank token; width len(terms)·d + 1."""
    n, d = x.shape
    c = sharpness(n, m, modulus)
    angles = 2 * math.pi * x.to(torch.float64) / modulus
    sides = []
    for place in range(m):
        columns = torch.cat([torch.cos(angles + phases[place]) for _, phases in terms], dim=1)
        side = torch.zeros(n + 1, columns.shape[1] + 1, dtype=torch.float64)
        side[:n, :-1] = columns
        side[n, -1] = float(blank)
        sides.append(side)
    signs = torch.tensor([sign for sign, _ in terms], dtype=torch.float64).repeat_interleave(d)
    query = sides[0].clone()
    query[:, :-1] *= c * signs
    query[:, -1] = c * (d - (1 - math.cos(2 * math.pi / modulus)) / 2)
    value = torch.ones(n + 1, 1, dtype=torch.float64)
    value[n] = 0
    return query, sides[1:], [value] * (m - 1)


def brute_force(x: Tensor, m: int, modulus: int, mask: Tensor | None = None) -> Tensor:
    """(n,) booleans, by trying all tuples; with a mask, those whose tokens may all stand together."""
    n = len(x)
    found = []
    for i in range(n):
        found.append(
            any(
                not bool(((x[i] + x[list(others)].sum(0)) % modulus).any())
                and (mask is None or all(bool(mask[a, b]) for a, b in combinations((i, *others), 2)))
                for others in product(range(n), repeat=m - 1)
            )
        )
    return torch.tensor(found)


def _instances(m: int, share: float) -> list[tuple[Tensor, int]]:
    """Random tokens with about ``share`` matches expected a token, for several n, d and M."""
    generator = torch.Generator().manual_seed(m)
    made = []
    for n in SIZES[m]:
        for d in (1, 2, 3):
            modulus = max(3, round((n ** (m - 1) / share) ** (1 / d)))
            made.append((torch.randint(1, modulus + 1, (n, d), generator=generator), modulus))
    return made


def _terms(m: int, mutation: str | None) -> list[tuple[float, list[float]]]:
    terms = expand_all(m)
    if mutation == "sign flipped":
        terms = [(abs(sign), phases) for sign, phases in terms]
    elif mutation == "a product left out":
        terms = terms[:-1]
    return terms


def _decide(x: Tensor, m: int, modulus: int, mutation: str | None, mask: Tensor | None = None) -> tuple[Tensor, int]:
    """(n,) outputs of the paper's weights, and their width."""
    q, keys, values = match_weights(x, m, modulus, _terms(m, mutation), mutation != "blank token forgotten")
    return kronecker_attend(q, keys, values, mask)[: len(x), 0], q.shape[1]


def _run(mutation: str | None) -> Result:
    must = must_not = wrong = wrong_few = 0
    error, failures = 0.0, []
    for m in SIZES:
        for x, modulus in _instances(m, 0.7):
            truth = brute_force(x, m, modulus)
            out, width = _decide(x, m, modulus, mutation)
            must, must_not = must + int(truth.sum()), must_not + int((~truth).sum())
            wrong += int(((out > 0.5) != truth).sum())
            error = max(error, float((out - truth.to(out.dtype)).abs().max()))
            if width != x.shape[1] * 2 ** (m - 1) + 1 and mutation is None:
                failures.append(f"m = {m}, d = {x.shape[1]}: width {width} instead of d·2^(m-1) + 1")
            few = kronecker_attend(*match_weights(x, m, modulus, expand_few(m)))[: len(x), 0]
            wrong_few += int(((few > 0.5) != truth).sum())
    if wrong:
        failures.append(f"{wrong} of {must + must_not} tokens decided wrongly")
    if wrong_few:
        failures.append(f"{wrong_few} tokens decided wrongly at width d·m + 1")
    remark = (
        "Holds for tokens in 1..M (0 is the blank) and c > 2(m-1) ln n / (1 - cos 2π/M) ~ M² ln n. Width d·m + 1 is enough: "
        "cos(θ_1 + .. + θ_m) is a sum of m products, fewer than 2^(m-1) for m >= 3."
    )
    return Result(must, must_not, error, tuple(failures), remark)


def _run_cliques(mutation: str | None) -> Result:
    must = must_not = wrong = differ = 0
    error = 0.0
    for m in (3, 4):
        generator = torch.Generator().manual_seed(10 + m)
        for x, modulus in _instances(m, 4.0):
            n = len(x)
            upper = (torch.rand(n, n, generator=generator) < 0.6).triu(1)
            mask = torch.ones(n + 1, n + 1, dtype=torch.bool)  # the blank token stands with all
            mask[:n, :n] = upper | upper.t() | torch.eye(n, dtype=torch.bool)
            truth = brute_force(x, m, modulus, mask[:n, :n])
            if mutation == "only edges of the query":
                q, keys, values = match_weights(x, m, modulus, expand_all(m))
                stars = [mask[i] & mask[i][:, None] for i in range(n)]
                out = torch.stack([kronecker_attend(q, keys, values, star)[i, 0] for i, star in enumerate(stars)])
            else:
                out, _ = _decide(x, m, modulus, mutation, None if mutation == "edges ignored" else mask)
            must, must_not = must + int(truth.sum()), must_not + int((~truth).sum())
            wrong += int(((out > 0.5) != truth).sum())
            differ += int((brute_force(x, m, modulus) != truth).sum())
            error = max(error, float((out - truth.to(out.dtype)).abs().max()))
    failures = [f"{wrong} of {must + must_not} tokens decided wrongly"] if wrong else []
    if not differ:
        failures.append("no token has a match that edges forbid: the mask was not tested")
    remark = f"A tuple counts if its different nodes are pairwise joined (our reading); edges change the answer of {differ} tokens."
    return Result(must, must_not, error, tuple(failures), remark)


MATCH = Check(
    name="match-m",
    statement="Kronecker-product attention of order m solves Match-m with width d·2^(m-1) + 1",
    paper="Appendix D.1, Proposition (Match-m)",
    run=_run,
    mutations=("sign flipped", "a product left out", "blank token forgotten"),
    verdict="holds under a condition",
)
MATCH_CLIQUES = Check(
    name="match-cliques",
    statement="the edge-masked form solves Match-m restricted to triangles and cliques",
    paper="Appendix D.1; Sanford et al. 2023, Definition 8",
    run=_run_cliques,
    mutations=("edges ignored", "only edges of the query", "sign flipped"),
    verdict="holds under a condition",
)
CHECKS = (MATCH, MATCH_CLIQUES)
