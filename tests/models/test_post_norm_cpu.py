"""What follows on attention in one on a CPU: what its parts give one after another, with every gradient and all statistics."""

import copy

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from tuplet.models import post_norm_cpu
from tuplet.models.block import Stream, computed_again
from tuplet.models.config import ModelConfig
from tuplet.native import load, set_aside

needs_compiler = pytest.mark.skipif(load(torch.empty(0)) is None, reason="there is no C compiler here")


def make(activation, dim=8):
    torch.manual_seed(0)
    config = ModelConfig.of("A2^LN", dim=dim, depth=1, heads=2, node_types=1, norm="batch", activation=activation)
    stream, output = Stream(config).double(), nn.Linear(dim, dim, dtype=torch.float64)
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


def assert_as_torch(stream, output, tokens):
    x, message = torch.randn(2, tokens, output.in_features).double()
    found = results(stream, output, x + 3, message)
    with set_aside():
        expected = results(stream, output, x + 3, message)
    torch.testing.assert_close(found, expected)


@needs_compiler
@pytest.mark.parametrize("tokens, dim", [(2, 8), (7, 8), (96, 64), (97, 6), (4000, 20)])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_as_one_after_another(tokens, dim, activation):
    stream, output = make(activation, dim)
    assert_as_torch(stream, output, tokens)


@needs_compiler
@pytest.mark.parametrize("momentum", [None, 0.3, "no statistics"])
def test_running_statistics_follow_as_those_of_torch(momentum):
    stream, output = make("gelu")
    for norm in (stream.attention_norm, stream.feed_forward_norm):
        if momentum == "no statistics":
            norm.running_mean = norm.running_var = norm.num_batches_tracked = None
        else:
            norm.momentum, norm.num_batches_tracked = momentum, torch.tensor(4)
    assert_as_torch(stream, output, 50)


@needs_compiler
def test_one_norm_that_has_settled_is_enough_for_torch():
    stream, output = make("gelu")
    stream.feed_forward_norm.eval()
    assert_as_torch(stream, output, 50)


@needs_compiler
@pytest.mark.parametrize("name", ["running_mean", "running_var"])
def test_statistics_of_another_type_are_for_torch(name):
    stream, output = make("gelu")
    setattr(stream.attention_norm, name, getattr(stream.attention_norm, name).float())
    with pytest.raises(RuntimeError, match=r"(?i)type"):
        stream.leave(torch.randn(5, 8).double(), torch.randn(5, 8).double(), output)


@needs_compiler
def test_in_single_precision():
    """Means that are not zero, and many tokens: no further from float64 than the operators of torch, but for a factor of two."""
    stream, output = make("gelu", 64)
    x, message = torch.randn(3000, 64) + 3, torch.randn(3000, 64)
    with set_aside():
        right = results(stream, output, x.double(), message.double())
        plain = results(stream.float(), output.float(), x, message)
    found = results(stream, output, x, message)
    for value, other, expected in zip(found, plain, right, strict=True):
        limit = 2 * (other.double() - expected).abs().max() + 4e-7 * expected.abs().max()
        assert float((value.double() - expected).detach().abs().max()) <= float(limit.detach())


@needs_compiler
def test_threads_change_no_bit():
    stream, output = make("gelu", 24)
    x, message = torch.randn(2, 5000, 24).double()
    found, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(results(stream, output, x, message))
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


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


@needs_compiler
def test_gradients_by_finite_differences():
    stream, output = make("gelu")
    x, message = torch.randn(2, 5, 8).double().requires_grad_()
    first, _, _, last = stream.feed_forward

    def whole(x, message):
        norms = stream.attention_norm, stream.feed_forward_norm
        after = post_norm_cpu.After(x, output, norms, (first, last), True)
        return post_norm_cpu.post_norm([after], [message], follow=False)

    assert gradcheck(whole, (x, message))
