"""What a step of a baseline costs, predicted and measured, and the refusal of what does not fit."""

import networkx as nx
import pytest
import torch
from baseline_cases import WITHOUT_EDGES, make
from torch.utils.flop_counter import FlopCounterMode

from tuplet.errors import TooLargeError
from tuplet.experiments.measure import peak_bytes
from tuplet.graphs.door import as_data
from tuplet.models.baselines import NAMES, BaselineConfig, build_baseline, memory
from tuplet.models.baselines.paths import Paths
from tuplet.models.cost import Cost

ON_PAIRS = ("PPGN", "2-IGN", "Graphormer")
GRAPHS = [nx.path_graph(4), nx.complete_graph(5)]  # 9 nodes, 26 edges, 41 ordered pairs, 189 triples


def graphs_of(name, dense, edge_types):
    """Two graphs, smaller where pairs are held."""
    graphs = []
    for n in (90, 70) if name in ON_PAIRS else (900, 700):
        graph = as_data(nx.gnm_random_graph(n, (12 if dense else 3) * n // 2, seed=0))
        if edge_types:
            graph.edge_attr = torch.zeros(graph.num_edges, dtype=torch.long)
        graphs.append(graph)
    return graphs


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
@pytest.mark.parametrize("edge_types", [None, 3], ids=["bare", "edges"])
@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_predicted_within_two_fifths_or_by_two_where_paths_are_read(name, depth, edge_types, dense):
    if edge_types and name in WITHOUT_EDGES:
        pytest.skip("does not read edges")
    model = build_baseline(BaselineConfig(name, dim=64, depth=depth, edge_types=edge_types))
    graphs = graphs_of(name, dense, edge_types)
    factor = 2 if name == "Graphormer" and edge_types else 1.4
    weights = sum(parameter.numel() for parameter in model.parameters()) * 4

    def step():
        model(graphs).sum().backward()

    step()
    model.zero_grad()
    cost = model.cost(graphs)
    trained = peak_bytes(step, torch.device("cpu")) + 3 * weights
    assert 1 / factor < cost.peak_bytes / trained < factor
    with torch.no_grad():
        run = peak_bytes(lambda: model(graphs), torch.device("cpu")) + weights
    assert 1 / factor < cost.inference_bytes / run < factor


def test_tokens_and_pairs_are_counted_exactly():
    pairs = {"GCN": 35, "GAT": 35, "GPS": 67, "Graphormer": 41, "2-IGN": 41, "PPGN": 189}
    for name in NAMES:
        model = make(name)
        cost = model.cost(GRAPHS)
        assert isinstance(cost, Cost)
        assert cost.tokens == (41 if name in ("PPGN", "2-IGN") else 9)
        assert cost.pairs == pairs.get(name, 26)
        assert cost.graphs == (5, 2)
        assert cost == model.cost(model.prepare(GRAPHS))
        assert cost.inference_bytes < cost.peak_bytes


@pytest.mark.parametrize("edge_types", [None, 3], ids=["bare", "edges"])
@pytest.mark.parametrize("name", NAMES)
def test_flops_are_near_those_that_run(name, edge_types):
    """The counter knows matrix products; the attention of GPS is an operator that it does not know."""
    if edge_types and name in WITHOUT_EDGES:
        pytest.skip("does not read edges")
    model = make(name, dim=48, depth=4, edge_types=edge_types)
    graphs = graphs_of(name, True, edge_types)
    with FlopCounterMode(display=False) as counter:
        model(graphs).sum().backward()
    unseen = 3 * 4 * 4 * 48 * (900**2 + 700**2) if name == "GPS" else 0
    assert 0.7 < model.cost(graphs).flops / (counter.get_total_flops() + unseen) < 1.4


def test_what_does_not_fit_is_refused_in_words(monkeypatch):
    for name in ON_PAIRS:
        with pytest.raises(TooLargeError) as error:
            make(name)(nx.empty_graph(300_000))
        for part in (name, "n = 300000", "GB", "90,000,000,000 pairs", "training step", "Cheaper: GPS"):
            assert part in str(error.value)
    for name in ("PPGN", "GIN"):
        model = make(name)
        needed = model.cost(nx.path_graph(9)).inference_bytes
        monkeypatch.setattr(memory, "available_bytes", lambda device, needed=needed: needed)
        with pytest.raises(TooLargeError, match="81 pairs at dim = 12" if name == "PPGN" else "16 edges at dim = 12"):
            model(nx.path_graph(9))
        with torch.no_grad():
            assert model(nx.path_graph(9)).shape == (1, 2)
        assert make(name, check_memory=False)(nx.path_graph(9)).shape == (1, 2)


def test_paths_are_followed_in_portions(monkeypatch):
    """The same steps and weights, a few pairs at a time; and a dense graph no longer takes all memory."""
    model = make("Graphormer", edge_types=1, max_path=3)
    graphs = [as_data(nx.gnm_random_graph(n, 2 * n, seed=1)) for n in (9, 6)]
    for graph in graphs:
        graph.edge_attr = torch.zeros(graph.num_edges, dtype=torch.long)
    whole = model.prepare(graphs)
    monkeypatch.setattr("tuplet.models.baselines.paths.EDGES_AT_ONCE", 50)
    prepared = model.prepare(graphs)

    def listed(paths: Paths):
        return sorted(zip(paths.pair.tolist(), paths.place.tolist(), paths.weight.tolist(), strict=True))

    assert listed(prepared.paths) == listed(whole.paths)
    assert prepared.paths.pair.tolist() != whole.paths.pair.tolist()
