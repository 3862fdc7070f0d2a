"""Equivariant linear layers L_{k→l} of k-IGN (Maron et al. 2019; paper, section 2).

    L_{k→l}(X)_i = Σ_μ Σ_j B^μ_{ij} X_j w_μ + Σ_λ C^λ_i b_λ,    i in [n]^l, j in [n]^k

where μ runs through the equality patterns of the k + l entries of (i, j), λ through those of i, and B^μ, C^λ are 1 on their
pattern and 0 elsewhere. There are bell(k+l) and bell(l) of them if n >= k + l and n >= l (a condition that the paper does
not state): with fewer nodes the patterns with more than n different entries are empty.

``by_basis`` is the formula, n^{k+l} work. ``by_contraction`` computes the same in O(n^k + n^l) work for fixed k and l: let E^ν be
1 where *at least* the equalities of ν hold. E^ν X takes a diagonal of X, sums the axes that ν does not tie to an entry of i, and
writes the rest to a diagonal of the result, broadcast over the entries of i that ν does not tie to j. Every B^μ is a combination of
E^ν by Möbius inversion over the lattice of patterns, so only weights change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from tuplet.patterns.relation import bell, equality_patterns
from tuplet.theory.check import Check, Result

Array = np.ndarray


@lru_cache(maxsize=32)
def pattern_of_pairs(k: int, ell: int, n: int) -> Tensor:
    """(n^l, n^k) number of the equality pattern of (i, j) in ``equality_patterns(l + k)``, entries of i first."""
    number = {pattern: index for index, pattern in enumerate(equality_patterns(ell + k))}
    flat = [number[tuple(map(entries.index, entries))] for entries in product(range(n), repeat=ell + k)]
    return torch.tensor(flat).reshape(n**ell, n**k)


def basis(k: int, ell: int, n: int) -> Tensor:
    """(bell(k+l), n^l, n^k) the tensors B^μ, as matrices."""
    patterns = torch.arange(len(equality_patterns(k + ell)))
    return (pattern_of_pairs(k, ell, n)[None] == patterns[:, None, None]).to(torch.float64)


@lru_cache(maxsize=16)
def moebius(places: int) -> Tensor:
    """(bell, bell) integers A with B^μ = Σ_ν A_{μν} E^ν: the inverse of E^ν = Σ_{μ coarser than or equal to ν} B^μ."""
    patterns = np.array(equality_patterns(places), dtype=np.int64).reshape(bell(places), places)
    coarser = np.array([(patterns == patterns[:, nu]).all(1) for nu in patterns])  # rows ν, columns μ
    return torch.from_numpy(np.rint(np.linalg.inv(coarser.astype(float))))


@dataclass(frozen=True)
class EquivariantLinear:
    """L_{k→l}: (n^k, d) to (n^l, d') for every n.

    Args:
        k, ell: orders of input and output.
        weight: (bell(k+l), d, d') w_μ, in the order of ``equality_patterns(l + k)``, entries of the output first.
        bias: (bell(l), d') b_λ.
    """

    k: int
    ell: int
    weight: Tensor
    bias: Tensor

    @classmethod
    def random(cls, k: int, ell: int, d: int, d_out: int, generator: torch.Generator) -> EquivariantLinear:
        """Weights from a normal distribution."""
        shapes = ((bell(k + ell), d, d_out), (bell(ell), d_out))
        return cls(k, ell, *(torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes))

    def by_basis(self, x: Tensor, n: int) -> Tensor:
        """(n^l, d') from (n^k, d), basis tensor after basis tensor."""
        patterns = pattern_of_pairs(self.k, self.ell, n)
        out = self.bias[pattern_of_pairs(0, self.ell, n)[:, 0]]
        for mu, weight in enumerate(self.weight):
            out = out + (patterns == mu).to(x.dtype) @ (x @ weight)
        return out

    def by_contraction(self, x: Tensor, n: int) -> Tensor:
        """The same by diagonals, sums over axes and broadcasts."""
        x = x.reshape(*[n] * self.k, x.shape[1])
        out = x.new_zeros(*[n] * self.ell, self.weight.shape[2])
        weights = torch.einsum("mn,mio->nio", moebius(self.k + self.ell).to(x.dtype), self.weight)
        for pattern, weight in zip(equality_patterns(self.ell + self.k), weights, strict=True):
            add_contraction(out, x, pattern, weight)
        biases = moebius(self.ell).to(x.dtype).t() @ self.bias
        for pattern, bias in zip(equality_patterns(self.ell), biases, strict=True):
            _diagonal(out, pattern).add_(bias)
        return out.reshape(-1, out.shape[-1])


def _diagonal(x: Tensor, pattern: tuple[int, ...]) -> Tensor:
    """A view of the entries of ``x`` (n, .., n, d) at which the equalities of the pattern hold, an axis a class."""
    firsts = [place for place, first in enumerate(pattern) if place == first]
    strides = [sum(x.stride(p) for p, first in enumerate(pattern) if first == one) for one in firsts]
    return x.as_strided([x.shape[0]] * len(firsts) + [x.shape[-1]], [*strides, x.stride(-1)], x.storage_offset())


def add_contraction(out: Tensor, x: Tensor, pattern: tuple[int, ...], weight: Tensor) -> None:
    """Add (E^ν x) w to ``out`` (n, .., n, d'), for x (n, .., n, d) and a pattern ν of the places of both, those of ``out`` first."""
    places = out.dim() - 1
    rows, columns = pattern[:places], pattern[places:]
    classes = [place for place, first in enumerate(rows) if place == first]
    tied = [one for one in classes if one in columns]
    letters = "".join(chr(97 + one) for one in columns)
    message = torch.einsum(f"{letters}Z->{''.join(chr(97 + one) for one in tied)}Z", x) @ weight
    for axis, one in enumerate(classes):
        if one not in tied:
            message = message.unsqueeze(axis)
    _diagonal(out, rows).add_(message)


def orbits(places: int, n: int) -> int:
    """Orbits of S_n on [n]^places, as components under a transposition and a cycle, which generate S_n."""
    if places == 0 or n < 2:
        return 1
    swap, turn = np.arange(n), np.roll(np.arange(n), 1)
    swap[:2] = 1, 0
    grid = np.indices((n,) * places).reshape(places, -1)
    number = n ** np.arange(places - 1, -1, -1)
    source, target = np.tile(number @ grid, 2), np.concatenate([number @ swap[grid], number @ turn[grid]])
    graph = sparse.coo_array((np.ones(len(source)), (source, target)), shape=(n**places, n**places))
    return int(sparse.csgraph.connected_components(graph, directed=False)[0])


def permuted(x: Tensor, order: Tensor, k: int) -> Tensor:
    """(n^k, d) with nodes renumbered: the row of (i_1..i_k) comes from (order[i_1]..order[i_k])."""
    n = len(order)
    cube = x.reshape(*[n] * k, -1)
    for axis in range(k):
        cube = cube.index_select(axis, order)
    return cube.reshape(x.shape)


def _run_basis(mutation: str | None) -> Result:
    must = must_not = 0
    failures = []
    for k, ell, n in product(range(4), range(4), range(1, 7)):
        tensors = basis(k, ell, n).flatten(1)
        if mutation == "two patterns joined" and len(tensors) > 1:
            tensors = torch.cat([tensors[:1] + tensors[1:2], tensors[2:]])
        elif mutation == "a pattern twice":
            tensors = torch.cat([tensors[:1], tensors])
        rank = int(torch.linalg.matrix_rank(tensors @ tensors.t()))
        counted = orbits(k + ell, n)
        if rank != counted:
            failures.append(f"k={k}, l={ell}, n={n}: rank {rank}, but {counted} orbits")
        if n >= k + ell:
            must += 1
            if not len(tensors) == rank == bell(k + ell):
                failures.append(f"k={k}, l={ell}, n={n}: {len(tensors)} tensors of rank {rank}, bell = {bell(k + ell)}")
        else:
            must_not += 1
            if rank >= bell(k + ell):
                failures.append(f"k={k}, l={ell}, n={n}: bell({k + ell}) independent tensors although n < k + l")
    remark = "bell(k+l) = 15 (2→2), 203 (3→3) for n >= k + l only; e.g. " + ", ".join(
        f"{orbits(k + ell, n)} for {k}→{ell} at n = {n}" for k, ell, n in ((2, 2, 3), (3, 3, 4))
    )
    return Result(must, must_not, None, tuple(failures), remark)


ORDERS = ((1, 1, 4), (2, 2, 5), (2, 1, 5), (1, 3, 5), (2, 0, 4), (3, 3, 4))
"""(k, ell, n) of random layers."""


def _run_equivariance(mutation: str | None) -> Result:
    generator = torch.Generator().manual_seed(6)
    must = must_not = 0
    worst, least = 0.0, np.inf
    for k, ell, n in ORDERS:
        layer = EquivariantLinear.random(k, ell, 2, 3, generator)
        faulty = basis(k, ell, n)
        faulty[int(torch.randint(len(faulty), (1,), generator=generator)), 0, n**k // 2] += 0.5

        def broken(x: Tensor, layer: EquivariantLinear = layer, tensors: Tensor = faulty) -> Tensor:
            return torch.einsum("mij,jd,mde->ie", tensors, x, layer.weight)

        def right(x: Tensor, layer: EquivariantLinear = layer, n: int = n) -> Tensor:
            return layer.by_contraction(x, n)

        for _ in range(5):
            x = torch.randn(n**k, 2, generator=generator, dtype=torch.float64)
            order = torch.randperm(n, generator=generator)
            checked = broken if mutation == "a basis element perturbed" else right
            worst = max(worst, _defect(checked, x, order, k, ell))
            # the perturbed entry is moved by a cycle of all nodes
            least = min(least, _defect(broken, x, (torch.arange(n) + 1) % n, k, ell)) if ell else least
            must, must_not = must + 1, must_not + (1 if ell else 0)
    failures = [f"equivariance error {worst:.1e}"] if worst > 1e-12 else []
    failures += [f"a perturbed basis element moves the output by {least:.1e} only"] if least < 1e-6 else []
    return Result(
        must, must_not, worst, tuple(failures), f"One entry of one basis tensor changed: error {least:.0e} or more."
    )


def _defect(layer: Callable[[Tensor], Tensor], x: Tensor, order: Tensor, k: int, ell: int) -> float:
    first, second = layer(permuted(x, order, k)), permuted(layer(x), order, ell)
    return float((first - second).abs().max() / second.abs().max())


def _run_contraction(mutation: str | None) -> Result:
    generator = torch.Generator().manual_seed(7)
    must = must_not = 0
    worst, nearest = 0.0, np.inf
    for k, ell, n in (*ORDERS, (2, 2, 2), (0, 2, 3), (3, 3, 6)):
        layer = EquivariantLinear.random(k, ell, 2, 2, generator)
        x = torch.randn(n**k, 2, generator=generator, dtype=torch.float64)
        expected = layer.by_basis(x, n)
        if mutation == "inversion forgotten":
            undone = torch.einsum("nm,nio->mio", torch.linalg.inv(moebius(k + ell)), layer.weight)
            layer = EquivariantLinear(k, ell, undone, layer.bias)
        out = layer.by_contraction(x, n)
        if mutation == "sum over all tuples left out":
            out = out - _contraction(x, tuple(range(ell + k)), k, n)
        worst = max(worst, float((out - expected).abs().max() / expected.abs().max()))
        must += expected.numel()
        if n >= k + ell:
            # no contraction is another one in disguise
            each = torch.stack([_contraction(x, pattern, k, n).flatten() for pattern in equality_patterns(ell + k)])
            nearest = min(nearest, float(torch.pdist(each).min())) if len(each) > 1 else nearest
            must_not += len(each) * (len(each) - 1) // 2
    failures = [f"contraction and basis differ by {worst:.1e}"] if worst > 1e-12 else []
    failures += [f"two contractions differ by {nearest:.1e} only"] if nearest < 1e-6 else []
    return Result(
        must, must_not, worst, tuple(failures), "Holds for n < k + l too; any two of the contractions differ."
    )


def _contraction(x: Tensor, pattern: tuple[int, ...], k: int, n: int) -> Tensor:
    """(n^l, d) one contraction E^ν x."""
    out = x.new_zeros(*[n] * (len(pattern) - k), x.shape[1])
    add_contraction(out, x.reshape(*[n] * k, x.shape[1]), pattern, torch.eye(x.shape[1], dtype=x.dtype))
    return out.reshape(-1, x.shape[1])


BASIS = Check(
    name="ign-basis",
    statement="L_{k→l} has bell(k+l) basis tensors: 15 for 2→2, 203 for 3→3",
    paper="Section 2, equation of k-IGN",
    run=_run_basis,
    mutations=("two patterns joined", "a pattern twice"),
    verdict="holds under a condition",
)
EQUIVARIANCE = Check(
    name="ign-equivariance",
    statement="every combination of the basis tensors is permutation equivariant",
    paper="Section 2, equation of k-IGN",
    run=_run_equivariance,
    mutations=("a basis element perturbed",),
)
CONTRACTION = Check(
    name="ign-contraction",
    statement="diagonals, sums over axes and broadcasts compute L_{k→l} (beyond the paper: O(n^k) instead of O(n^2k))",
    paper="Table 1, row k-IGN",
    run=_run_contraction,
    mutations=("inversion forgotten", "sum over all tuples left out"),
)

CHECKS = (BASIS, EQUIVARIANCE, CONTRACTION)
