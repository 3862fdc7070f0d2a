"""The attention operator itself: gradients by finite differences, blocks and chunks, empty rows, precision."""

from contextlib import nullcontext

import pytest
import torch
from torch.autograd import gradcheck

from tuplet.attention import Rule, attend, bags, listing, rows
from tuplet.attention.compiled import KERNELS
from tuplet.attention.torch_backend import attend as torch_attend
from tuplet.graphs import read
from tuplet.native import load, set_aside
from tuplet.patterns import (
    CrossNeighbour,
    Dense,
    LocalNeighbour,
    Neighbour,
    SimplexDense,
    SimplexNeighbour,
    Virtual,
    define,
    structure,
    virtual_layout,
    virtual_pairs,
)
from tuplet.tokens import Simplices, Tuples, connected_tuples
from tuplet.topology import clique_complex

RULES = [
    Rule(kernel, relation, 0.5)
    for kernel in ("softmax", "relu", "positive")
    for relation in ("none", "bias", "scale", "reweight")
]
GRAPHS = ["CF", "A_", "A?"]  # the second has an isolated node in its batch neighbour; the third has no edge at all


def cases():
    """(name, layout, definition, number of types) of every pattern on a small ragged batch."""
    graph = read(GRAPHS)
    two, one = Tuples.all(graph, 2), Tuples.all(graph, 1)
    sample = Tuples.sampled(connected_tuples(graph, 2), 2)
    patterns = [
        ("dense", Dense((1, 1)), one, one, 0, False),
        ("basis", Dense((1, 1), basis=True), one, one, 0, False),
        ("neighbour", Neighbour(2), two, two, 1, False),
        ("neighbour+ without self", Neighbour(2, adjacency=True), two, two, 0, True),
        ("local", LocalNeighbour(2), two, two, 1, False),
        ("sampled local", LocalNeighbour(2), sample, sample, 0, False),
        ("sampled neighbour+", Neighbour(2, adjacency=True), sample, sample, 1, False),
        ("cross up", CrossNeighbour(1, 2), one, two, 0, False),
        ("cross down", CrossNeighbour(2, 1), two, one, 1, False),
    ]
    triangles = read(["Bw", "A_", "A?"])
    simplices = Simplices.take(triangles, clique_complex(triangles, 2), 0, 1)
    clique = read(["E~~w", "@"])
    solid = Simplices.take(clique, clique_complex(clique, 4), 3, 3)
    patterns.append(("tetrahedra of K6", SimplexNeighbour(joint=True), solid, solid, 0, False))
    for name, pattern in (
        ("simplices", SimplexDense()),
        ("simplices within dimensions", SimplexDense(inter=False)),
        ("signed simplices", SimplexDense(signed=True)),
        ("simplex neighbours", SimplexNeighbour(joint=True)),
        ("upper adjacent simplices", SimplexNeighbour(joint=False)),
    ):
        patterns.append((name, pattern, simplices, simplices, pattern.groups - 1, False))
    for name, pattern, queries, keys, group, skip_self in patterns:
        for typed in (True, False):
            layout = pattern.layout(queries, keys, group, typed, skip_self).planned()
            yield (
                f"{name}{'' if typed else ' untyped'}",
                layout,
                define(pattern, queries, keys, group, skip_self),
                pattern.types if typed else 0,
            )
    virtual = Virtual.make(graph, 2)
    yield "from virtual", virtual_layout(one, virtual).planned(), virtual_pairs(one, virtual), 1
    yield "to virtual", virtual_layout(virtual, one).planned(), virtual_pairs(virtual, one), 1
    virtual = Virtual.make(triangles, 2)
    yield "simplices to virtual", virtual_layout(virtual, simplices).planned(), virtual_pairs(virtual, simplices), 1


CASES = list(cases())


def inputs(pairs, types, kernel, heads=2, width=3, values=2):
    generator = torch.Generator().manual_seed(0)
    shapes = [
        (pairs.queries, heads, width),
        (pairs.keys, heads, width),
        (pairs.keys, heads, values),
        (max(types, 1), heads),
    ]
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    if kernel == "positive":
        tensors[0], tensors[1] = tensors[0].exp(), tensors[1].exp()
    return [tensor.requires_grad_() for tensor in tensors]


def serves(case, rule):
    """A layout without types serves attention without a relation."""
    return case[3] > 0 or rule.relation == "none"


