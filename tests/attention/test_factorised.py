"""Kernelised attention over lines by fused kernels, in O(T), against ``reference`` in float64 and the ``torch`` backend."""

from dataclasses import dataclass, replace

import pytest
import torch
from fused_cases import DEVICE, GPU
from torch_geometric.data import Data

import tuplet
from tuplet.attention import Rule, attend
from tuplet.patterns import DefinedPairs, FusedLines
from tuplet.patterns.structure import Lines, Side
from tuplet.testing import assert_matches_reference

pytest.importorskip("triton")
from tuplet.attention.fused import factorised, launch

RULE = Rule("positive", "none", 1.0)


@dataclass(frozen=True)
class Case:
    """Lines to attend along.

    Args:
        queries, keys: lengths of the two sides of each line.
        groups: lines are dealt to so many groups, each of which begins at another of them.
        ordered: sides are numbers of a permutation.
        strided: a side's tokens stand apart.
        heads, width, value_width: h, m and c'.
        dtype: of queries, keys and values.
        portion: tokens of a portion, where not as usual.
    """

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    groups: int = 1
    ordered: bool = False
    strided: bool = False
    heads: int = 2
    width: int = 20
    value_width: int = 6
    dtype: torch.dtype = torch.float32
    portion: int = factorised.PORTION

    def __str__(self) -> str:
        return "-".join(str(value).replace(" ", "") for value in self.__dict__.values())

    def side(self, lengths: tuple[int, ...], group: int) -> Side:
        """Lines one after another, with tokens between them that are in none."""
        turned = lengths[group:] + lengths[:group]
        length = torch.tensor(turned, device=DEVICE)
        stride = torch.full_like(length, 2 if self.strided else 1)
        start = ((length + 1) * stride).cumsum(0) - length * stride
        order = torch.randperm(self.tokens(lengths), device=DEVICE) if self.ordered else length[:0]
        return Side(start, stride, length, order)

    def tokens(self, lengths: tuple[int, ...]) -> int:
        return (sum(lengths) + len(lengths) + 2) * (2 if self.strided else 1)

    def lines(self) -> tuple[Lines, ...]:
        longest = (max(self.queries), max(self.keys))
        sides = [(self.side(self.queries, group), self.side(self.keys, group)) for group in range(self.groups)]
        return tuple(Lines(query, key, longest) for query, key in sides)

    def inputs(self) -> list[torch.Tensor]:
        """Queries, keys, values, all of them views, and gradients of messages and log-sum-exps."""
        queries, keys = self.tokens(self.queries), self.tokens(self.keys)
        draw = [(queries, self.width), (keys, self.width), (keys, self.value_width), (queries, self.value_width)]
        wide = [torch.randn(tokens, self.heads, 2, width, device=DEVICE)[:, :, 1] for tokens, width in draw]
        wide[:2] = [x.sigmoid() for x in wide[:2]]
        return [x.to(self.dtype) for x in wide] + [torch.randn(queries, self.heads, device=DEVICE)]


def defined(lines: Lines, queries: int, keys: int) -> DefinedPairs:
    query, key, kind = lines.pairs()
    return DefinedPairs(query, key, kind, queries, keys)


def results(run, given, grads, dtype) -> list[torch.Tensor]:
    """Messages, log-sum-exps and the gradients of queries, keys and values through both."""
    q, k, v = (x.detach().to(dtype).requires_grad_() for x in given)
    message, lse = run(q, k, v)
    seen = torch.isfinite(lse)
    loss = (message * grads[0].to(message.dtype)).sum() + (lse[seen] * grads[1][seen].to(lse.dtype)).sum()
    loss.backward()
    return [message.detach(), torch.where(seen, lse.detach(), 0), *(x.grad for x in (q, k, v))]


def apart(groups, attend_group):
    """Heads dealt to groups round-robin, with log-sum-exps."""

    def run(q, k, v):
        message, lse = q.new_zeros(*q.shape[:2], v.shape[2]), q.new_zeros(q.shape[:2], dtype=torch.float32).to(q.dtype)
        for number, group in enumerate(groups):
            heads = slice(number, None, len(groups))
            message[:, heads], lse[:, heads] = attend_group(q[:, heads], k[:, heads], v[:, heads], group)
        return message, lse

    return run


