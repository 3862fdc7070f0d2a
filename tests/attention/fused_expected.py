"""What is expected of the fused kernels: ``reference`` in float64, and as budget what plain torch loses in the same precision.

Plain torch is dense masked attention whose matrix products run in that precision.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain

import torch
from fused_cases import DEVICE, OTHER_SIZE, PATTERNS, Case, batch
from torch import Tensor
from torch_geometric.data import Data

from matrix_units import Product
from tuplet.attention import Rule, attend, join, reference
from tuplet.attention.weights import TINY
from tuplet.graphs import GraphBatch, read
from tuplet.patterns import (
    DefinedPairs,
    FusedLines,
    FusedRows,
    LocalNeighbour,
    Neighbour,
    Virtual,
    define,
    fuse,
    virtual_layout,
    virtual_pairs,
)
from tuplet.tokens import Tuples

FOLD = 600
"""Tokens beyond which lines are given to ``reference`` one by one instead of all tokens at once."""


@dataclass(frozen=True)
class Laid:
    """A pattern on a batch, as fused layouts and as defined pairs.

    Args:
        queries, keys: numbers of tokens.
        groups, types: of the pattern.
        fused: one structure of all groups; in the joint form one, or one a group.
        attend: of a group, with some dense attention for defined pairs.
    """

    queries: int
    keys: int
    groups: int
    types: int
    fused: tuple[FusedLines | FusedRows, ...]
    attend: Callable[..., tuple[Tensor, Tensor]]


@cache
def lay_out(name: str, kind: str, n: int, typed: bool, joint: bool) -> Laid:
    """The layouts of a case, shared by all cases on the same graphs."""
    graph = batch(kind, n)
    pattern, queries, keys = PATTERNS[name][0](graph)
    if "virtual" in name:
        virtual = Virtual.make(graph, 3)
        queries, keys = (queries, virtual) if name.startswith("from") else (virtual, keys)
        pairs = virtual_pairs(queries, keys)
        fused = fuse((virtual_layout(queries, keys),), keys.total)
        return Laid(queries.total, keys.total, 1, 1, fused, lambda dense, group, *rest: _on(dense, pairs, *rest))
    fused = pattern.fused(queries, keys, typed, joint)
    assert all(isinstance(group, FusedLines | FusedRows) for group in fused)
    foldable = isinstance(pattern, Neighbour | LocalNeighbour) and queries.nodes is None

    def attend_defined(dense: DenseAttention, group: int, *rest: object) -> tuple[Tensor, Tensor]:
        skip_self = joint and pattern.shared_self and group > 0
        if foldable and queries.total > FOLD:
            return folded(dense, pattern, queries, group, skip_self, *rest)
        return _on(dense, defined(name, kind, n, group, skip_self), *rest)

    return Laid(queries.total, keys.total, pattern.groups, pattern.types, fused, attend_defined)


DenseAttention = Callable[[Tensor, Tensor, Tensor, DefinedPairs, Tensor, Rule], tuple[Tensor, Tensor]]


def _on(dense: DenseAttention, pairs: DefinedPairs, q: Tensor, k: Tensor, v: Tensor, table: Tensor, rule: Rule):
    return dense(q, k, v, pairs, table, rule)


@cache
def defined(name: str, kind: str, n: int, group: int, skip_self: bool) -> DefinedPairs:
    pattern, queries, keys = PATTERNS[name][0](batch(kind, n))
    return define(pattern, queries, keys, group, skip_self)


def folded(dense: DenseAttention, pattern, tuples: Tuples, group: int, skip_self: bool, q, k, v, table, rule: Rule):
    """Attention along one axis with lines as heads: a line of k-tuples is a graph's nodes, under the same pattern of order 1."""
    order, parts = tuples.order, []
    near = isinstance(pattern, Neighbour)
    one = Neighbour(1, pattern.adjacency, pattern.directed, pattern.kinds) if near else LocalNeighbour(1, pattern.kinds)
    for number, n in enumerate(tuples.graph.sizes):
        nodes = Tuples.all(_alone(tuples.graph, number), 1)
        pairs = define(one, nodes, nodes, 0, skip_self)
        span, lines = slice(tuples.ptr[number], tuples.ptr[number + 1]), n ** (order - 1)

        def fold(x: Tensor, span=span, n=n, lines=lines) -> Tensor:
            cube = x[span].reshape(*[n] * order, *x.shape[1:]).movedim(group, 0)
            return cube.reshape(n, lines * x.shape[1], *x.shape[2:])

        def unfold(x: Tensor, n=n) -> Tensor:
            cube = x.reshape(*[n] * order, q.shape[1], *x.shape[2:]).movedim(0, group)
            return cube.reshape(n**order, q.shape[1], *x.shape[2:])

        parts.append([unfold(x) for x in dense(fold(q), fold(k), fold(v), pairs, table.repeat(1, lines), rule)])
    message, lse = (torch.cat(column) for column in zip(*parts, strict=True))
    return message, lse


