"""A layer's whole attention as one operator, against the ``torch`` backend in float64, forward and all gradients."""

from dataclasses import replace

import pytest
import torch
from fused_cases import DEVICE, GPU
from torch_geometric.data import Data

import tuplet
from tuplet.models import Transformer
from tuplet.models.prepare import make_layouts

pytest.importorskip("triton")
FORMS = [
    ("A2^LN+VT", {}),
    ("A2^Ngbh++VT", {"relation": "bias"}),
    ("A2^VT", {}),
    ("A2-ReLU^LN+VT", {}),
    ("A1,2^Ngbh", {}),
    ("AS0:1^SN", {}),
    ("AS0:1^SN+VS", {}),
    ("AS0:1^SN+VS", {"relation": "bias"}),
    ("AS0:1^SN+VS", {"relation": "reweight"}),
    ("AS0:1^VS", {}),
    ("A2^VT", {"softmax": "joint", "relation": "reweight"}),
    ("A2^LN+VT", {"heads": 3, "dim": 15}),
    ("A2^LN+VT", {"softmax": "joint"}),
    ("A3^LN+VT", {"softmax": "joint", "relation": "scale", "heads": 3, "dim": 15}),
    ("A2-ReLU^LN+VT", {"softmax": "joint", "relation": "reweight"}),
    ("A2^LN", {"softmax": "joint"}),
    ("A2^LN", {"edge_relation": True, "relation": "reweight"}),
    ("A2^LN+VT", {"softmax": "joint", "edge_relation": True}),
    ("A2^LN+VT", {"softmax": "joint", "edge_relation": True, "relation": "reweight"}),
    ("A2(connected)^LN+VT", {"softmax": "joint"}),
    ("A1,2^Ngbh", {"softmax": "joint"}),
    ("AS0:1^SN+VS", {"heads": 1, "dim": 20}),
]


def graph(size):
    """A path with a triangle at its beginning, and an isolated node at its end."""
    edges = [(u, u + 1) for u in range(size - 2)] + [(0, 2)] * (size > 3)
    index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t()
    index = torch.cat([index, index.flip(0)], 1)
    return Data(edge_index=index, edge_attr=index.sum(0) % 3, num_nodes=size)


GRAPHS = [graph(size) for size in ((14, 7, 1) if GPU else (5, 1, 3))]


def results(attention, inputs, layouts):
    """Messages, and gradients of inputs and weights."""
    inputs = [None if x is None else x.detach().clone().requires_grad_() for x in inputs]
    x, y, virtual = inputs
    found = attention.messages(x, x if y is None else y, virtual, layouts)
    if attention.upward(layouts) is not None and len(found) == 1:  # those of virtual tuples follow on the others
        found = found[0].split([len(x), len(virtual)])
    elif len(found) == 1:
        found = [found[0][: len(x)]]
    loss = sum((part * torch.cos(torch.arange(part.numel(), device=part.device)).view_as(part)).sum() for part in found)
    names, weights = zip(*attention.named_parameters(), strict=True)
    leaves = [leaf for leaf in inputs if leaf is not None]
    grads = torch.autograd.grad(loss, [*leaves, *weights], allow_unused=True)
    labels = [
        *(f"message {number}" for number in range(len(found))),
        *(f"input {i}" for i in range(len(leaves))),
        *names,
    ]
    return dict(zip(labels, [*(part.detach() for part in found), *grads], strict=True))


@pytest.mark.parametrize("last", [False, True], ids=["upward", "last"])
@pytest.mark.parametrize(("name", "options"), FORMS, ids=str)
def test_against_torch(name, options, last):
    torch.manual_seed(0)
    options = {"dim": 16, "heads": 4, **options}
    model = tuplet.build(name, depth=2, backend="triton", virtual=3, edge_types=3, **options).to(DEVICE)
    exact = Transformer(replace(model.config, backend="torch")).to(DEVICE).double()
    exact.load_state_dict(model.state_dict())
    layer, number = (model.layers[-1], -1) if last else (model.layers[0], 0)
    prepared = model.prepare(GRAPHS)
    layouts = prepared.layouts
    assert layer.attention._at_once(layouts)
    plain = make_layouts(model.config, model.patterns, prepared.queries, prepared.keys, "torch")
    dim = options["dim"]
    tokens, keys, virtual = prepared.queries.total, prepared.keys.total, len(layouts.virtual_graph)
    inputs = [
        torch.randn(tokens, dim, device=DEVICE),
        None,
        torch.randn(virtual, dim, device=DEVICE) if virtual else None,
    ]
    if prepared.keys is not prepared.queries:
        inputs[1] = torch.randn(keys, dim, device=DEVICE)
    found = results(layer.attention, inputs, layouts)
    right = results(exact.layers[number].attention, [x if x is None else x.double() for x in inputs], plain)
    assert found.keys() == right.keys()
    size = max(float(value.abs().max()) for value in right.values() if value is not None)
    for part, value in right.items():
        if value is None or found[part] is None:
            assert value is None or not value.any(), part
            continue
        assert float((found[part] - value).abs().max()) <= 2e-5 * max(float(value.abs().max()), 0.1 * size), part
