"""Kernelised A_k from a k-IGN layer (Theorem 4.1) and from two layers of virtual tuple attention (Proposition 4.4).

Kernelised attention is out_i = φ(X_iQ)ᵀ Σ_j φ(X_jK) ⊗ X_jV / φ(X_iQ)ᵀ Σ_j φ(X_jK). Both proofs gather sums over all tuples with an
input function θ, hand them to every tuple, and let an output function ψ multiply and divide. In the paper θ(X_j) is
φ(X_jK) ⊗ X_jV, which does not determine the normaliser Σ_j φ(X_jK); the checks use θ(X_j) = φ(X_jK) ⊗ [X_jV, 1] and show two
inputs on which everything that the paper's ψ reads is the same and kernelised attention is not. With the 1, exact functions
in place of MLPs reproduce kernelised attention; the width is m(d'+1), constant in n but quadratic in d.

φ is one function of a tuple on both sides: elu + 1 (``EluFeatures``), or the Performer's positive features
exp(w·x - |x|²/2)/√m with the directions of ``FavorFeatures``. The library's FAVOR+ divides by the largest exponent of the graph and adds ε;
that is no function of a single tuple, so it is compared beside it.

Kernelised attention itself is ``tuplet.attention.attend`` over all tuples, and a literal sum over all keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tuplet.attention import FavorFeatures, Rule, attend
from tuplet.attention.kernels import EluFeatures
from tuplet.graphs import GraphBatch, read
from tuplet.patterns import Dense, Virtual, virtual_layout
from tuplet.patterns.relation import bell
from tuplet.theory.check import Check, Result
from tuplet.theory.ign import EquivariantLinear
from tuplet.theory.index import random_graph
from tuplet.tokens import Tuples

WIDTH, FEATURES, OUT = 4, 6, 3
"""d of the input, random features of the Performer, d' of the values."""
Phi = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """Features X (T, d) of all tuples of a batch, and Q, K, V."""

    tuples: Tuples
    x: Tensor
    q: Tensor
    k: Tensor
    v: Tensor

    @classmethod
    def random(cls, graph: GraphBatch, order: int, generator: torch.Generator) -> Case:
        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        tuples = Tuples.all(graph, order)
        matrices = (normal(WIDTH, WIDTH) / 2, normal(WIDTH, WIDTH) / 2, normal(WIDTH, OUT))
        return cls(tuples, normal(tuples.total, WIDTH), *matrices)