def _alone(graph: GraphBatch, number: int) -> GraphBatch:
    """One graph of a batch."""
    first, end = graph.ptr[number], graph.ptr[number + 1]
    inside = (graph.row >= first) & (graph.row < end)
    index = torch.stack([graph.row[inside], graph.col[inside]]) - first
    data = Data(edge_index=index, edge_attr=graph.edge_attr[inside], num_nodes=graph.sizes[number])
    return read(data, directed=graph.directed)


def plain(precision: str) -> DenseAttention:
    """Dense masked attention in torch, its matrix products in the given precision, all else in float32."""

    def attend_densely(q, k, v, pairs: DefinedPairs, table, rule: Rule) -> tuple[Tensor, Tensor]:
        mask = torch.zeros(pairs.queries, pairs.keys, dtype=torch.bool, device=q.device)
        kind = torch.zeros(pairs.queries, pairs.keys, dtype=torch.long, device=q.device)
        mask[pairs.query, pairs.key], kind[pairs.query, pairs.key] = True, pairs.type
        dot = Product.apply(q.transpose(0, 1), k.permute(1, 2, 0), precision).float()
        score = torch.log(dot.clamp_min(TINY)) if rule.kernel == "positive" else dot * rule.scale
        entry = table.float()[kind].permute(2, 0, 1)
        score = score + entry if rule.relation == "bias" else score * entry if rule.relation == "scale" else score
        score = score.masked_fill(~mask, -torch.inf)
        empty = ~mask.any(1)[:, None]
        weight = torch.relu(score) if rule.kernel == "relu" else torch.softmax(score.masked_fill(empty, 0), -1) * ~empty
        lse = torch.logsumexp(score.masked_fill(empty, 0), -1).masked_fill(empty[:, 0], -torch.inf).t()
        weight = weight * entry if rule.relation == "reweight" else weight
        return Product.apply(weight, v.transpose(0, 1), precision).transpose(0, 1).to(v.dtype), lse

    return attend_densely


def rule_of(case: Case) -> Rule:
    return Rule(case.kernel, case.relation, 1.0 if case.kernel == "positive" else case.head**-0.5)


def inputs(case: Case, laid: Laid, number: int = 0) -> tuple[list[Tensor], list[Tensor]]:
    """q, k, v and table, rounded to the precision of the case, and the gradients of message and log-sum-exp.

    ReLU has a kink where a score is zero: its queries and keys have exact products, and none but exact zeros is near it.
    Where a query has one key, softmax passes no gradient on and plain torch makes no error: there values have exact products.
    """
    generator = torch.Generator().manual_seed(zlib.crc32(f"{case} {number}".encode()))

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(DEVICE)

    joint = case.softmax == "joint"
    heads = case.heads + (1 if joint else laid.groups)
    width = OTHER_SIZE[case.head] if case.form == "values" else case.head
    q, k = draw(laid.queries, heads, case.head), draw(laid.keys, heads, case.head)
    if case.kernel == "positive":
        q, k = (q / 2).exp(), (k / 2).exp()
    table = draw(*[laid.groups] * joint, laid.types, heads)
    if case.relation in ("scale", "reweight"):
        table = 1 + table / 2
    if case.kernel == "relu":
        q, k = exact(q), exact(k)
        if case.relation == "bias":
            table = table.sign() * (0.1 + 0.3 * torch.sigmoid(table)) * case.head**-0.5 / 4
    v, grad = draw(laid.keys, heads, width), draw(laid.queries, heads, width)
    if case.n == 1:
        v, grad = exact(v), exact(grad)
        table = exact(table) if case.relation == "reweight" else table
    tensors = [x.to(case.dtype) for x in (q, k, v)]
    tensors.append(table.to(torch.float32 if case.precision == "amp" else case.dtype))
    return tensors, [grad.to(case.dtype), draw(laid.queries, heads)]


def exact(x: Tensor) -> Tensor:
    """±1/2 or ±1: sums of products of few of them are exact in every precision."""
    return x.sign() * (1 + (x.abs() > 0.7)) / 2


def formed(tensors: list[Tensor], form: str) -> list[Tensor]:
    """The same numbers, laid out in memory as the case says."""
    q, k, v, table = tensors
    if form == "views":
        k, v = torch.stack([k, v], 1).requires_grad_().unbind(1)
        q = torch.cat([q, q], 2).requires_grad_()[..., : q.shape[2]]
    elif form == "columns":
        q, k, v = (x.transpose(1, 2).contiguous().requires_grad_().transpose(1, 2) for x in (q, k, v))
    else:
        q, k, v = (x.clone().requires_grad_() for x in (q, k, v))
    return [q, k, v, table.clone().requires_grad_()]


NAMES = ("message", "lse", "gradient of q", "gradient of k", "gradient of v", "gradient of table")