@pytest.mark.parametrize(
    "case, rule",
    [
        pytest.param(case, rule, id=f"{case[0]}-{rule.kernel}-{rule.relation}")
        for case in CASES
        for rule in RULES
        if serves(case, rule)
    ],
)
def test_operator_is_the_definition_and_its_gradients_are_right(case, rule):
    _, layout, pairs, types = case
    q, k, v, table = inputs(pairs, types, rule.kernel)
    for value, expected in zip(attend(q, k, v, layout, table, rule), attend(q, k, v, pairs, table, rule), strict=True):
        if rule.normalised or value.dim() == 3:
            torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)

    def messages_and_masses(q, k, v, table):
        message, lse = attend(q, k, v, layout, table, rule)
        return (message, torch.where(torch.isinf(lse), 0, lse)) if rule.normalised else message

    assert gradcheck(messages_and_masses, (q, k, v, table), atol=1e-6)


def may_be_rows(layout):
    return not isinstance(layout, structure.Lines) or (layout.relation is None and not layout.skip_self)


@pytest.mark.skipif(load(torch.empty(0)) is None, reason="there is no C compiler here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "case, rule",
    [
        pytest.param(case, rule, id=f"{case[0]}-{rule.kernel}-{rule.relation}")
        for case in CASES
        for rule in RULES
        if serves(case, rule) and may_be_rows(case[1]) and rule.kernel in KERNELS
    ],
)
def test_compiled_rows_are_those_of_torch(case, rule, dtype):
    """With compiled functions, without, and forward with them alone: messages, log-sum-exps and all gradients. Heads and widths are such
    that vectors are read number by number, four heads at once, or four and then two."""
    _, layout, pairs, types = case
    keyed, tolerance = listing.Keyed.apart((layout,), pairs.keys), 1e-5 if dtype == torch.float32 else 1e-13
    for heads, width, values in ((4, 7, 2), (4, 16, 16), (6, 8, 24)):
        drawn = inputs(pairs, types, rule.kernel, heads, width, values)
        given = [x.detach().to(dtype).requires_grad_() for x in drawn]
        assert listing.are_rows(layout, given[0], rule.kernel)
        results = []
        for forward, backward in ((nullcontext, nullcontext), (nullcontext, set_aside), (set_aside, set_aside)):
            with forward():
                message, lse = rows.RowAttention.apply(*given, keyed, rule)
                masses = torch.where(torch.isinf(lse), 0, lse).sin().sum() if rule.normalised else 0
                loss = message.square().sum() * 2 / values + masses
            with backward():
                results.append([message, lse, *torch.autograd.grad(loss, given, materialize_grads=True)])
        for result in results[1:]:
            torch.testing.assert_close(results[0], result, rtol=tolerance, atol=tolerance)


@pytest.mark.skipif(load(torch.empty(0)) is None, reason="there is no C compiler here")
def test_sums_over_a_long_row_lose_no_digits():
    """A virtual token that sees very many tokens, and is seen by them; beside it an empty row, and one that fills two portions."""
    generator, lengths, rule = torch.Generator().manual_seed(0), (120_000, 0, 1024), Rule("softmax", "none", 0.25)
    query = torch.arange(3).repeat_interleave(torch.tensor(lengths))
    key = torch.cat([torch.arange(length) for length in lengths])
    q, k, v = (torch.randn(rows, 4, 16, generator=generator) for rows in (3, max(lengths), max(lengths)))
    found = {}
    for dtype in (torch.float32, torch.float64):
        given = [x.to(dtype).requires_grad_() for x in (q, k, v)]
        table, keyed = torch.zeros(1, 4, dtype=dtype), listing.Keyed.apart((structure.Rows.of(query, key, 3),), len(k))
        message, lse = rows.RowAttention.apply(*given, table, keyed, rule)
        loss = message.sin().sum() + lse[[0, 2]].sum()
        found[dtype] = [message.detach(), lse[[0, 2]].detach(), *torch.autograd.grad(loss, given)]
    assert not found[torch.float32][0][1].any()
    for value, exact in zip(found[torch.float32], found[torch.float64], strict=True):
        assert float((value - exact).abs().max()) <= 2e-6 * float(exact.abs().max())


