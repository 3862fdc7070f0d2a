"""Compiled linear maps and feed-forwards: what torch's own give in float64, with every gradient."""

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck
from torch.nn import functional as F

from tuplet.models import dense_cpu
from tuplet.models.dense import feed_forward, linear, linear_parts
from tuplet.native import load, set_aside

needs_compiler = pytest.mark.skipif(load(torch.empty(0)) is None, reason="there is no C compiler here")
TOKENS = [0, 1, 5, 96, 700]
LIMITS = {torch.float32: 5e-6, torch.float64: 1e-14}


def layers(*sizes):
    """In float64, with weights that float32 has too."""
    torch.manual_seed(0)
    return [nn.Linear(first, last).double() for first, last in sizes]


def results(call, x, modules):
    for module in modules:
        module.zero_grad()
    x = x.clone().requires_grad_()
    values = call(x)
    sum(value.sin().sum() for value in values).backward()
    found = [*values, x.grad, *(parameter.grad for module in modules for parameter in module.parameters())]
    return [value.detach() for value in found]


def assert_as_torch(call, x, modules):
    """In both precisions, to a few units in the last place of the largest number, sums over many tokens counted."""
    with set_aside():
        expected = results(call, x, modules)
    for dtype, limit in LIMITS.items():
        found = results(call, x.to(dtype), [module.to(dtype) for module in modules])
        for value, right in zip(found, expected, strict=True):
            assert value.dtype == dtype
            largest = max([1.0, *right.abs().flatten().tolist()])
            torch.testing.assert_close(value.double(), right, rtol=0, atol=limit * largest * max(1, len(x) / 100))
        for module in modules:
            module.double()


@needs_compiler
@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("width, size", [(1, 1), (4, 3), (16, 32), (70, 24), (300, 64)])
def test_linear_maps(tokens, width, size):
    modules, heads = layers((width, size), (width, 2 * size)), 4 if size % 4 == 0 else 1
    x = torch.randn(tokens, width).double()
    assert_as_torch(lambda x: [linear(x, *modules)], x, modules)
    assert_as_torch(lambda x: linear_parts(x, 3, heads, *modules), x, modules)


@needs_compiler
@pytest.mark.parametrize("kinds", [(3, 2), (0, 5), (90, 400, 210), (700,)], ids=str)
def test_the_last_maps_are_one_for_each_kind(kinds):
    modules = layers(*[(6, 5)] * (2 + len(kinds)))
    x = torch.randn(sum(kinds), 6).double()
    assert_as_torch(lambda x: linear_parts(x, 3, 5, *modules, kinds=kinds), x, modules)


@needs_compiler
@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("activation", [nn.GELU(), nn.ReLU()], ids=str)
@pytest.mark.parametrize("widths", [(4, 6, 3), (64, 128, 64), (17, 300, 40)], ids=str)
def test_feed_forward(tokens, activation, widths):
    first, last = layers(widths[:2], widths[1:])
    x = torch.randn(tokens, widths[0]).double()
    assert_as_torch(lambda x: [feed_forward(x, first, activation, nn.Dropout(0.0), last)], x, [first, last])


def alone(x, gelu, dtype):
    """φ of numbers (N, 4) by a feed-forward whose maps change nothing."""
    eye, zeros = torch.eye(4, dtype=dtype), torch.zeros(4, dtype=dtype)
    return dense_cpu.FeedForward.apply(x, eye, zeros, eye, zeros, gelu)


@needs_compiler
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("gelu", [True, False])
def test_activations_are_those_of_float64(gelu, dtype):
    x = torch.cat([torch.linspace(-12, 12, 5001), torch.tensor([0.0, -200.0, 200.0])]).to(dtype).view(-1, 4)
    exact, x = x.double().requires_grad_(), x.requires_grad_()
    right, found = (F.gelu if gelu else F.relu)(exact), alone(x, gelu, dtype)
    above = torch.randn(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).to(dtype)
    (expected,) = torch.autograd.grad((right * above.double()).sum(), exact)
    (grad,) = torch.autograd.grad((found * above).sum(), x)
    limit = 2e-6 if dtype == torch.float32 else 1e-14
    assert float((found.detach().double() - right.detach()).abs().max()) <= limit * 200
    assert float((found.detach().double() - right.detach())[:1250].abs().max()) <= limit * 12
    assert float((grad.double() - expected).abs().max()) <= limit * 4


@needs_compiler
@pytest.mark.parametrize("gelu", [True, False])
def test_what_is_no_number_stays_none(gelu):
    x = torch.tensor([[float("nan")] * 4, [1.0, -1.0, 2.0, 0.0]], requires_grad=True)
    found = alone(x, gelu, torch.float32)
    assert found.isnan().all(1).tolist() == [True, False]
    (grad,) = torch.autograd.grad(found[0].sum(), x)
    assert gelu == bool(grad[0].isnan().all())


@needs_compiler
def test_weights_may_be_strided():
    (layer,) = layers((4, 6))
    wide = torch.randn(6, 8, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.set_(wide[:, ::2])
        layer.bias.set_(wide[:, 1])
    x = torch.randn(8, 5, dtype=torch.float64).t()[:, ::2]
    torch.testing.assert_close(linear(x, layer), F.linear(x, layer.weight, layer.bias))


@pytest.mark.parametrize(
    "x, words", [(torch.randn(2, 4), "dtype"), (torch.randn(2, 5).double(), "shapes")], ids=["precision", "width"]
)
def test_what_does_not_fit_is_left_to_torch(x, words):
    first, last = layers((4, 3), (3, 4))
    assert not dense_cpu.fits(x, first.weight)
    for call in (
        lambda: linear(x, first),
        lambda: linear_parts(x, 3, 1, first),
        lambda: feed_forward(x, first, nn.ReLU(), nn.Dropout(0.0), last),
    ):
        with pytest.raises(RuntimeError, match=words):
            call()


@needs_compiler
def test_threads_change_no_bit():
    """Sums are those of chunks in order, however many threads there are."""
    first, last = layers((24, 48), (48, 24))
    x, found, threads = torch.randn(5000, 24, dtype=torch.float64), [], torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            fed = results(lambda x: [feed_forward(x, first, nn.GELU(), nn.Dropout(0.0), last)], x, [first, last])
            found.append([*fed, *results(lambda x: linear_parts(x, 2, 2, first), x, [first])])
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


@needs_compiler
def test_gradients_by_finite_differences():
    first, last = layers((4, 6), (6, 3))
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    weights = [parameter.detach().requires_grad_() for layer in (first, last) for parameter in layer.parameters()]
    assert gradcheck(lambda *tensors: dense_cpu.FeedForward.apply(*tensors, True), (x, *weights))
    assert gradcheck(lambda x, w, b: dense_cpu.LinearParts.apply([3], [[2, 3]], [3], x, w, b), (x, *weights[:2]))