def with_gradients(run: Callable, tensors: list[Tensor], grads: list[Tensor]) -> dict[str, Tensor]:
    """Message, log-sum-exp (where there is one) and all gradients, through both; gradients of what plays no part are zero."""
    message, lse = run(*tensors)
    outputs, weights = [message], [grads[0].to(message.dtype)]
    if lse is not None:
        finite = torch.isfinite(lse)
        outputs.append(torch.where(finite, lse, 0))
        weights.append(torch.where(finite, grads[1], 0).to(lse.dtype))
    outputs, weights = zip(*[(o, w) for o, w in zip(outputs, weights, strict=True) if o.requires_grad], strict=True)
    found = torch.autograd.grad(outputs, tensors, weights, allow_unused=True)
    found = [torch.zeros_like(x) if g is None else g for g, x in zip(found, tensors, strict=True)]
    values = dict(zip(NAMES, [message, lse, *found], strict=True))
    return {name: value.detach() for name, value in values.items() if value is not None}


def run_fused(case: Case, laid: Laid) -> Callable:
    """The attention of a case by kernels; in the joint form without a log-sum-exp, which has gone into the shares."""

    def run(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> tuple[Tensor, Tensor | None]:
        rule = rule_of(case)
        if case.softmax == "joint" and len(laid.fused) == 1:
            return attend(q, k, v, laid.fused[0], table.flatten(0, 1), rule)[0], None
        if case.softmax == "joint":
            parts = zip(laid.fused, table, strict=True)
            return join([attend(q, k, v, group, own, rule) for group, own in parts], rule), None
        (group,) = laid.fused
        return attend(q, k, v, group, table, rule)

    return run


def run_dense(case: Case, laid: Laid, dense: DenseAttention) -> Callable:
    """The same, group by group, by an attention for defined pairs."""

    def run(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> tuple[Tensor, Tensor | None]:
        rule, groups, heads = rule_of(case), range(laid.groups), range(q.shape[1])
        if case.softmax == "joint":
            return join([laid.attend(dense, group, q, k, v, table[group], rule) for group in groups], rule), None
        own = [list(heads[group :: laid.groups]) for group in groups]
        parts = [laid.attend(dense, g, q[:, h], k[:, h], v[:, h], table[:, h], rule) for g, h in enumerate(own)]
        place = torch.tensor(list(chain(*own))).argsort()
        message, lse = (torch.cat(column, 1)[:, place] for column in zip(*parts, strict=True))
        return message, lse

    return run


def laid_for(case: Case) -> Laid:
    return lay_out(case.pattern, case.graphs, case.n, case.relation != "none", case.softmax == "joint")


def fused_result(case: Case) -> dict[str, Tensor]:
    """What the kernels give: the one part of a case that is compiled."""
    laid = laid_for(case)
    tensors, grads = inputs(case, laid)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if case.precision == "tf32" else "highest")
    try:
        return with_gradients(run_fused(case, laid), formed(tensors, case.form), grads)
    finally:
        torch.set_float32_matmul_precision(before)


def compile_kernels(case: Case) -> None:
    """Leave what a case needs in Triton's cache; what goes wrong is reported by the case itself."""
    with suppress(Exception):
        fused_result(case)


def budgets(case: Case) -> tuple[dict[str, Tensor], dict[str, float]]:
    """What ``reference`` gives in float64, and how far the kernels may be from it.

    Twice the error of plain torch, and 2 ulp of the largest output, for each output and gradient. With few tokens the error
    of one run is a matter of luck: the budget is then the largest of several runs with other numbers.
    """
    laid = laid_for(case)
    right, limits = {}, dict.fromkeys(NAMES, 0.0)
    for number in reversed(range(8 if laid.queries < 200 else 3)):
        tensors, grads = inputs(case, laid, number)
        wide = [x.double().requires_grad_() for x in tensors]
        right = with_gradients(run_dense(case, laid, reference.attend), wide, [g.double() for g in grads])
        given = [x.clone().requires_grad_() for x in tensors]
        rough = with_gradients(run_dense(case, laid, plain(case.precision)), given, grads)
        for name, value in right.items():
            largest = float(_finite(value).abs().max()) if value.numel() else 0.0
            limits[name] = max(limits[name], 2 * error(rough[name], value) + 2 * case.ulp * largest)
    return right, limits


def _finite(x: Tensor) -> Tensor:
    return torch.where(torch.isneginf(x), 0, x)


def error(value: Tensor, exact: Tensor) -> float:
    """Largest difference; infinite for a number that is none, and where only one of the two is -inf."""
    if value.numel() == 0:
        return 0.0
    if value.shape != exact.shape or not torch.equal(torch.isneginf(value), torch.isneginf(exact)):
        return float("inf")
    found = float((_finite(value).double() - _finite(exact)).abs().max())
    return found if found == found else float("inf")
