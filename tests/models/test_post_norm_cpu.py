"""What follows on attention in one on a CPU: what its parts give one after another, with every gradient and all statistics."""

import copy

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from tuplet.models import dense_cpu, post_norm_cpu
from tuplet.models.block import Stream, computed_again
from tuplet.models.config import ModelConfig
from tuplet.native import set_aside


@pytest.fixture(params=[3, 4096], ids=["portions", "whole"])
def rows(request, monkeypatch):
    monkeypatch.setattr(dense_cpu, "ROWS", request.param)


def make(activation):
    torch.manual_seed(0)
    config = ModelConfig.of("A2^LN", dim=8, depth=1, heads=2, node_types=1, norm="batch", activation=activation)
    stream, output = Stream(config).double(), nn.Linear(8, 8, dtype=torch.float64)
    for norm in (stream.attention_norm, stream.feed_forward_norm):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    return stream.train(), output


def results(stream, output, x, message):
    """Output and gradients, and the statistics that were left behind."""
    stream, output = copy.deepcopy(stream), copy.deepcopy(output)
    x, message = x.clone().requires_grad_(), message.clone().requires_grad_()
    z = stream.leave(x, message, output)
    z.sin().sum().backward()
    weights = [*stream.parameters(), *output.parameters()]
    return [z, x.grad, message.grad, *(weight.grad for weight in weights), *stream.buffers()]


@pytest.mark.parametrize("tokens", [2, 7])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_as_one_after_another(rows, tokens, activation):
    stream, output = make(activation)
    given = stream, output, torch.randn(tokens, 8).double(), torch.randn(tokens, 8).double()
    found = results(*given)
    with set_aside():
        expected = results(*given)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("tokens", [0, 1])
def test_too_few_tokens_for_statistics(tokens):
    stream, output = make("gelu")
    found = results(stream, output, torch.randn(tokens, 8).double(), torch.randn(tokens, 8).double())
    assert all(torch.isfinite(value).all() for value in found)


def test_what_is_computed_again_leaves_no_trace():
    stream, output = make("gelu")
    x, message = torch.randn(2, 5, 8).double()
    before = copy.deepcopy(stream.state_dict())
    with computed_again():
        again = stream.leave(x, message, output)
    torch.testing.assert_close(stream.state_dict(), before)
    torch.testing.assert_close(again, stream.leave(x, message, output))


def test_gradients_by_finite_differences(rows):
    stream, output = make("gelu")
    x, message = torch.randn(2, 5, 8).double().requires_grad_()
    first, _, _, last = stream.feed_forward

    def whole(x, message):
        norms = stream.attention_norm, stream.feed_forward_norm
        return post_norm_cpu.post_norm(x, message, output, norms, (first, last), True, follow=False)

    assert gradcheck(whole, (x, message))
