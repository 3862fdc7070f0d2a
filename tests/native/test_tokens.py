"""Compiled residuals, norms and activations against torch in float64, and against what serves without a compiler."""

import pytest
import torch
from torch.nn import functional as F

from tuplet.native import load
from tuplet.native.tokens import activate, activate_backward, add_and_normalise, normalise, normalise_backward

pytestmark = pytest.mark.skipif(load(torch.empty(0)) is None, reason="there is no C compiler here")
SIZES = [(2, 1), (255, 24), (256, 64), (5000, 7)]
EPS = 1e-5
LIMITS = {torch.float32: 2e-6, torch.float64: 1e-14}


def numbers(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(found, expected, dtype, factor=1.0):
    """To a few units in the last place of the largest number."""
    limit = factor * LIMITS[dtype] * max(1.0, float(expected.abs().max()))
    assert float((found.detach().double() - expected).abs().max()) <= limit


@pytest.fixture(params=["1", "0"], ids=["compiled", "by torch"])
def _native(request, monkeypatch):
    monkeypatch.setenv("TUPLET_NATIVE", request.param)


@pytest.mark.usefixtures("_native")
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("rows, width", SIZES)
def test_norms_are_those_of_float64(rows, width, dtype):
    x, residual, above, more = (numbers(rows, width, dtype=dtype, seed=seed) for seed in range(4))
    x += 3  # a mean that is not zero
    weight, bias = numbers(width, dtype=dtype, seed=5), numbers(width, dtype=dtype, seed=6)
    total = (x.double() + residual.double()).requires_grad_()
    gamma, beta = weight.double().requires_grad_(), bias.double().requires_grad_()
    right = F.batch_norm(total, None, None, gamma, beta, True, 0.1, EPS)
    grads = torch.autograd.grad((right * (above.double() + more.double())).sum(), (total, gamma, beta))

    found, mean, variance = add_and_normalise(x, residual, weight, bias, EPS)
    close(x, total.detach(), dtype)  # the sum took the place of x
    close(mean, total.detach().mean(0), dtype, 4)
    close(variance, total.detach().var(0, correction=0), dtype, 4)
    close(found, right.detach(), dtype, 4 if rows > 2 else 1000)  # of two tokens the deviation may be all but zero
    torch.testing.assert_close(normalise(x, weight, bias, mean, variance, EPS), found, rtol=1e-5, atol=1e-5)
    given = x, weight, mean, variance, EPS
    size = 8 if rows > 2 else 1000
    for value, expected in zip(normalise_backward(above, more, *given), grads, strict=True):
        close(value, expected, dtype, size * max(1.0, rows / 100))
    for value, expected in zip(
        normalise_backward(above + more, None, *given), normalise_backward(above, more, *given), strict=True
    ):
        torch.testing.assert_close(value, expected)


@pytest.mark.usefixtures("_native")
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("gelu", [True, False])
def test_activations_are_those_of_float64(gelu, dtype):
    x = torch.cat([torch.linspace(-12, 12, 5001), torch.tensor([0.0, -200.0, 200.0])]).to(dtype).view(-1, 4)
    bias = numbers(4, dtype=dtype, seed=1)
    total = (x + bias).double().requires_grad_()
    right = (F.gelu if gelu else F.relu)(total)
    above = numbers(*x.shape, dtype=dtype, seed=2)
    (grad,) = torch.autograd.grad((right * above.double()).sum(), total)
    found = activate(x, bias, gelu)
    close(x, total.detach(), dtype)
    close(found, right.detach(), dtype)
    again, below = activate_backward(x, above.clone(), gelu)
    close(again, right.detach(), dtype)
    close(below, grad, dtype)


def test_threads_change_no_bit():
    """Sums are those of portions in order, however many threads there are."""
    x, residual, above = (numbers(3000, 24, dtype=torch.float32, seed=seed) for seed in range(3))
    weight, bias = torch.ones(24), torch.zeros(24)
    results, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            total = x.clone()
            found = add_and_normalise(total, residual, weight, bias, EPS)
            results.append([*found, *normalise_backward(above, residual, total, weight, *found[1:], EPS)])
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


@pytest.mark.usefixtures("_native")
@pytest.mark.parametrize("gelu", [True, False])
def test_what_is_no_number_stays_none(gelu):
    x = torch.tensor([[float("nan"), 1.0]])
    assert activate(x, torch.zeros(2), gelu)[0].isnan().tolist() == [True, False]
    after, below = activate_backward(torch.tensor([[float("nan"), -1.0]]), torch.tensor([[1.0, float("nan")]]), gelu)
    assert after[0].isnan().tolist() == [True, False]
    assert below[0, 1].isnan() or not gelu


@pytest.mark.usefixtures("_native")
def test_weights_may_be_strided():
    x, wide = numbers(6, 4, dtype=torch.float32), torch.randn(4, 2)
    found = add_and_normalise(x.clone(), torch.zeros_like(x), wide[:, 0], wide[:, 1], EPS)[0]
    torch.testing.assert_close(found, F.batch_norm(x, None, None, wide[:, 0], wide[:, 1], True, 0.1, EPS))
    torch.testing.assert_close(activate(x.clone(), wide[:, 0], True), F.gelu(x + wide[:, 0]))
