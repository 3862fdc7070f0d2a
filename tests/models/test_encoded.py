"""Encodings inside models: they reach every kind of token, keep what is invariant invariant, and are never lost silently."""

import networkx as nx
import pytest
import torch
from torch_geometric.data import Batch

import tuplet
from tuplet import testing
from tuplet.encodings import RRWP, RWSE, EdgeRWSE, Precompute
from tuplet.errors import InputError, OptionError
from tuplet.graphs.door import as_data

INVARIANT = (
    "DEG:64:16",
    "RWSE:6:8",
    "RRWP:5:6",
    "SPD:6:8",
    "RD:8",
    "EdgeRWSE:4:6",
    "Hodge1Lap:4:6",
    "HodgeRW:4:6",
    "SPE:4:4:layers=2",
    "BasisNet:4:6",
)
MODELS = ("A1", "A2^LN", "A3^LN", "A1,2^Ngbh", "A2(connected)^LN", "AS0:1^SN", "AS1+bias", "AS0:2^SN+VS")
GRAPHS = [
    nx.gnp_random_graph(6, 0.6, seed=1),
    nx.path_graph(1),
    nx.empty_graph(3),
    nx.complete_graph(4),
    nx.cycle_graph(5),
]


def build(name, encodings, task="graph", **options):
    torch.manual_seed(0)
    config = {"dim": 12, "depth": 2, "heads": 3, "outputs": 2, "encodings": encodings, **options}
    return tuplet.build(name, task=task, **config).double().eval()


def carried(name, encoding):
    """Whether a model's tokens hold what the encoding describes: edges are nothing to A1."""
    return name != "A1" or encoding.split(":")[0] not in ("EdgeRWSE", "Hodge1Lap", "HodgeRW")


CASES = [(name, encoding) for name in MODELS for encoding in INVARIANT if carried(name, encoding)]
OTHERS = ("LapPE:4:6", "SignNet:4:6:phi_layers=2:rho_layers=2", "MAP:4:6")


@pytest.mark.parametrize("name, encoding", CASES)
def test_models_stay_equivariant(name, encoding):
    for task in ("graph", "node"):
        model = build(name, [encoding], task)
        testing.assert_permutation_equivariant(model, GRAPHS[0])
        testing.assert_batch_invariant(model, GRAPHS)


@pytest.mark.parametrize("name, encoding", [*CASES, *[(name, encoding) for name in MODELS for encoding in OTHERS]])
def test_every_encoding_reaches_every_model_and_learns(name, encoding):
    """Changing the raw statistic changes the output, and every parameter has a gradient."""
    model = build(name, [encoding])
    prepared = model.prepare(GRAPHS)
    output = model(prepared)
    assert torch.isfinite(output).all()
    output.square().sum().backward()
    for parameter, value in model.named_parameters():
        if parameter.startswith("encodings"):
            assert value.grad is not None, parameter
            assert torch.isfinite(value.grad).all(), parameter
    moved = False
    for field in prepared.graph.statistics:
        if prepared.graph.statistics[field].is_floating_point():
            prepared.graph.statistics[field] += 0.5
        else:
            prepared.graph.statistics[field].fill_(1)
        moved = moved or not torch.allclose(model(prepared), output)
    assert moved


@pytest.mark.parametrize("name", MODELS[1:])
def test_precomputed_statistics_give_the_same_output(name, monkeypatch):
    encodings = [RWSE(6, 8), RRWP(5, 6), EdgeRWSE(4, 6)]
    model = build(name, encodings)
    expected = model(GRAPHS)
    data = Precompute(encodings, dtype=torch.float64).many([as_data(graph) for graph in GRAPHS])
    monkeypatch.setattr("tuplet.models.reading.statistics", lambda missing, graph, dtype: {} if not missing else 1 / 0)
    torch.testing.assert_close(model(Batch.from_data_list(data)), expected)
    torch.testing.assert_close(model(data), expected)


