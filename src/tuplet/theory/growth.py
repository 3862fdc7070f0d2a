"""Table 1, column "complexity": growth exponents measured by counting the arithmetic that one attention really executes.

A dispatch mode counts 2·m·n·k operations for a matrix product and one operation a number for everything else that touches
floating-point numbers; see ``Arithmetic``. The functions of the torch backend are called directly, because inside its custom operator
no mode sees the inner operations. An exponent is log2(count(2n) / count(n)), or the same in d, at the sizes below, so the check is
deterministic; it is at most 0.15 off theory. Exponents of n fall short by the vectors of n^k tokens that are gathered once beside
n^(k+1) or n^2k scores, a share of about 1/n; exponents of d by the softmax, a few operations a score whatever d is, and for kernelised
attention by d·n^k beside d²·n^k. All k groups of Ngbh and LN run at full width, which is the factor k of the table; feature maps φ,
n^k·d·m, are applied before attention and not counted.

Rows of the simplicial transformers grow with the number S of simplices. They run on circulant graphs C_n(1, 2), in which S_0 = n,
S_1 = 2n, S_2 = n and every simplex has a bounded number of neighbours; so S doubles with n. Local neighbours run on cycles
and on circulant graphs, to measure the exponent of the mean degree D too.

k-IGN costs n^2k if its basis tensors are applied one after the other, as the table assumes. By contraction
(``EquivariantLinear.by_contraction``) it costs n^k, less than neighbour attention.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch_geometric.data import Data

from tuplet.attention import Rule, lines, rows
from tuplet.attention.listing import Keyed
from tuplet.graphs import GraphBatch, read
from tuplet.native import set_aside
from tuplet.patterns import (
    Dense,
    Lines,
    LocalNeighbour,
    Neighbour,
    Pattern,
    SimplexDense,
    SimplexNeighbour,
    Structure,
    Virtual,
    virtual_layout,
)
from tuplet.theory.check import Check, Result
from tuplet.theory.ign import EquivariantLinear, pattern_of_pairs
from tuplet.tokens import Simplices, Tokens, Tuples
from tuplet.topology import clique_complex

TOLERANCE = 0.15
_PRODUCTS = {"mm", "bmm", "addmm", "baddbmm"}
_BAGS = {"_embedding_bag", "_embedding_bag_forward_only"}
_GATHERS = {"index_select", "index", "gather", "embedding"}
_SCATTERS = {"index_add_", "index_add", "index_copy_", "index_copy", "scatter_reduce_", "scatter_add_", "index_put_"}
_MADE = {"zeros", "ones", "full", "empty", "new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "full_like"}
_MADE |= {"empty_like", "fill_", "zero_", "empty_strided", "new_empty_strided", "scalar_tensor", "lift_fresh", "detach"}


class Arithmetic(TorchDispatchMode):
    """Counts operations on floating-point numbers: ``with Arithmetic() as work: ..``, then ``work.count``.

    A matrix product (m, k) @ (k, n) is 2·m·n·k operations, a sparse one with P entries 2·P·k. A gather counts what it takes out, a
    scatter what it puts in, any other operation its largest tensor; views and constants are free, and so is work on integers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        view = any(ret.alias_info is not None and not ret.alias_info.is_write for ret in func._schema.returns)
        if view or name in _MADE:
            return out
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        dense = [tensor for tensor in (*given, *made) if tensor.layout == torch.strided]
        floating = [tensor for tensor in dense if tensor.is_floating_point()]
        if not floating:
            return out
        if name in _PRODUCTS:
            self.count += 2 * made[0].numel() * given[-2].shape[-1]
        elif name == "sparse_sampled_addmm":
            self.count += 2 * given[0].values().numel() * given[1].shape[1]
        elif name in _BAGS:
            self.count += 2 * given[1].numel() * given[0].shape[1]
        elif name in _GATHERS:
            self.count += made[0].numel()
        elif name in _SCATTERS:
            self.count += given[-1].numel()
        else:
            self.count += max(tensor.numel() for tensor in floating)
        return out


def circulant(n: int, jumps: tuple[int, ...]) -> GraphBatch:
    """The circulant graph C_n(jumps): every node is joined with those at the given distances on a circle."""
    node = torch.arange(n)
    pairs = [torch.stack([node, (node + sign * jump) % n]) for jump in jumps for sign in (1, -1)]
    return read(Data(edge_index=torch.cat(pairs, dim=1), num_nodes=n))


