"""Attention weights of baselines: they are the ones that the layers use."""

import networkx as nx
import pytest
import torch
from baseline_cases import FEATURES, make

from tuplet.errors import OptionError
from tuplet.graphs.door import as_data
from tuplet.models.baselines import NAMES

ATTENDING = ("GAT", "GPS", "Graphormer")


def labelled(graph):
    data = as_data(graph)
    data.x = torch.arange(data.num_nodes) % 3
    data.edge_attr = data.edge_index.sum(0) % 2
    return data


GRAPHS = [labelled(graph) for graph in (nx.lollipop_graph(4, 3), nx.path_graph(3), nx.empty_graph(1))]


def messages(group, values):
    """(N, h, c) weighted sums of values (N, h, c)."""
    return torch.zeros_like(values).index_add(0, group.query, group.weight[:, :, None] * values[group.key])


@pytest.mark.parametrize("layer", [0, 1, -1])
@pytest.mark.parametrize("name", [*ATTENDING, "Graphormer with a virtual node"])
def test_the_layer_follows_from_its_weights(name, layer):
    virtual = {"virtual_node": True} if "virtual" in name else {}
    name, tokens = name.split()[0], 14 if virtual else 11
    model = make(name, depth=2, dropout=0.3, **FEATURES, **virtual).train()
    found = model.explain(GRAPHS, layer=layer)
    assert model.training
    model.eval()
    (group,) = found.groups
    assert found.queries == group.queries == group.keys
    assert found.queries[0] == (0, (0,))
    assert found.queries[10] == (2, (0,))
    assert found.queries[11:] == [(graph, "virtual 0") for graph in range(tokens - 11)]
    ones = torch.zeros(tokens, 3).double().index_add(0, group.query, group.weight)
    torch.testing.assert_close(ones, torch.ones(tokens, 3).double())
    prepared = model.prepare(GRAPHS)
    x, beside = model.run_layers(prepared, layer % 2)
    attending = model.layers[layer]
    if name == "GAT":
        heard = messages(group, attending.conv.lin(x).reshape(11, 3, 4)).flatten(1) + attending.conv.bias
        torch.testing.assert_close(attending.convolve(x, beside, prepared), heard)
    elif name == "GPS":
        values = attending.attention.key_value(x)[:, 12:].reshape(11, 3, 4)
        heard = attending.attention.output(messages(group, values).flatten(1))
        torch.testing.assert_close(attending.attention(x, x, None, prepared.layouts)[0], heard)
    else:
        values = attending.query_key_value(attending.stream.enter(x))[:, 24:].reshape(tokens, 3, 4)
        heard = attending.stream.leave(x, messages(group, values).flatten(1), attending.output)
        torch.testing.assert_close(attending(x, beside, prepared)[0], heard)


def test_what_a_node_looks_at():
    looked = make("GAT").explain("Ch").of((0, (1,)))  # the second node of a path
    assert {(group, key) for group, _, key, _ in looked} == {
        ("neighbours and itself", (0, (node,))) for node in (0, 1, 2)
    }
    for name in ("GPS", "Graphormer"):
        looked = make(name).explain("Ch").of((0, (1,)))
        assert {key for _, _, key, _ in looked} == {(0, (node,)) for node in range(4)}
        assert [weight for *_, weight in looked] == sorted((weight for *_, weight in looked), reverse=True)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ATTENDING])
def test_others_refuse_in_words(name):
    with pytest.raises(OptionError, match=f"explain: {name} has no attention weights; GAT, GPS and Graphormer have"):
        make(name).explain("Ch")


def test_a_layer_that_is_not_there():
    with pytest.raises(OptionError, match="layer: expected a number from -2 to 1; came 2"):
        make("GAT").explain("Ch", layer=2)