@pytest.mark.parametrize("name", ["A2^LN", "AS0:1^SN", "A1,2^Ngbh"])
def test_the_prepared_forward_compiles(name):
    torch._dynamo.reset()
    model = build(name, ["RWSE:6:8", "RRWP:5:6", "EdgeRWSE:4:6"])
    prepared = model.prepare(GRAPHS)
    torch.testing.assert_close(torch.compile(model, fullgraph=True, backend="aot_eager")(prepared), model(prepared))


@pytest.mark.parametrize("name", ["A2^LN+VT", "AS0:1^SN+VS", "A3^LN"])
def test_backends_agree(name):
    testing.assert_matches_reference(build(name, ["RWSE:6:8", "RRWP:5:6"]), GRAPHS)


def test_pairs_are_read_in_their_order():
    """A directed path: RRWP of (u, v) is not that of (v, u), and the two tuples begin differently."""
    graph = tuplet.graphs.door.as_data(nx.path_graph(3))
    graph.edge_index = torch.tensor([[0, 1], [1, 2]])
    model = build("A2^LN", ["RRWP:3:4"], directed=True)
    rows = model.embed(model.prepare(graph))[1]
    plain = build("A2^LN", [], directed=True)
    assert not torch.allclose(rows[0 * 3 + 2], rows[2 * 3 + 0])
    without = plain.embed(plain.prepare(graph))[1]
    assert torch.allclose(without[0 * 3 + 2], without[2 * 3 + 0])


def test_encodings_separate_what_the_model_cannot():
    """A1 and A2 see nothing of CSL; with return probabilities they tell all classes apart."""
    graphs = [as_data(nx.circulant_graph(41, [1, skip])) for skip in (2, 3, 4, 5)]
    for name in ("A1", "AS0:1^SN"):
        out = build(name, ["RWSE:20:28"])(graphs)
        gaps = [(out[i] - out[j]).abs().max() for i in range(4) for j in range(i)]
        assert min(gaps) > 1e-6


def test_short_forms_and_objects_are_one():
    assert build("A1", ["RWSE:6:8"]).config == build("A1", [RWSE(6, 8)]).config


@pytest.mark.parametrize(
    "name, encodings, message",
    [
        ("A1", "RWSE:6:8", "expected a list"),
        ("A1", ["RWSE:6"], "RWSE"),
        ("A1", ["RWZE:6:8"], "RWSE"),
        ("A1", [3], "expected encodings or short forms"),
        ("A1", ["RWSE:6:8", RWSE(6, 8)], "each once"),
        ("A2^LN", ["HodgeRW:4:6:dim=2"], "carry dimensions up to 1"),
        ("AS0:1^SN", ["HodgeRW:4:6:dim=2"], "carry dimensions up to 1"),
        ("A1", ["EdgeRWSE:4:6"], "carry nodes only"),
        ("AS0^SN", ["EdgeRWSE:4:6"], "carry nodes only"),
    ],
)
def test_what_cannot_be_is_refused(name, encodings, message):
    if encodings == ["RWSE:6"]:
        assert build(name, encodings).config.encodings == (RWSE(6),)
        return
    with pytest.raises(OptionError, match=message):
        build(name, encodings)


def test_statistics_of_other_graphs_are_refused():
    data = Precompute([RWSE(6, 8)]).many([as_data(graph) for graph in GRAPHS])
    data[0].pe_rwse_6 = data[0].pe_rwse_6[:2]
    with pytest.raises(InputError, match="pe_rwse_6"):
        build("A1", ["RWSE:6:8"])(data)
    with pytest.raises(InputError, match="in every graph of a list or in none"):
        build("A1", ["RWSE:6:8"])([data[1], as_data(GRAPHS[0])])


def test_a_model_refuses_a_batch_prepared_with_other_encodings():
    prepared = build("A1", ["RWSE:6:8"]).prepare(GRAPHS)
    with pytest.raises(InputError, match="prepared"):
        build("A1", ["RWSE:7:8"])(prepared)