def _forward(structures: list[Structure], queries: Tokens, keys: Tokens, d: int, rule: Rule, types: int = 1) -> int:
    """Operations of one attention with d-wide queries, keys and values over some groups of keys."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((queries.total, 1, d), (keys.total, 1, d), (keys.total, 1, d), (types, 1))
    q, k, v, table = (torch.rand(shape, generator=generator, dtype=torch.float64) + 0.1 for shape in shapes)
    with Arithmetic() as work, set_aside():
        for structure in structures:
            if isinstance(structure, Lines):
                lines.forward(q, k, v, table, structure, rule)
            else:
                rows.forward(q, k, v, table, Keyed.apart((structure,), keys.total), rule)
    return work.count


def _pattern(pattern: Pattern[Any], tokens: Tokens, d: int, kernel: str = "softmax", relation: str = "none") -> int:
    typed = relation != "none"
    structures = [pattern.layout(tokens, tokens, group, typed).planned() for group in range(pattern.groups)]
    return _forward(structures, tokens, tokens, d, Rule(kernel, relation, d**-0.5), pattern.types)


def _virtual(tokens: Tokens, d: int) -> int:
    """The virtual token reads all tokens, and all tokens read it."""
    virtual, rule = Virtual.make(tokens.graph, 1), Rule("softmax", "none", d**-0.5)
    up = _forward([virtual_layout(virtual, tokens).planned()], virtual, tokens, d, rule)
    return up + _forward([virtual_layout(tokens, virtual).planned()], tokens, virtual, d, rule)


def _tuples(k: int, n: int, jumps: tuple[int, ...] = (1,)) -> Tuples:
    return Tuples.all(circulant(n, jumps), k)


def _simplices(low: int, high: int, n: int, jumps: tuple[int, ...] = (1, 2)) -> Simplices:
    graph = circulant(n, jumps)
    return Simplices.take(graph, clique_complex(graph, high + 1), low, high)


def dense(k: int, n: int, d: int) -> int:
    return _pattern(Dense((k, k)), _tuples(k, n), d)


def kernelised(k: int, n: int, d: int) -> int:
    return _pattern(Dense((k, k)), _tuples(k, n), d, "positive")


def neighbour(k: int, n: int, d: int) -> int:
    return _pattern(Neighbour(k), _tuples(k, n), d)


def local_neighbour(k: int, n: int, d: int) -> int:
    return _pattern(LocalNeighbour(k), _tuples(k, n), d)


def virtual_tuple(k: int, n: int, d: int) -> int:
    return _virtual(_tuples(k, n), d)


def simplices(low: int, high: int, n: int, d: int) -> int:
    return _pattern(SimplexDense(), _simplices(low, high, n), d, relation="bias")


def simplex_neighbour(low: int, high: int, n: int, d: int) -> int:
    return _pattern(SimplexNeighbour(joint=True), _simplices(low, high, n), d)


def virtual_simplex(low: int, high: int, n: int, d: int) -> int:
    return _virtual(_simplices(low, high, n), d)


def equivariant(k: int, n: int, d: int, contracted: bool) -> int:
    """A k-IGN layer by contraction, or basis tensor after basis tensor."""
    generator = torch.Generator().manual_seed(0)
    layer = EquivariantLinear.random(k, k, d, d, generator)
    x = torch.rand(n**k, d, generator=generator, dtype=torch.float64)
    if not contracted:
        pattern_of_pairs(k, k, n)  # made once, outside of what is counted
    with Arithmetic() as work:
        layer.by_contraction(x, n) if contracted else layer.by_basis(x, n)
    return work.count


@dataclass(frozen=True)
class Row:
    """A row of Table 1 for one order: the work at a size and a width, and the exponents that the table gives.

    Args:
        name: the model.
        work: (n, d) to a count.
        n, d: where growth is measured: from n to 2n at width d, and from d to 2d at size n.
        in_n: exponent of n (of S for simplices).
        in_d: exponent of d.
    """

    name: str
    work: Callable[[int, int], int]
    n: int
    d: int
    in_n: int
    in_d: int = 1


def tuple_rows() -> list[Row]:
    """The rows A_k for k = 1, 2, 3. With indices as input, A_k is the same attention on k more columns."""
    table = []
    for k, all_pairs, lines_, tokens in ((1, 128, 128, 256), (2, 12, 32, 32), (3, 5, 12, 12)):
        table += [
            Row(f"A{k}", partial(dense, k), all_pairs, 16, 2 * k),
            Row(f"A{k}-Linear", partial(kernelised, k), tokens, 64, k, 2),
            Row(f"A{k}^Ngbh", partial(neighbour, k), lines_, 16, k + 1),
            Row(f"A{k}^LN", partial(local_neighbour, k), tokens, 16, k),
            Row(f"A{k}^VT", partial(virtual_tuple, k), tokens, 16, k),
        ]
    return table


def simplex_rows() -> list[Row]:
    """The rows AS."""
    table = [Row(f"AS{k}", partial(simplices, k, k), 48, 16, 2) for k in (1, 2)]
    for high, n in ((1, 32), (2, 24)):
        table += [
            Row(f"AS0:{high}", partial(simplices, 0, high), n, 16, 2),
            Row(f"AS0:{high}^SN", partial(simplex_neighbour, 0, high), n, 16, 1),
            Row(f"AS0:{high}^VS", partial(virtual_simplex, 0, high), n, 16, 1),
        ]
    return table


def _exponents(row: Row) -> tuple[float, float]:
    base = row.work(row.n, row.d)
    return math.log2(row.work(2 * row.n, row.d) / base), math.log2(row.work(row.n, 2 * row.d) / base)


def _run_rows(table: list[Row], mutation: str | None) -> Result:
    measured = [_exponents(row) for row in table]
    if mutation == "the next row's theory":
        theory = [(other.in_n, other.in_d) for other in [*table[1:], table[0]]]
    else:
        theory = [(row.in_n, row.in_d) for row in table]
    failures, off = [], 0.0
    for row, found, claimed in zip(table, measured, theory, strict=True):
        for letter, exponent, expected in zip("nd", found, claimed, strict=True):
            off = max(off, abs(exponent - expected))
            if abs(exponent - expected) > TOLERANCE:
                failures.append(f"{row.name}: {letter}^{exponent:.2f} instead of {letter}^{expected:g}")
    must_not = 0
    for row, found in zip(table, measured, strict=True):
        for wrong in {other.in_n for other in table} - {row.in_n}:
            must_not += 1
            if abs(found[0] - wrong) <= TOLERANCE:
                failures.append(f"{row.name}: n^{found[0]:.2f} would pass for n^{wrong:g} too")
    listed = ", ".join(f"{row.name} {n:.2f}/{d:.2f}" for row, (n, d) in zip(table, measured, strict=True))
    return Result(2 * len(table), must_not, off, tuple(failures), f"Exponents of n/d: {listed}.")


def _run_tuples(mutation: str | None) -> Result:
    result = _run_rows(tuple_rows(), mutation)
    pairs = [tuple(_tuples(k, n, jumps) for jumps in ((1, 2), (1, 2, 3, 4))) for k, n in ((1, 128), (2, 16))]
    return _with_degrees(result, "LN in D", [(LocalNeighbour(few.order), few, many) for few, many in pairs])


def _run_simplices(mutation: str | None) -> Result:
    result = _run_rows(simplex_rows(), mutation)
    pairs = [tuple(_simplices(0, high, 32, jumps) for jumps in ((1, 2), (1, 2, 3, 4))) for high in (1, 2)]
    return _with_degrees(result, "SN in S·D_S", [(SimplexNeighbour(joint=True), few, many) for few, many in pairs])


def _with_degrees(result: Result, name: str, cases: list[tuple[Pattern[Any], Any, Any]]) -> Result:
    """The result, and the growth of a sparse attention with the pairs that denser graphs give it at the same n."""
    found = []
    for pattern, few, many in cases:
        work = _pattern(pattern, many, 16) / _pattern(pattern, few, 16)
        found.append(math.log(work) / math.log(pattern.count_pairs(many, many) / pattern.count_pairs(few, few)))
    failures = [f"{name}: exponent {exponent:.2f} instead of 1" for exponent in found if abs(exponent - 1) > TOLERANCE]
    remark = f"{result.remark} {name}: {', '.join(f'{exponent:.2f}' for exponent in found)}."
    return Result(result.must + len(found), result.must_not, result.error, (*result.failures, *failures), remark)


def _run_ign(mutation: str | None) -> Result:
    must = must_not = 0
    off, failures, listed = 0.0, [], []
    for k, naive_n, n in ((1, 64, 64), (2, 8, 32), (3, 3, 32)):
        sizes = {"basis": (naive_n, 2 * k), "contraction": (n, k)}
        for way, (size, expected) in sizes.items():
            contracted = way == "contraction" and mutation != "contraction by the basis"
            if not contracted:
                size = naive_n
            counts = [equivariant(k, size * factor, 2, contracted) for factor in (1, 2)]
            exponent = math.log2(counts[1] / counts[0])
            listed.append(f"{exponent:.2f} (k={k}, {way})")
            off, must = max(off, abs(exponent - expected)), must + 1
            if abs(exponent - expected) > TOLERANCE:
                failures.append(f"k={k}, {way}: n^{exponent:.2f} instead of n^{expected}")
            other = 3 * k - expected
            must_not += 1
            if abs(exponent - other) <= TOLERANCE:
                failures.append(f"k={k}, {way}: grows like the other way, n^{exponent:.2f}")
    remark = f"n^2k is the cost of the basis tensors one by one; by contraction a layer costs n^k, less than Ngbh: {', '.join(listed)}."
    return Result(must, must_not, off, tuple(failures), remark)


TUPLES = Check(
    name="growth-tuples",
    statement="A_k costs n^2k d, kernelised n^k d², Ngbh n^(k+1) k d, LN n^k k D d, VT n^k d",
    paper="Table 1, rows A_k",
    run=_run_tuples,
    mutations=("the next row's theory",),
)
SIMPLICES = Check(
    name="growth-simplices",
    statement="AS costs S² d, SN costs S D_S d, VS costs S d",
    paper="Table 1, rows AS",
    run=_run_simplices,
    mutations=("the next row's theory",),
)
IGN = Check(
    name="growth-ign",
    statement="a k-IGN layer costs n^2k d, as much as A_k and more than neighbour attention",
    paper="Table 1, row k-IGN; sections 3 and 4.2",
    run=_run_ign,
    mutations=("contraction by the basis",),
    verdict="holds under a condition",
)
CHECKS = (TUPLES, SIMPLICES, IGN)
