"""Tokens and virtual tokens in one function on a CPU, against one attention after another: forward and all gradients."""

import pytest
import torch
from torch_geometric.data import Data

import tuplet
from tuplet.attention import listing
from tuplet.native import load

pytestmark = pytest.mark.skipif(load(torch.zeros(1)) is None, reason="needs a C compiler")


def graph(n, edges):
    index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t()
    return Data(edge_index=torch.cat([index, index.flip(0)], 1), num_nodes=n)


GRAPHS = [graph(4, [(0, 1), (1, 2), (0, 2), (2, 3)]), graph(1, []), graph(3, []), graph(5, [(0, 4), (1, 2)])]
NAMES = ["AS0:1^SN+VS", "A2^LN+VT", "AS0:2^SN+VS", "A3^LN+VT", "A2^VT"]


def results(model, mutually, monkeypatch):
    """Outputs and gradients of all weights, and whether the function ran."""
    prepared, attention = model.prepare(GRAPHS), model.layers[0].attention
    x = torch.randn(prepared.queries.total, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    virtual = torch.randn(len(GRAPHS) * 2, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    assert attention.is_mutual(x, virtual, prepared.layouts)
    with monkeypatch.context() as patch:
        if not mutually:
            patch.setattr(type(attention), "is_mutual", lambda *_: False)
        model.zero_grad()
        out = model(prepared)
        (out * torch.arange(1.0, len(out) + 1, dtype=out.dtype)[:, None]).sum().backward()
    missing = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert missing == []
    return out.detach(), {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("relation", ["none", "bias", "scale", "reweight"])
@pytest.mark.parametrize("softmax", ["joint", "groups"])
@pytest.mark.parametrize("at_once", [listing.PAIRS_AT_ONCE, 7])
def test_as_one_after_another(name, relation, softmax, at_once, monkeypatch):
    if (name, softmax) == ("A2^VT", "groups") and relation != "none":
        pytest.skip("without a pattern nothing has types")
    monkeypatch.setattr(listing, "PAIRS_AT_ONCE", at_once)
    monkeypatch.setattr(
        listing, "PAIRS_COMPILED", 16 if at_once > 7 else 2
    )  # with 2 virtual ones still rows, in many portions
    torch.manual_seed(0)
    options = {"dim": 16, "heads": 4, "depth": 3, "virtual": 2, "softmax": softmax, "relation": relation}
    model = tuplet.build(name, **options).double().train()
    (found, grads), (right, expected) = (results(model, how, monkeypatch) for how in (True, False))
    torch.testing.assert_close(found, right)
    torch.testing.assert_close(grads, expected)


@pytest.mark.parametrize("softmax", ["groups", "joint"])
@pytest.mark.parametrize(("name", "expected"), [("AS0:1^SN+VS", True), ("AS0:1-Linear^SN+VS", False)])
def test_where_there_may_be_one_function(name, softmax, expected):
    model = tuplet.build(name, dim=16, heads=4, depth=2, softmax=softmax)
    layouts = model.prepare(GRAPHS).layouts
    x, virtual = torch.randn(len(layouts.key_graph), 16), torch.randn(len(layouts.virtual_graph), 16)
    assert [layer.attention.is_mutual(x, virtual, layouts) for layer in model.layers] == [expected] * 2
