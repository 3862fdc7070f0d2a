"""Kronecker-product attention against a loop over all tuples: outputs, gradients, masks, portions, refusals."""

from itertools import combinations, product

import pytest
import torch
from torch.autograd import gradcheck

from tuplet.attention import kronecker
from tuplet.attention.kronecker import kronecker_attend
from tuplet.errors import OptionError, TooLargeError


def literal(q, keys, values, mask=None):
    """The definition, tuple by tuple."""
    n = len(q)
    rows = []
    for i in range(n):
        scores, terms = [], []
        for tuple_ in product(range(n), repeat=len(keys)):
            if mask is not None and not all(bool(mask[a, b]) for a, b in combinations((i, *tuple_), 2)):
                continue
            key, value = torch.ones_like(q[0]), torch.ones_like(values[0][0])
            for place, j in enumerate(tuple_):
                key, value = key * keys[place][j], value * values[place][j]
            scores.append(q[i] @ key)
            terms.append(value)
        if scores:
            rows.append(torch.softmax(torch.stack(scores), 0) @ torch.stack(terms))
        else:
            rows.append(0 * values[0][0])
    return torch.stack(rows)


def inputs(n, order, width=3, out=2):
    generator = torch.Generator().manual_seed(n + 10 * order)
    shapes = [(n, width)] * order + [(n, out)] * (order - 1)
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]
    return tensors[0], tensors[1:order], tensors[order:]


def graph_mask(n, diagonal=True):
    upper = torch.rand(n, n, generator=torch.Generator().manual_seed(n)).triu(1) > 0.6
    return upper | upper.t() | (torch.eye(n, dtype=torch.bool) & diagonal)


@pytest.mark.parametrize("budget", [1, 1 << 21])
@pytest.mark.parametrize("masked", ["all tuples", "cliques", "without repeats"])
@pytest.mark.parametrize("n, order", [(1, 2), (5, 2), (1, 3), (5, 3), (3, 4)])
def test_is_the_definition_with_all_gradients(n, order, masked, budget, monkeypatch):
    monkeypatch.setattr(kronecker, "BUDGET", budget)
    mask = None if masked == "all tuples" else graph_mask(n, masked == "cliques")
    q, keys, values = inputs(n, order)
    results = []
    for attention in (kronecker_attend, literal):
        out = attention(q, keys, values, mask)
        grads = torch.autograd.grad(out.square().sum(), [q, *keys, *values], allow_unused=True, materialize_grads=True)
        results.append([out, *grads])
    for value, expected in zip(*results, strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)


def test_gradients_by_finite_differences():
    q, keys, values = inputs(4, 3)
    mask = graph_mask(4)
    assert gradcheck(lambda q, *rest: kronecker_attend(q, rest[:2], rest[2:], mask), (q, *keys, *values))


def test_order_two_is_ordinary_attention():
    q, keys, values = inputs(7, 2)
    expected = torch.softmax(q @ keys[0].t(), 1) @ values[0]
    torch.testing.assert_close(kronecker_attend(q, keys, values), expected, rtol=1e-13, atol=1e-13)


def test_tuples_that_may_not_stand_together_give_zero():
    q, keys, values = inputs(4, 3)
    out = kronecker_attend(q, keys, values, torch.zeros(4, 4, dtype=torch.bool))
    assert not out.any()
    out.sum().backward()
    assert not q.grad.any()


def test_no_key_product_is_kept_for_the_backward_pass():
    """What autograd keeps is the inputs: n^s scores are made again."""
    q, keys, values = inputs(24, 3)
    kept = []

    def note(tensor):
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        kronecker_attend(q, keys, values)
    assert max(kept) <= 24 * 3


def test_refusals_in_words(monkeypatch):
    q, keys, values = inputs(4, 3)
    with pytest.raises(OptionError, match="at least one"):
        kronecker_attend(q, [], [])
    with pytest.raises(OptionError, match="same shape"):
        kronecker_attend(q, [keys[0], keys[1][:2]], values)
    with pytest.raises(OptionError, match="values: expected shape"):
        kronecker_attend(q, keys, [values[0], values[1][:, :1]])
    with pytest.raises(OptionError, match="booleans of shape"):
        kronecker_attend(q, keys, values, torch.ones(4, 4))
    monkeypatch.setattr(kronecker, "LIMIT", 10)
    with pytest.raises(TooLargeError, match="lower order"):
        kronecker_attend(q, keys, values)