@pytest.mark.skipif(load(torch.empty(0)) is None, reason="there is no C compiler here")
@pytest.mark.parametrize("case", [case for case in CASES if may_be_rows(case[1])], ids=lambda case: case[0])
def test_pairs_are_listed_and_transposed_alike(case):
    """By compiled functions and by torch, of one group and of two that heads share or all see; of all queries and of some."""
    _, layout, pairs, types = case
    queries, keys = pairs.queries, pairs.keys
    lists = structure.Rows.of(torch.arange(queries).repeat(2), torch.arange(2 * queries) % max(keys, 1), queries)
    both = (layout, lists) if keys else (layout, layout)
    for keyed in (
        listing.Keyed.apart((layout,), keys),
        listing.Keyed.apart(both, keys),
        listing.Keyed.joined(both, [keys, keys], [types + 1, 1]),
    ):
        reaches = [listing._reach(group, queries) for group in keyed.groups]
        for span in (slice(0, queries), slice(1, max(1, queries - 1))):
            found = []
            for way in (nullcontext, set_aside):
                with way():
                    one = listing._bags(reaches, 3, span, keyed)
                    turned = one.transposed(keyed.keys)
                    found.append(
                        [one.offsets, one.row, one.column, one.kind, turned.offsets, turned.column, turned.pair]
                    )
            assert len(found[0][0]) == 3 * (span.stop - span.start) + 1
            torch.testing.assert_close(*found, rtol=0, atol=0)
            if keyed.is_alike:
                once = listing._bags(reaches, 1, span, keyed)
                assert 3 * len(once.row) == len(one.row)
                once = once.apart(3)
                torch.testing.assert_close([once.offsets, once.row, once.column, once.kind], found[0][:4])
            wide = bags.Bags(3, *(x.long() for x in found[0][:4]))  # as where there are more than 2^31
            long = wide.transposed(keyed.keys)
            torch.testing.assert_close([long.offsets, long.column, long.pair], [x.long() for x in found[0][4:]])


@pytest.mark.skipif(load(torch.empty(0)) is None, reason="there is no C compiler here")
@pytest.mark.parametrize(
    "rowptr, kinds", [([0, 2, 9], 3), ([0, 2, -1], 3), ([0, 1, 3], 2)], ids=["beyond", "below", "types"]
)
def test_rows_that_contradict_themselves_are_not_read_beyond(rowptr, kinds):
    lists = structure.Rows(torch.tensor(rowptr), torch.tensor([0, 1, 0]), torch.zeros(kinds, dtype=torch.int8))
    given = [torch.randn(2, 2, 4) for _ in range(3)] + [torch.randn(1, 2)]
    with pytest.raises((IndexError, RuntimeError)):
        rows.RowAttention.apply(*given, listing.Keyed.apart((lists,), 2), Rule("softmax", "bias", 1.0))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda q, k, v, table: (q.double(), k, v, table),
        lambda q, k, v, table: (q[:3], k, v, table),
        lambda q, k, v, table: (q, k[:, :1], v[:, :1], table),
        lambda q, k, v, table: (q, k[:2], v[:2], table),
        lambda q, k, v, table: (q, k, v[:2], table),
        lambda q, k, v, table: (q, k[..., :2], v, table),
        lambda q, k, v, table: (q, k, v, table[:1]),
    ],
    ids=["another type", "few queries", "few heads", "few keys", "few values", "narrow keys", "few types"],
)
def test_what_does_not_fit_is_refused_and_not_read_beyond(spoil):
    lists = structure.Rows.of(torch.arange(8).repeat(3), torch.arange(24) % 8, 8, torch.arange(24) % 3)
    given = torch.ones(8, 4, 8), torch.ones(8, 4, 8), torch.ones(8, 4, 8), torch.ones(3, 4)
    with pytest.raises((RuntimeError, IndexError)):
        rows.RowAttention.apply(*spoil(*given), listing.Keyed.apart((lists,), 8), Rule("softmax", "bias", 1.0))


