"""Queries, keys and values of tokens as one operator, against torch's own maps; in Triton's interpreter without a GPU."""

import copy

import pytest
import torch
import triton
import triton.language as tl
from kernel_cases import DEVICE
from torch import nn

pytest.importorskip("triton")

from tuplet.kernels import project as project_module
from tuplet.kernels.halves import halved
from tuplet.kernels.normed import Normed
from tuplet.kernels.project import Maps, project

CASES = [
    (16, (70, 90), (1, 1, 1, 1)),  # two kinds: queries, keys, and values of each
    (16, (5, 0, 9), (1, 1, 1, 1, 1)),
    (24, (50,), (1, 2)),
    (24, (50,), (3,)),
    (16, (40,), (1,)),
    (64, (1,), (2,)),
    (24, (70,), (1, 1)),
]
UNBIASED = len(CASES) - 1


def make(width, sizes, bias=True):
    return nn.ModuleList(nn.Linear(width, size * width, bias=bias) for size in sizes).to(DEVICE)


def plain(x, layers, kinds):
    shared, own = layers[: len(layers) - len(kinds)], layers[len(layers) - len(kinds) :]
    parts = zip(x.split(list(kinds)), own, strict=True)
    return torch.cat([torch.cat([layer(part) for layer in (*shared, last)], dim=1) for part, last in parts])


@pytest.fixture(params=["highest", "high"])
def off(request):
    """How far results may be from those in float64, of the largest; the precision of matrix products."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield 2**-20 if request.param == "highest" else 2**-9
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("programs", [128, 3])
def test_against_torch(off, programs, monkeypatch):
    """Also where a program has several tiles of tokens."""
    monkeypatch.setattr(project_module, "GRADIENT_PROGRAMS", programs)
    torch.manual_seed(0)
    models = [make(width, sizes, number != UNBIASED) for number, (width, _, sizes) in enumerate(CASES)]
    xs = [torch.randn(sum(kinds), width, device=DEVICE, requires_grad=True) for width, kinds, _ in CASES]
    maps = [Maps(x, list(model), kinds) for x, model, (_, kinds, _) in zip(xs, models, CASES, strict=True)]
    assert all(one.fit for one in maps)
    outputs = project(*maps)
    above = [torch.randn_like(found) for found in outputs]
    given = [[x, *model.parameters()] for x, model in zip(xs, models, strict=True)]
    flat = iter(torch.autograd.grad(outputs, [tensor for own in given for tensor in own], above))
    for found, one, model, grad, own in zip(outputs, maps, models, above, given, strict=True):
        other, x = copy.deepcopy(model).double(), one.x.detach().double().requires_grad_()
        expected = plain(x, list(other), one.kinds)
        wanted = torch.autograd.grad(expected, [x, *other.parameters()], grad.double())
        for a, b in [(found, expected), *((next(flat), b) for _, b in zip(own, wanted, strict=True))]:
            assert a.shape == b.shape
            assert a.numel() == 0 or float((a - b).abs().max()) <= off * max(1e-30, float(b.abs().max()))


def test_tokens_that_a_norm_made_are_made_again(off):
    """Gradients are those of the tokens themselves, and what is kept is what the norm made them of."""
    torch.manual_seed(0)
    tokens = [normed(50, 24), normed(9, 24)]
    models = [make(24, (1, 2)) for _ in tokens]
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.data_ptr()) or x, lambda x: x):
        maps = [Maps(x, list(model), [len(x.values)]) for x, model in zip(tokens, models, strict=True)]
        outputs = project(*maps)
    assert {x.values.data_ptr() for x in tokens}.isdisjoint(kept)
    assert {x.origin[0].data_ptr() for x in tokens} <= set(kept)
    for found, x, model in zip(outputs, tokens, models, strict=True):
        other, plainly = copy.deepcopy(model).double(), x.values.detach().double().requires_grad_()
        grad = torch.randn_like(found)
        grads = torch.autograd.grad(found, [x.values, *model.parameters()], grad, retain_graph=True)
        expected = plain(plainly, list(other), [len(plainly)])
        wanted = torch.autograd.grad(expected, [plainly, *other.parameters()], grad.double())
        for a, b in [(found, expected), *zip(grads, wanted, strict=True)]:
            assert float((a - b).abs().max()) <= off * float(b.abs().max())


def normed(rows, width):
    t, weight, bias = (torch.randn(size, device=DEVICE) for size in ((rows, width), (width,), (width,)))
    found = torch.stack([t.mean(0), 1 / t.std(0)])
    values = (t - found[0]) * (found[1] * weight) + bias
    return Normed(values.requires_grad_(), (t, found, weight, bias))


def test_what_no_kernel_fits():
    x = torch.randn(4, 16)
    assert not Maps(x, [nn.Linear(16, 8)], [4]).fit
    assert not Maps(x, [nn.Linear(16, 64)], [4]).fit
    assert not Maps(x, [nn.Linear(16, 16)] * 6, [1, 1, 1, 1]).fit


def test_operator_is_sound():
    torch.manual_seed(0)
    model = make(16, (1, 1, 1))
    x = torch.randn(20, 16, device=DEVICE, requires_grad=True)
    weights, biases = ([getattr(one, part) for one in model] for part in ("weight", "bias"))
    for origin in ([], list(normed(20, 16).origin)):
        given = ([x], origin, weights, biases, [3], [3], [2], [12, 8], torch.float32)
        torch.library.opcheck(torch.ops.tuplet.project.default, given)


@triton.jit
def _product(A, B, C, PRECISION: tl.constexpr):
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    a, by_a = halved(tl.load(A + at), PRECISION)
    b, by_b = halved(tl.load(B + at), PRECISION)
    tl.store(C + at, tl.dot(a, b, input_precision=PRECISION) * (by_a * by_b))


@pytest.mark.parametrize("size", [1e-20, 1e-5, 1.0, 1e4, 1e18])
def test_halves_have_the_range_of_float32(size):
    torch.manual_seed(0)
    a, b = torch.randn(16, 16, device=DEVICE) * size, torch.randn(16, 16, device=DEVICE)
    a[3] *= 1e-6  # rows far below the largest keep their precision
    c = torch.empty_like(a)
    _product[(1,)](a, b, c, PRECISION="tf32")
    exact = a.double() @ b.double()
    assert ((c - exact).abs().amax(1) <= 2**-9 * exact.abs().amax(1)).all()


def test_halves_of_nothing_and_of_what_is_not_finite():
    ones, c = torch.ones(16, 16, device=DEVICE), torch.empty(16, 16, device=DEVICE)
    _product[(1,)](torch.zeros_like(ones), ones, c, PRECISION="tf32")
    assert not c.any()
    for bad in (float("inf"), float("nan")):
        a = ones.clone()
        a[2, 3] = bad
        _product[(1,)](a, ones, c, PRECISION="tf32")
        assert not c[2].isfinite().any()


def test_gradients_of_low_precision_have_the_weights_type():
    model = make(16, (1, 1), bias=False)
    x, grad = (torch.randn(20, width, device=DEVICE, dtype=torch.float16) for width in (16, 32))
    given = ([grad], [x], [], [one.weight.detach() for one in model], [2], [1], [20])
    torch.library.opcheck(torch.ops.tuplet.project_backward.default, given, test_utils="test_faketensor")
