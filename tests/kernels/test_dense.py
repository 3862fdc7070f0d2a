"""Linear maps, feed-forwards and the taking of rows as kernels, against torch's own; in Triton's interpreter without a GPU."""

import networkx as nx
import pytest
import torch
from kernel_cases import DEVICE
from torch.nn import functional as F

pytest.importorskip("triton")

from tuplet.graphs import read
from tuplet.kernels import dense, rows
from tuplet.kernels.rows import Lists
from tuplet.tokens import Tuples, constant_lists, node_lists, pair_lists


def draw(*shape):
    return torch.randn(*shape, device=DEVICE, requires_grad=True)


def assert_same(found, expected, inputs, tolerance=2e-5):
    """Outputs, and gradients of all inputs."""
    weights = torch.randn_like(expected)
    pairs = [(found, expected)]
    grads = [torch.autograd.grad(y, inputs, weights) for y in (found, expected)]
    for a, b in pairs + list(zip(*grads, strict=True)):
        assert float((a - b).abs().max()) <= tolerance * max(1.0, float(b.abs().max()))


@pytest.mark.parametrize("gelu", [True, False])
@pytest.mark.parametrize(("tokens", "width"), [(77, 24), (1, 16), (300, 64)])
def test_feed_forward(gelu, tokens, width):
    torch.manual_seed(0)
    x, w1, b1 = draw(tokens, width), draw(2 * width, width), draw(2 * width)
    w2, b2 = draw(width, 2 * width), draw(width)
    activation = F.gelu if gelu else F.relu
    expected = F.linear(activation(F.linear(x, w1, b1)), w2, b2)
    assert_same(dense.feed_forward(x, w1, b1, w2, b2, gelu), expected, (x, w1, b1, w2, b2))


@pytest.mark.parametrize(("tokens", "inputs", "outputs"), [(77, 24, 100), (1, 8, 8), (300, 64, 192), (1101, 24, 40)])
def test_linear(tokens, inputs, outputs):
    torch.manual_seed(0)
    x, weight, bias = draw(tokens, inputs), draw(outputs, inputs), draw(outputs)
    assert_same(dense.linear(x, weight, bias), F.linear(x, weight, bias), (x, weight, bias))


def test_a_bias_before_a_norm_has_no_gradient():
    torch.manual_seed(0)
    x, weight, bias = draw(77, 24), draw(16, 24), draw(16)
    found, expected = dense.linear(x, weight, bias, still=True), F.linear(x, weight, bias)
    assert torch.equal(found, expected)
    given = torch.randn_like(expected)
    (of_x, of_weight, of_bias), others = (torch.autograd.grad(y, (x, weight, bias), given) for y in (found, expected))
    torch.testing.assert_close((of_x, of_weight), others[:2])
    assert not of_bias.any()
    assert others[2].any()


def test_autocast_is_followed():
    x, weight, bias = draw(20, 16), draw(8, 16), draw(8)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        found = dense.linear(x, weight, bias)
    assert found.dtype == torch.bfloat16
    found.sum().backward()
    assert weight.grad.dtype == torch.float32


@pytest.mark.parametrize("special", [0, 2])
def test_rows_of_a_table(special):
    torch.manual_seed(0)
    taken = torch.randint(0, 40, (300,), device=DEVICE)
    taken[:150] = 1  # a row that half of the tokens take
    table = draw(40, 20)
    lists = Lists.sort(taken, 40, special)
    found = rows._take(table, taken, lists.order, lists.begin, lists.end, special)
    assert_same(found, F.embedding(taken, table), (table,))


def test_rows_of_a_small_table():
    torch.manual_seed(0)
    taken, table = torch.randint(0, 28, (300,), device=DEVICE), draw(28, 20)
    empty = taken.new_empty(0)
    found = rows._take(table, taken, empty, empty, empty, len(table))
    assert_same(found, F.embedding(taken, table), (table,))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_rows_of_several_tables_are_added(count):
    torch.manual_seed(0)
    first, tables = draw(100, 20), [draw(40 + 10 * number, 20) for number in range(count)]
    taken = [torch.randint(0, len(table), (100,), device=DEVICE) for table in tables]
    lists = [
        Lists.sort(numbers, len(table), number)
        for number, (numbers, table) in enumerate(zip(taken, tables, strict=True))
    ]
    flat = [tensor for one in lists for tensor in (one.rows, one.order, one.begin, one.end)]
    found = rows._take_sum(first, tables, flat, list(range(count)))
    expected = first + sum(F.embedding(numbers, table) for numbers, table in zip(taken, tables, strict=True))
    assert_same(found, expected, (first, *tables))


def test_row_numbers_may_be_a_column(monkeypatch):
    """As the types of atoms are that have several."""
    monkeypatch.setattr(rows, "has_kernels", lambda x: True)
    torch.manual_seed(0)
    columns, small, large = torch.randint(0, 28, (300, 3), device=DEVICE), draw(28, 20), draw(200, 20)
    assert_same(rows.take(small, columns[:, 1]), F.embedding(columns[:, 1], small), (small,))
    lists = Lists.sort(columns[:, 2], len(large))
    found = rows.take_sum(rows.take(small, columns[:, 1]), [(large, lists), (small, columns[:, 0])])
    expected = F.embedding(columns[:, :2], small).sum(1) + F.embedding(columns[:, 2], large)
    assert_same(found, expected, (small, large))


def test_adding_up():
    torch.manual_seed(0)
    taken, x = torch.randint(0, 10, (200,), device=DEVICE), draw(200, 70)
    lists = Lists.sort(taken, 12)  # the last two rows are taken by nobody
    found = rows._add_up(x, lists.rows, lists.order, lists.begin, lists.end)
    assert_same(found, torch.zeros(12, 70, device=DEVICE).index_add(0, taken, x), (x,))
    assert torch.equal(found[10:], torch.zeros_like(found[10:]))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_lists_of_tuples(order):
    """Every row's list names exactly the tuples that take it, sorted or found by arithmetic."""
    graph = read([nx.gnm_random_graph(5, 6, seed=1), nx.path_graph(3), "@"])
    tuples = Tuples.all(graph, order)
    kinds = [constant_lists(tuples, listed=True), *(node_lists(tuples, axis, listed=True) for axis in range(order))]
    kinds += [pair_lists(tuples, a, b, listed=True) for a in range(order) for b in range(order) if a != b]
    for lists in kinds:
        tokens = lists.order if lists.order.numel() else torch.arange(len(lists.rows))
        for row in range(lists.special, len(lists.begin)):
            named = tokens[lists.begin[row] : lists.end[row]]
            assert sorted(named.tolist()) == (lists.rows == row).nonzero().flatten().tolist()
        assert torch.equal(lists.begin[: lists.special], lists.end[: lists.special])