def test_compiled_exponentials_are_exact_from_zero_to_where_they_vanish():
    """Rows of two pairs with the scores 0 and x: the second weight is e^x / (1 + e^x)."""
    x = torch.cat([-torch.logspace(-8, 2, 4001), torch.tensor([0.0, -86.9, -87.1, -200.0])])
    q, k = x.view(-1, 1, 1), torch.tensor([0.0, 1.0]).view(2, 1, 1)
    lists = structure.Rows(2 * torch.arange(len(x) + 1), torch.tensor([0, 1]).repeat(len(x)), torch.empty(0).long())
    keyed = listing.Keyed.apart((lists,), 2)
    weight = rows.RowAttention.apply(q, k, k, torch.zeros(1, 1), keyed, Rule("softmax", "none", 1.0))[0].flatten()
    torch.testing.assert_close(weight.double(), x.double().sigmoid(), rtol=4e-7, atol=1e-37)


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_layouts_hold_the_defined_pairs(case):
    _, layout, pairs, types = case
    keep = slice(None) if types else slice(0, 2)
    laid_out = sorted(zip(*[part.tolist() for part in layout.pairs()[keep]], strict=True))
    defined = sorted(zip(*[part.tolist() for part in pairs.pairs()[keep]], strict=True))
    assert laid_out == defined


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.kernel in KERNELS], ids=str)
def test_rows_in_portions_are_the_same(rule, monkeypatch):
    """Where pairs are too many for one portion, nothing is kept for the way back."""
    most = 0
    for (name, layout, pairs, types), (_, whole, _, _) in zip(cases(), CASES, strict=True):
        if not serves((name, layout, pairs, types), rule) or not may_be_rows(layout):
            continue
        results = []
        for each, at_once in ((whole, listing.PAIRS_AT_ONCE), (layout, 3)):
            with monkeypatch.context() as patch:
                for few in ("PAIRS_COMPILED", "PAIRS_A_ROW") if at_once == 3 else ():
                    patch.setattr(listing, few, 0)
                patch.setattr(listing, "PAIRS_AT_ONCE", at_once)
                given, keyed = inputs(pairs, types, rule.kernel), listing.Keyed.apart((each,), pairs.keys)
                most = max(most, len(list(listing.portions(keyed, given[0]))))
                message, _ = rows.RowAttention.apply(*given, keyed, rule)
                grads = torch.autograd.grad(message.square().sum(), given, materialize_grads=True)
            results.append([message.detach(), *grads])
        torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12, msg=name)
    assert most > 4


@pytest.mark.parametrize(
    "rule", [Rule("softmax", "bias", 0.5), Rule("positive", "none", 1.0), Rule("relu", "none", 0.5)], ids=str
)
def test_tiny_blocks_and_chunks_change_nothing(rule, monkeypatch):
    """Work cut into many tiles gives what one tile gives."""
    monkeypatch.setattr(structure, "block_size", lambda device: 64)
    monkeypatch.setattr("tuplet.attention.lines.block_size", lambda device: 64)
    monkeypatch.setattr("tuplet.attention.listing.PAIRS_AT_ONCE", 3)
    monkeypatch.setattr("tuplet.attention.listing.PAIRS_A_ROW", 0)
    for (name, layout, pairs, types), (_, whole, _, _) in zip(cases(), CASES, strict=True):
        if not serves((name, layout, pairs, types), rule):
            continue
        results = []
        for each in (layout, whole):
            tensors = inputs(pairs, types, rule.kernel)
            message, _ = attend(*tensors[:3], each, tensors[3], rule)
            message.square().sum().backward()
            results.append([message.detach(), *(tensor.grad for tensor in tensors)])
        for cut, uncut in zip(*results, strict=True):
            torch.testing.assert_close(cut, uncut, rtol=1e-12, atol=1e-12, msg=name)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.kernel}-{rule.relation}")
def test_no_nan_in_any_precision(rule, dtype):
    """Huge scores, and queries without keys, give finite messages and gradients; an empty row gives zero."""
    for name, layout, pairs, types in (case for case in CASES if serves(case, rule)):
        factor = 20 if rule.normalised else 2  # a sum of large products leaves float16's range whoever adds it up
        tensors = inputs(pairs, types, rule.kernel)
        tensors = [(tensor.detach() * factor).clamp_max(200).to(dtype).requires_grad_() for tensor in tensors]
        message, lse = attend(*tensors[:3], layout, tensors[3], rule)
        assert message.dtype == dtype
        message.float().sum().backward()
        for tensor in (message, *(each.grad for each in tensors)):
            assert tensor is None or torch.isfinite(tensor).all(), name
        empty = torch.bincount(pairs.query, minlength=pairs.queries) == 0
        assert not message[empty].any()
        if rule.normalised:
            assert torch.isneginf(lse[empty]).all()
            assert torch.isfinite(lse[~empty]).all()


def test_low_precision_stays_near_float64():
    _, layout, pairs, types = CASES[0]
    exact = inputs(pairs, types, "softmax")
    rule = Rule("softmax", "none", 0.5)
    expected = torch_attend(*exact[:3], layout, exact[3], rule)[0]
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)):
        low = [tensor.detach().to(dtype) for tensor in exact]
        error = (torch_attend(*low[:3], layout, low[3], rule)[0].double() - expected).abs().max()
        assert error < tolerance


def test_operator_registration():
    """The schema, fake kernel and autograd registration that torch.compile relies on."""
    for _, layout, pairs, types in CASES[:6]:
        q, k, v, table = inputs(pairs, types, "softmax")
        tensors, integers = layout.pack()
        arguments = (q, k, v, table, tensors, integers, "softmax", "none", 0.5)
        results = torch.library.opcheck(torch.ops.tuplet.attend.default, arguments, raise_exception=True)
        assert set(results.values()) == {"SUCCESS"}
