"""Linear maps and feed-forwards on a CPU: what torch's own give, in portions and whole, with every gradient."""

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from tuplet.models import dense_cpu
from tuplet.models.dense import feed_forward, linear, linear_parts
from tuplet.native import set_aside


@pytest.fixture(params=[2, 4096], ids=["portions", "whole"])
def rows(request, monkeypatch):
    monkeypatch.setattr(dense_cpu, "ROWS", request.param)


def layers(*sizes):
    torch.manual_seed(0)
    return [nn.Linear(first, last, dtype=torch.float64) for first, last in sizes]


def results(call, x, modules):
    for module in modules:
        module.zero_grad()
    x = x.clone().requires_grad_()
    values = call(x)
    sum(value.sin().sum() for value in values).backward()
    return [*values, x.grad, *(parameter.grad for module in modules for parameter in module.parameters())]


def assert_as_torch(call, x, modules):
    found = results(call, x, modules)
    with set_aside():
        expected = results(call, x, modules)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("tokens", [0, 1, 5])
def test_linear_maps(rows, tokens):
    modules = layers((4, 3), (4, 6))
    x = torch.randn(tokens, 4, dtype=torch.float64)
    assert_as_torch(lambda x: [linear(x, *modules)], x, modules)
    assert_as_torch(lambda x: linear_parts(x, 3, *modules), x, modules)


@pytest.mark.parametrize("tokens", [0, 1, 5])
@pytest.mark.parametrize("activation", [nn.GELU(), nn.ReLU()], ids=str)
def test_feed_forward(rows, tokens, activation):
    first, last = layers((4, 6), (6, 3))
    x = torch.randn(tokens, 4, dtype=torch.float64)
    assert_as_torch(lambda x: [feed_forward(x, first, activation, nn.Dropout(0.0), last)], x, [first, last])


def test_gradients_by_finite_differences(rows):
    first, last = layers((4, 6), (6, 3))
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    weights = [parameter.detach().requires_grad_() for layer in (first, last) for parameter in layer.parameters()]
    assert gradcheck(lambda *tensors: dense_cpu.FeedForward.apply(*tensors, True), (x, *weights))
    assert gradcheck(lambda x, w, b: dense_cpu.LinearParts.apply(x, 3, w, b), (x, *weights[:2]))
