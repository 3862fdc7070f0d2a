"""The fused batch norm of a residual sum against torch's own: outputs, gradients, running statistics, rows that do not count."""

import pytest
import torch
from fused_cases import DEVICE, GPU
from fused_expected import error
from torch import nn
from torch.nn import functional as F

pytest.importorskip("triton")
from tuplet.encodings.layers import MaskedBatchNorm
from tuplet.kernels.norm import add_batch_norm, masked_batch_norm

SIZES = [(2, 8), (5, 24), (300, 8), (70, 64), (40, 1024)] + [(20_000, 64), (33_333, 24), (257, 128)] * GPU
ULP = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8}


def drawn(rows, width, dtype):
    """Rows far from zero, a residual, weight, bias, the gradient of the outputs, and which rows count: all but a few."""
    x, added, grad = (torch.randn(rows, width) for _ in range(3))
    live = torch.arange(rows) % 3 != 2
    tensors = [5 + 2 * x, added, 1 + torch.randn(width) / 2, torch.randn(width), grad * live[:, None]]
    tensors = [x.to(dtype) if x.dim() == 2 else x for x in tensors]
    return [x.to(DEVICE) for x in tensors], live.to(DEVICE)


def plain(dtype, tensors, with_added, live):
    """Torch's batch norm over the rows that count, in some precision: outputs there, gradients, running statistics.

    Statistics and their parameters stay in float32 where rows are in bfloat16, as autocast has it.
    """
    x, added, grad = (tensors[place].to(dtype) for place in (0, 1, 4))
    weight, bias = (each.to(torch.promote_types(dtype, torch.float32)) for each in tensors[2:4])
    given = [each.clone().requires_grad_() for each in (x, added, weight, bias)]
    s = given[0] + given[1] if with_added else given[0]
    mean, variance = torch.zeros_like(weight), torch.ones_like(weight)
    y = F.batch_norm(s[live], mean, variance, given[2], given[3], training=True)
    found = torch.autograd.grad(y, given, grad[live], allow_unused=True)
    return [y.detach(), *(g for g in found if g is not None), mean, variance]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("with_added", [True, False], ids=["residual", "alone"])
@pytest.mark.parametrize("masked", [True, False], ids=["some rows", "all rows"])
@pytest.mark.parametrize("dtype", list(ULP), ids=["fp32", "bf16"])
def test_it_is_torchs_batch_norm_of_the_sum(size, with_added, masked, dtype):
    tensors, live = drawn(*size, dtype)
    rows = live if masked else torch.ones_like(live)
    norm = nn.BatchNorm1d(size[1]).to(DEVICE)
    with torch.no_grad():
        norm.weight.copy_(tensors[2])
        norm.bias.copy_(tensors[3])
    x, added = (t.clone().requires_grad_() for t in tensors[:2])
    y = add_batch_norm(norm, x, added if with_added else None, live if masked else None)
    assert y.dtype == dtype
    y.backward(tensors[4])
    found = [y[rows].detach(), x.grad, *[added.grad] * with_added, norm.weight.grad, norm.bias.grad]
    found += [norm.running_mean, norm.running_var]
    right = plain(torch.float64, tensors, with_added, rows)
    rough = plain(dtype, tensors, with_added, rows)
    names = ["y", "x", *["added"] * with_added, "weight", "bias", "running mean", "running variance"]
    largest = max(float(each.abs().max()) for each in right)
    for name, value, exact, other in zip(names, found, right, rough, strict=True):
        assert torch.isfinite(value).all()
        allowed = 2 * error(other, exact) + 2 * ULP[dtype] * largest
        assert error(value, exact) <= allowed, f"{name}: {error(value, exact):.2e}, allowed {allowed:.2e}"
    if masked:
        assert not x.grad[~live].any(), "rows that do not count have a gradient"


def test_two_runs_give_the_same_bits():
    tensors, live = drawn(4000 if GPU else 300, 24, torch.float32)
    norm = nn.BatchNorm1d(24).to(DEVICE)
    results = []
    for _ in range(2):
        x = tensors[0].clone().requires_grad_()
        y = add_batch_norm(norm, x, tensors[1], live)
        y.backward(tensors[4])
        results.append((y, x.grad))
    assert all(torch.equal(first, second) for first, second in zip(*results, strict=True))


def test_operator_registration():
    """The schemas, fake kernels and autograd registration that torch.compile relies on."""
    (x, added, weight, bias, _), live = drawn(6, 8, torch.float32)
    given = [t.requires_grad_() for t in (x, added, weight, bias)]
    results = torch.library.opcheck(torch.ops.tuplet.add_batch_norm.default, (*given, live, 1e-5), raise_exception=True)
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("rows", [[7, 300, 40], [1, 5, 1], [6] * 12], ids=str)
@pytest.mark.parametrize("masked", [True, False], ids=["some rows", "all rows"])
def test_it_is_the_masked_batch_norm_of_encodings(rows, masked):
    """Over several batches: the first count as much as the later ones, and those of one row or none do not count."""
    width = 20
    wanted = MaskedBatchNorm(width).to(DEVICE)
    with torch.no_grad():
        wanted.weight.normal_(1, 0.3)
        wanted.bias.normal_()
    mean, var, seen = (each.clone() for each in (wanted.mean, wanted.var, wanted.seen))
    wanted = wanted.double()
    for count in rows:
        x, grad = (torch.randn(count, width, device=DEVICE) + 2 for _ in range(2))
        live = torch.arange(count, device=DEVICE) % 4 != 0 if masked else None
        weight, bias = (each.detach().float().requires_grad_() for each in (wanted.weight, wanted.bias))
        y = masked_batch_norm(x, live, weight, bias, (mean, var, seen), wanted.momentum, wanted.eps)
        expected = wanted(x.double(), live)
        pairs = [(y, expected), (mean, wanted.mean), (var, wanted.var), (seen, wanted.seen)]
        right = torch.autograd.grad(expected, [wanted.weight, wanted.bias], grad.double())
        pairs += zip(torch.autograd.grad(y, [weight, bias], grad), right, strict=True)
        for a, b in pairs:
            torch.testing.assert_close(a.detach().double(), b.detach(), rtol=1e-5, atol=1e-5 * count)
