"""The feature map of FAVOR+ by fused kernels against its definition in torch, in float64."""

import pytest
import torch
from fused_cases import DEVICE

import tuplet
from tuplet.attention import FavorFeatures
from tuplet.attention import kernels as feature_maps

pytest.importorskip("triton")
from tuplet.attention.fused import favor

SIZES = [(16, 44, 4, (70, 3)), (8, 20, 3, (40,)), (24, 76, 1, (65,)), (64, 266, 2, (5, 9)), (4, 16, 2, (1, 0))]
DRAWS = 4


@pytest.fixture(autouse=True)
def _in_torch(monkeypatch):
    """The definition stays in torch also on a GPU."""
    monkeypatch.setattr(feature_maps, "has_kernels", lambda x: False)


def views(heads, width, tokens, dtype):
    """Queries or keys as they come: slices of all projections; some tokens are far larger than others."""
    parts = [torch.randn(count, 3, heads, width) * 2 * torch.rand(count, 1, 1, 1) for count in tokens]
    return [x.to(DEVICE, dtype)[:, 1] for x in parts]


def with_gradients(run, given, dtype):
    """Features of each tensor, and its gradient."""
    tensors = [x.detach().to(dtype).requires_grad_() for x in given]
    features = run(tensors)
    weights = [torch.cos(torch.arange(x.numel(), device=DEVICE)).reshape(x.shape) for x in features]
    sum(((x * w.to(x.dtype)).sum() for x, w in zip(features, weights, strict=True)), start=0).backward()
    return [x.detach() for x in features] + [x.grad for x in tensors]


def assert_as_exact(draw, dtype):
    """Over several draws four times the most that plain torch loses in the same precision, and some ulps: of one draw torch may lose
    little by luck, which depends on the machine.

    Args:
        draw: what was found, what torch finds in the same precision, and in float64, of new numbers every time.
    """
    for draws in zip(*(zip(*draw(), strict=True) for _ in range(DRAWS)), strict=True):
        assert all(found.dtype == dtype for found, _, _ in draws)
        full = [(found, rough, right) for found, rough, right in draws if right.numel()]
        if full:
            allowed = 4 * _farthest(rough - right for _, rough, right in full)
            size = _farthest(right for _, _, right in full)
            assert _farthest(found - right for found, _, right in full) <= allowed + 4 * torch.finfo(dtype).eps * size


def _farthest(differences):
    """The largest of all numbers without their signs; NaN if one of them is."""
    return float(torch.stack([x.abs().max() for x in differences]).max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width, features, heads, tokens", SIZES)
def test_queries(width, features, heads, tokens, dtype):
    def draw():
        phi = FavorFeatures(width, features).to(DEVICE)
        given = views(heads, width, tokens, dtype)
        exact = with_gradients(lambda xs: [phi.double().queries(x) for x in xs], given, torch.float64)
        phi = phi.float()
        rough = with_gradients(lambda xs: [phi.queries(x) for x in xs], given, dtype)
        found = with_gradients(lambda xs: [favor.queries(x, phi.directions, phi.epsilon) for x in xs], given, dtype)
        return found, rough, exact

    assert_as_exact(draw, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width, features, heads, tokens", SIZES)
@pytest.mark.parametrize("ordered", [True, False], ids=["by graph", "mixed"])
def test_keys(width, features, heads, tokens, ordered, dtype):
    """Graphs may have keys in one set alone, or none; tokens need not stand graph by graph."""

    def draw():
        phi, count = FavorFeatures(width, features).to(DEVICE), 5
        given = views(heads, width, tokens, dtype)
        graphs = [torch.randint(0, count - 1, (len(x),), device=DEVICE) for x in given]
        graphs = [graph.sort().values for graph in graphs] if ordered else graphs
        exact = with_gradients(lambda xs: phi.double().keys(xs, graphs, count), given, torch.float64)
        phi = phi.float()
        rough = with_gradients(lambda xs: phi.keys(xs, graphs, count), given, dtype)
        found = with_gradients(lambda xs: favor.keys(xs, graphs, count, phi.directions, phi.epsilon), given, dtype)
        return found, rough, exact

    assert_as_exact(draw, dtype)


def test_keys_of_nothing_but_zeros():
    """Their exponents are zeros too, and zero is more than nothing."""
    phi = FavorFeatures(8).to(DEVICE)
    x = torch.zeros(3, 2, 8, device=DEVICE)
    graph = torch.zeros(3, dtype=torch.long, device=DEVICE)
    for zeros in (x, -x):
        (found,) = favor.keys([zeros], [graph], 1, phi.directions, phi.epsilon)
        torch.testing.assert_close(found, phi.keys([zeros], [graph], 1)[0])


@pytest.mark.parametrize("name", ["A2-Performer", "A2-Performer^LN+VT"])
def test_models_are_the_same_with_and_without(name, monkeypatch):
    model = tuplet.build(name, dim=16, heads=4, depth=2, norm="layer", task="node").to(DEVICE)
    results = []
    for fused in (False, True):
        monkeypatch.setattr(feature_maps, "has_kernels", lambda x, fused=fused: fused)
        model.zero_grad()
        output = model(["DQc", "B?"])
        output.cos().sum().backward()
        results.append([output.detach(), *(x.grad.clone() for x in model.parameters() if x.grad is not None)])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_operator_registration():
    phi = FavorFeatures(8).to(DEVICE)
    x = torch.randn(5, 2, 8, device=DEVICE, requires_grad=True)
    graph = torch.tensor([0, 0, 1, 1, 1], device=DEVICE)
    largest = torch.ops.tuplet.favor_largest([x.detach()], [graph], phi.directions, 2)
    for stabiliser in ((None, None), (largest, graph)):
        arguments = (x, phi.directions, *stabiliser, phi.epsilon)
        results = torch.library.opcheck(torch.ops.tuplet.favor_features.default, arguments, raise_exception=True)
        assert set(results.values()) == {"SUCCESS"}
    torch.library.opcheck(torch.ops.tuplet.favor_largest.default, ([x.detach()], [graph], phi.directions, 2))