CASES = [
    Case((0, 1, 5, 70, 300), (0, 1, 5, 70, 300)),
    Case((300, 0, 3), (70, 9, 0)),
    Case((5, 70, 1), (70, 5, 40), groups=2, heads=3),
    Case((40, 0, 90), (80, 7, 3), groups=3, heads=3, ordered=True),
    Case((90, 2), (70, 3), strided=True, ordered=True, width=16, value_width=16),
    Case((66,), (70,), width=44, value_width=24, heads=4),
    Case((17,), (66,), width=200, value_width=3, heads=1),
    Case((20, 66), (18, 17), width=256, value_width=72, heads=1),
    Case((150, 1, 1, 1, 1, 0, 1, 1), (160, 2, 0, 1, 1, 1, 1, 1), portion=16, groups=2),
    Case((1, 1, 1, 1, 1, 1, 0, 90), (100, 2, 0, 1, 1, 1, 1, 17), portion=16, ordered=True, heads=1),
    Case((150, 70), (160, 160), portion=16, dtype=torch.bfloat16, heads=1),
    Case((70, 0, 9), (130, 4, 7), dtype=torch.bfloat16, width=44),
]


def test_the_cases_are_cut_in_every_way(monkeypatch):
    """Even and uneven lines, with few portions and with so many that they are added up first."""
    ways = set()
    for case in CASES:
        monkeypatch.setattr(factorised, "PORTION", case.portion)
        for number, lengths in enumerate((case.queries, case.keys)):
            side = getattr(FusedLines.stack(case.lines()), ("query", "key")[number])
            cut = factorised._cut_side(side, case.tokens(lengths), max(lengths))
            assert cut.programs >= sum(-(-length // case.portion) for length in lengths)
            ways.add((number, cut.ragged, cut.parts > factorised.SHARES))
    assert len(ways) == 8


@pytest.fixture
def always(monkeypatch):
    """The factorised form also where pairs are few."""
    monkeypatch.setattr(factorised, "LONG", factorised.SHORT)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.usefixtures("always")
def test_kernels_equal_the_reference(case, monkeypatch):
    monkeypatch.setattr(factorised, "PORTION", case.portion)
    groups = case.lines()
    fused = FusedLines.stack(groups)
    assert factorised.suits(fused, RULE)
    *given, grad, grad_lse = case.inputs()
    grads = (grad, grad_lse)
    pairs = [defined(group, len(given[0]), len(given[1])) for group in groups]
    right = results(apart(pairs, lambda *x: attend(*x, None, RULE)), given, grads, torch.float64)
    planned = [group.planned() for group in groups]
    rough = results(apart(planned, lambda *x: attend(*x, None, RULE)), given, grads, case.dtype)
    found = results(lambda q, k, v: attend(q, k, v, fused, None, RULE), given, grads, case.dtype)
    ulp = torch.finfo(case.dtype).eps
    for name, value, expected, other in zip(("out", "lse", "q", "k", "v"), found, right, rough, strict=True):
        size = float(expected.abs().max())
        allowed = 4 * float((other - expected).abs().max()) + 4 * ulp * size
        error = float((value - expected).abs().max())
        assert error <= allowed, f"{name}: {error:.1e}, allowed {allowed:.1e} where numbers are {size:.1e}"
    assert found[0].dtype == found[2].dtype == found[3].dtype == found[4].dtype == case.dtype


@pytest.mark.usefixtures("always")
def test_queries_without_keys_and_tokens_in_no_line_get_nothing():
    case = Case((70, 5), (70, 0))
    (lines,) = case.lines()
    *given, grad, grad_lse = case.inputs()
    fused = FusedLines.stack((lines,))
    out, lse = launch.forward(*given, given[0].new_zeros(1, 2), fused, RULE)
    grads = launch.backward(grad, grad_lse, *given, given[0].new_zeros(1, 2), out, lse, fused, RULE)
    alone = torch.ones(len(out), dtype=torch.bool, device=DEVICE)
    alone[1:71] = False
    assert torch.isneginf(lse[alone]).all()
    assert torch.isfinite(lse[~alone]).all()
    assert not out[alone].any()
    assert all(torch.isfinite(x).all() for x in grads)
    assert not any(x[alone[: len(x)]].any() for x in grads[:3])


@pytest.mark.usefixtures("always")
def test_gradients_may_be_views():
    """That of a sum is one number for all; of log-sum-exps it may be anything but one number after another."""
    case = Case((70, 5), (70, 3))
    fused = FusedLines.stack(case.lines())
    *given, grad, grad_lse = case.inputs()
    out, lse = launch.forward(*given, given[0].new_zeros(1, case.heads), fused, RULE)
    for view in (torch.ones(1, 1, device=DEVICE).expand(grad_lse.shape), grad_lse.t().contiguous().t()):
        found, right = (
            launch.backward(grad, each, *given, given[0].new_zeros(1, case.heads), out, lse, fused, RULE)[:3]
            for each in (view, view.contiguous())
        )
        assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("portion", [16, 64])
def test_two_runs_give_the_same_bits(portion, monkeypatch):
    monkeypatch.setattr(factorised, "PORTION", portion)
    case = Case((170, 1, 1, 1, 1), (160, 1, 1, 1, 1), heads=1)
    fused = FusedLines.stack(case.lines())
    *given, grad, grad_lse = case.inputs()
    run = [results(lambda *x: attend(*x, fused, None, RULE), given, (grad, grad_lse), torch.float32) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*run, strict=True))


@pytest.mark.usefixtures("always")
def test_a_line_of_padding_may_be_longer_than_the_longest():
    """As in a padded batch, where the last graph takes up what is left of the tokens; nobody reads what it gets."""
    case = Case((70, 30), (70, 30))
    (lines,) = case.lines()
    *given, grad, grad_lse = case.inputs()
    room = len(given[0]) + 300
    longer = [torch.cat([x, torch.randn(300, *x.shape[1:], device=DEVICE).sigmoid()]) for x in (*given, grad, grad_lse)]
    start = lines.query.start
    side = Side(
        torch.cat([start, start.new_tensor([len(given[0])])]),
        torch.ones_like(start).repeat(2)[:3],
        torch.cat([lines.query.length, start.new_tensor([300])]),
        start[:0],
    )
    padded = FusedLines.stack((Lines(side, side, lines.longest),))
    found = results(lambda *x: attend(*x, padded, None, RULE), longer[:3], longer[3:], torch.float32)
    fused = FusedLines.stack((lines,))
    right = results(lambda *x: attend(*x, fused, None, RULE), given, (grad, grad_lse), torch.float32)
    assert all(torch.equal(a[: len(b)], b) and len(a) == room for a, b in zip(found, right, strict=True))
    assert all(torch.isfinite(x).all() for x in found)


def test_only_what_has_a_factorised_form_takes_it():
    fused = FusedLines.stack(Case((70,), (70,)).lines())
    assert factorised.suits(fused, RULE)
    assert not factorised.suits(fused, Rule("softmax", "none", 1.0))
    assert not factorised.suits(fused, Rule("positive", "bias", 1.0))
    assert not factorised.suits(replace(fused, skip_self=True), RULE)
    assert not factorised.suits(FusedLines.stack(Case((20,), (30,)).lines()), RULE)
    assert not factorised.suits(FusedLines.stack(Case((1,), (300,)).lines()), RULE)


@pytest.mark.parametrize("name", ["A2-Performer", "A2-Linear"])
def test_models_equal_the_reference(name):
    edges = [(u, u + 1) for u in range(8)] + [(0, 2), (3, 7)]
    index = torch.tensor(edges).t()
    big = Data(edge_index=torch.cat([index, index.flip(0)], 1), num_nodes=9)
    small = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
    options = {"dim": 16, "heads": 4, "depth": 1, "norm": "layer", "task": "node"}
    model = tuplet.build(name, backend="triton", outputs=2, **options).to(DEVICE)
    (group,) = model.prepare([big, small]).layouts.patterns[0]
    assert factorised.suits(group, RULE)
    assert_matches_reference(model, [big, small], 1e-3)


@pytest.mark.skipif(not GPU, reason="needs a GPU")
def test_memory_grows_with_the_tokens():
    """One line of 200,000 tokens, which has 40,000,000,000 pairs, and a thousand short ones."""
    case = Case((200_000, *[3] * 1000), (200_000, *[3] * 1000), heads=4, width=44, value_width=16)
    *given, grad, _ = case.inputs()
    fused = FusedLines.stack(case.lines())
    q, k, v = (x.requires_grad_() for x in given)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    message, lse = attend(q, k, v, fused, None, RULE)
    ((message * grad).sum() + lse[lse.isfinite()].sum()).backward()
    vectors = len(q) * 4 * (44 + 16) * 4
    assert torch.cuda.max_memory_allocated() - before < 6 * vectors


@pytest.mark.skipif(not GPU, reason="needs a GPU")
def test_a_recording_holds_for_other_lines_of_the_same_room():
    """A CUDA graph of forward and backward, replayed after the lengths of the lines have changed."""
    case = Case((300, 200), (300, 200), width=44, value_width=16)
    *given, grad, grad_lse = case.inputs()
    fused = FusedLines.stack(case.lines())

    def run():
        out, lse = launch.forward(*given, grad_lse[:1], fused, RULE)
        return out, lse, *launch.backward(grad, grad_lse, *given, grad_lse[:1], out, lse, fused, RULE)[:3]

    run()
    torch.cuda.synchronize()
    recording = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recording):
        recorded = run()
    fused.query[:, 2] -= 150
    fused.key[:, 2] -= torch.tensor([100, 200], device=DEVICE)
    recording.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(recorded, run(), strict=True))