def _maps() -> dict[str, Phi]:
    """The two feature maps as functions of one vector, by name."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(8)
        favor = FavorFeatures(WIDTH, FEATURES)
    directions = favor.directions.double()

    def performer(x: Tensor) -> Tensor:
        x = x * WIDTH**-0.25
        return torch.exp(x @ directions.t() - (x * x).sum(-1, keepdim=True) / 2) / math.sqrt(FEATURES)

    elu = EluFeatures()
    return {"Linear": lambda x: elu.queries(x), "Performer": performer}


def library(case: Case, phi: Phi) -> Tensor:
    """(T, d') kernelised attention by the library's operator."""
    layout = Dense((case.tuples.order, case.tuples.order)).layout(case.tuples, case.tuples, 0, typed=False).planned()
    q, k = phi(case.x @ case.q)[:, None], phi(case.x @ case.k)[:, None]
    return attend(q, k, (case.x @ case.v)[:, None], layout, None, Rule("positive", "none", 1.0))[0][:, 0]


def literal(case: Case, phi: Phi) -> Tensor:
    """(T, d') kernelised attention as its first formula: κ(i, j) of all pairs of a graph, normalised."""
    owner = case.tuples.graph_of_token
    kappa = phi(case.x @ case.q) @ phi(case.x @ case.k).t() * (owner[:, None] == owner[None])
    return (kappa / kappa.sum(1, keepdim=True)) @ (case.x @ case.v)


def theta(case: Case, phi: Phi, one: bool = True) -> Tensor:
    """(T, m(d'+1)) φ(XK) ⊗ [XV, 1]; without the 1 as in the paper, (T, m d')."""
    values = case.x @ case.v
    if one:
        values = torch.cat([values, values.new_ones(len(values), 1)], dim=1)
    return (phi(case.x @ case.k)[:, :, None] * values[:, None]).flatten(1)


def psi(case: Case, phi: Phi, sums: Tensor, mutation: str | None) -> Tensor:
    """(T, d') the output function: multiply by φ(XQ) and divide. ``sums`` (T, w) stands for Σ θ, times any factor."""
    query = phi(case.x @ case.q)
    if mutation == "the 1 forgotten":
        # the best that the paper's inputs allow: the normaliser of a graph in which all keys are alike
        mixed = torch.einsum("tm,tmo->to", query, sums.reshape(len(query), -1, OUT))
        owner = case.tuples.graph_of_token
        counts = torch.bincount(owner)[owner, None]
        mean = torch.zeros_like(case.x).index_add_(0, owner, case.x)[owner] / counts
        return mixed / (counts * (query * phi(mean @ case.k)).sum(1, keepdim=True))
    mixed = torch.einsum("tm,tmo->to", query, sums.reshape(len(query), -1, OUT + 1))
    return mixed[:, :OUT] if mutation == "normaliser forgotten" else mixed[:, :OUT] / mixed[:, OUT:]


def by_ign(case: Case, phi: Phi, mutation: str | None) -> Tensor:
    """Theorem 4.1: one layer L_{k→k} with the same weights for all equality patterns, between θ and ψ."""
    order = case.tuples.order
    inputs = theta(case, phi, mutation != "the 1 forgotten")
    width = inputs.shape[1]
    weight = torch.eye(width, dtype=torch.float64).repeat(bell(2 * order), 1, 1)
    if mutation == "patterns weighted apart":
        weight[0] *= 2
    layer = EquivariantLinear(order, order, weight, torch.zeros(bell(order), width, dtype=torch.float64))
    parts = inputs.split(list(case.tuples.counts))
    sums = [layer.by_contraction(part, n) for part, n in zip(parts, case.tuples.graph.sizes, strict=True)]
    return psi(case, phi, torch.cat(sums), mutation)


def by_virtual_tuple(case: Case, phi: Phi, mutation: str | None) -> Tensor:
    """Proposition 4.4: the virtual tuple takes the mean of θ (constant Q and K), then every tuple reads the virtual tuple."""
    virtual = Virtual.make(case.tuples.graph, 1)
    inputs = theta(case, phi, mutation != "the 1 forgotten")[:, None]
    asks, reads = (inputs.new_ones(tokens.total, 1, 1) for tokens in (virtual, case.tuples))
    keys = case.x[:, None, :1] if mutation == "keys not constant" else reads
    rule = Rule("softmax", "none", 1.0)
    mean, _ = attend(asks, keys, inputs, virtual_layout(virtual, case.tuples).planned(), None, rule)
    if mutation == "the 1 forgotten":
        mean = mean * torch.tensor(case.tuples.counts)[:, None, None]
    sums, _ = attend(reads, asks, mean, virtual_layout(case.tuples, virtual).planned(), None, rule)
    return psi(case, phi, sums[:, 0], mutation)


def _undetermined(phi: Phi, distance: float) -> tuple[float, float]:
    """How far apart two inputs are in what the paper's ψ reads at the first tuple, and in kernelised attention there.

    Keys read the first coordinate and values the second. Tuples with value 0 add nothing to Σ φ ⊗ XV; two of them, moved apart
    symmetrically by ``distance``, leave Σ X as it is and change Σ φ.
    """
    seen, results = [], []
    tuples = Tuples.all(read(random_graph(2, 1.0, torch.Generator())), 2)
    for shift in (0.0, distance):
        x = torch.zeros(4, WIDTH, dtype=torch.float64)
        x[0, 1], x[1, 0], x[2, 0] = 1.0, shift, -shift
        key = torch.zeros(WIDTH, WIDTH, dtype=torch.float64)
        key[0, 0] = 1
        value = torch.zeros(WIDTH, OUT, dtype=torch.float64)
        value[1, 0] = 1
        case = Case(tuples, x, torch.zeros_like(key), key, value)
        seen.append(torch.cat([x[0], x.sum(0), theta(case, phi, one=False).sum(0)]))
        results.append(library(case, phi)[0])
    return float((seen[0] - seen[1]).abs().max()), float((results[0] - results[1]).abs().max())


def _compare(construction: Callable[[Case, Phi, str | None], Tensor], mutation: str | None) -> Result:
    generator = torch.Generator().manual_seed(9)
    must = must_not = 0
    worst, failures, moved, low = 0.0, [], [], math.inf
    for name, phi in _maps().items():
        for order, sizes in ((1, (5, 8)), (2, (2, 4, 5)), (3, (3, 4))):
            graph = read([random_graph(n, 0.5, generator) for n in sizes])
            case = Case.random(graph, order, generator)
            expected = library(case, phi)
            scale = float(expected.abs().max())
            errors = [
                float((other - expected).abs().max()) / scale
                for other in (construction(case, phi, mutation), literal(case, phi))
            ]
            must, worst = must + expected.numel(), max(worst, *errors)
            low = min(low, float((phi(case.x @ case.q) @ phi(case.x @ case.k).t()).min()))
        for distance in (1.0, 2.0, 4.0):
            same, apart = _undetermined(phi, distance)
            must_not += 1
            if same > 1e-12 or apart < 1e-3:
                failures.append(
                    f"{name}: no counterexample to the paper's θ: {same:.1e} apart before, {apart:.1e} after"
                )
        moved.append(f"{apart:.2f} ({name})")
    if worst > 1e-10:
        failures.append(f"the construction is {worst:.1e} off kernelised attention")
    remark = (
        f"θ must carry φ(XK) ⊗ [XV, 1]; without the 1 two inputs look alike whose attention differs by {', '.join(moved)}. "
        f"Smallest κ {low:.0e} > 0. One φ on both sides; the library's FAVOR+ with stabiliser and ε differs by {_favor_gap():.0e}."
    )
    return Result(must, must_not, worst, tuple(failures), remark)


def _favor_gap() -> float:
    """How far the library's stabilised features with ε move kernelised attention from the paper's plain ones."""
    generator = torch.Generator().manual_seed(9)
    case = Case.random(read(random_graph(5, 0.5, generator)), 2, generator)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(8)
        favor = FavorFeatures(WIDTH, FEATURES)
    q = favor.queries((case.x @ case.q)[:, None])[:, 0]
    k = favor.keys([(case.x @ case.k)[:, None]], [case.tuples.graph_of_token], 1)[0][:, 0]
    kappa = q @ k.t()
    stabilised = (kappa / kappa.sum(1, keepdim=True)) @ (case.x @ case.v)
    return float((stabilised - literal(case, _maps()["Performer"])).abs().max())


IGN = Check(
    name="kernelised-ign",
    statement="a homogeneous k-IGN layer between input and output MLPs reproduces kernelised A_k (Linear and Performer)",
    paper="Theorem 4.1, first part",
    run=lambda mutation: _compare(by_ign, mutation),
    mutations=("the 1 forgotten", "normaliser forgotten", "patterns weighted apart"),
    verdict="holds under a condition",
)
VIRTUAL = Check(
    name="kernelised-virtual",
    statement="two layers of virtual tuple attention reproduce kernelised A_k (Linear and Performer)",
    paper="Proposition 4.4",
    run=lambda mutation: _compare(by_virtual_tuple, mutation),
    mutations=("the 1 forgotten", "normaliser forgotten", "keys not constant"),
    verdict="holds under a condition",
)
CHECKS = (IGN, VIRTUAL)
