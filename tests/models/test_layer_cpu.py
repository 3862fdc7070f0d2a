"""A layer in one function on a CPU: what its parts give one after another, with every gradient and all statistics."""

import copy

import pytest
import torch
from torch_geometric.data import Data

import tuplet
from tuplet.models import layer_cpu
from tuplet.native import load, set_aside

pytestmark = pytest.mark.skipif(load(torch.zeros(1)) is None, reason="needs a C compiler")


def graph(n, edges):
    index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t()
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    return Data(edge_index=torch.cat([index, index.flip(0)], 1), x=x)


GRAPHS = [graph(4, [(0, 1), (1, 2), (0, 2), (2, 3)]), graph(1, []), graph(3, []), graph(5, [(0, 4), (1, 2)])]


def make(name="AS0:1^SN+VS", **options):
    torch.manual_seed(0)
    return tuplet.build(
        name, **{"dim": 16, "heads": 4, "depth": 3, "virtual": 2, "softmax": "joint", "node_dim": 3, **options}
    ).train()


def counted(monkeypatch):
    """How often a layer was one function."""
    calls, whole = [], layer_cpu.layer
    monkeypatch.setattr(layer_cpu, "layer", lambda *given, **more: calls.append(1) or whole(*given, **more))
    return calls


def results(model, graphs, backward=1):
    """Output, gradients, and the statistics that were left behind."""
    model = copy.deepcopy(model)
    out = model(graphs)
    for _ in range(backward):
        model.zero_grad()
        (out.sin() * torch.arange(1.0, len(out) + 1, dtype=out.dtype)[:, None]).sum().backward(retain_graph=True)
    return [out.detach(), *(weight.grad for weight in model.parameters()), *model.buffers()]


@pytest.mark.parametrize("name", ["AS0:1^SN+VS", "AS0:0^SN+VS", "AS0:2^SN+VS", "AS1^VS", "A2^LN+VT", "A1^LN+VT"])
@pytest.mark.parametrize("relation", ["none", "bias", "scale"])
@pytest.mark.parametrize("softmax", ["joint", "groups"])
@pytest.mark.parametrize(
    "options",
    [{}, {"activation": "relu", "virtual": 1, "heads": 2}, {"activation": "relu", "heads": 5, "dim": 15}, {"dim": 12}],
)
def test_as_operators_of_torch(name, relation, softmax, options, monkeypatch):
    if (name, softmax) == ("AS1^VS", "groups") and relation != "none":
        pytest.skip("without a pattern nothing has types")
    if "^SN" in name and softmax == "groups" and options.get("heads") == 2:
        pytest.skip("four neighbourhoods need four heads")
    model = make(name, relation=relation, softmax=softmax, **options).double()
    calls = counted(monkeypatch)
    found = results(model, GRAPHS)
    assert len(calls) == (2 if name == "AS1^VS" else 3), "in its last layer nobody sees the tokens themselves"
    calls.clear()
    with set_aside():
        expected = results(model, GRAPHS)
    assert calls == []
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "options",
    [{"relation": "reweight"}, {"norm": "layer"}, {"norm_position": "pre"}, {"dropout": 0.1}],
)
def test_other_layers_are_functions_of_their_own(options, monkeypatch):
    calls = counted(monkeypatch)
    found = results(make(**options), GRAPHS)
    assert calls == []
    assert all(torch.isfinite(value).all() for value in found)


@pytest.mark.parametrize("softmax", ["joint", "groups"])
def test_once_more_without_a_trace_and_twice_back(softmax, monkeypatch):
    """Layers that are computed again leave the statistics alone, and a way back can be gone twice."""
    model = make(softmax=softmax).double()
    plain, twice = results(model, GRAPHS), results(model, GRAPHS, backward=2)
    torch.testing.assert_close(twice, plain, rtol=0, atol=0)
    calls = counted(monkeypatch)
    again = results(make(softmax=softmax, recompute=True).double(), GRAPHS)
    assert len(calls) == 6
    torch.testing.assert_close(again, plain, rtol=0, atol=0)


@pytest.mark.parametrize("softmax", ["joint", "groups"])
def test_threads_change_no_bit(softmax):
    """Of layers: products before and after them are those of a library."""
    model, graphs = make(dim=32, softmax=softmax), GRAPHS * 60
    names = ["output", *dict(model.named_parameters()), *dict(model.named_buffers())]
    found, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            named = zip(names, results(model, graphs), strict=True)
            found.append([value for name, value in named if name.startswith("layers.")])
    finally:
        torch.set_num_threads(threads)
    assert len(found[0]) > 100
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


@pytest.mark.parametrize("name, softmax", [("AS0:1^SN+VS", "joint"), ("AS0:1^SN+VS", "groups"), ("A2^LN+VT", "groups")])
def test_in_single_precision(name, softmax):
    """No further from float64 than the operators of torch, but for a factor of two. Gradients that vanish are rounding alone: there all
    that torch leaves of such ones is the measure."""
    model, graphs = make(name, dim=64, depth=2, softmax=softmax), GRAPHS * 20
    with set_aside():
        right, plain = results(copy.deepcopy(model).double(), graphs), results(model, graphs)
    found, vanished = results(model, graphs), 1e-10 * max(float(expected.abs().max()) for expected in right)
    left = [
        float(other.abs().max())
        for other, expected in zip(plain, right, strict=True)
        if expected.abs().max() < vanished
    ]
    for value, other, expected in zip(found, plain, right, strict=True):
        size, error = float(expected.abs().max()), float((other.double() - expected).abs().max())
        limit = 2 * (error if size >= vanished else max(left)) + 1e-6 * size + 1e-9
        assert float((value.double() - expected).abs().max()) <= limit
