"""Samples of k-tuples: connected ones by definition, random ones by seed and graph alone."""

from collections import Counter
from itertools import product

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from tuplet.errors import InputError, OptionError, TooLargeError
from tuplet.graphs import read
from tuplet.tokens import ConnectedTuples, RandomTuples, Tuples, connected_tuples, random_tuples, sampling

GRAPHS = {
    "path": nx.path_graph(5),
    "triangle with tail": nx.lollipop_graph(3, 2),
    "complete": nx.complete_graph(4),
    "disconnected": nx.disjoint_union(nx.cycle_graph(3), nx.path_graph(2)),
    "no edges": nx.empty_graph(3),
    "one node": nx.empty_graph(1),
    "self loops": nx.Graph([(0, 0), (0, 1), (2, 2)]),
    "directed": nx.DiGraph([(0, 1), (2, 1), (3, 2), (2, 3), (4, 4)]),
}


def by_definition(graph: nx.Graph, order: int, repeats: bool = True) -> list[tuple[int, ...]]:
    """All tuples whose set of nodes induces a (weakly) connected subgraph, in order."""
    graph = graph.to_undirected()
    return [
        row
        for row in product(range(len(graph)), repeat=order)
        if (repeats or len(set(row)) == order) and nx.is_connected(graph.subgraph(row))
    ]


def tuples_of(graph) -> list[list[tuple[int, ...]]]:
    parts = graph.tuples.split(list(graph.tuple_counts))
    return [[tuple(row) for row in part.tolist()] for part in parts]


def as_data(graph: nx.Graph, **fields) -> Data:
    index = torch.tensor(list(graph.edges), dtype=torch.long).reshape(-1, 2).t()
    return Data(edge_index=torch.cat([index, index.flip(0)], dim=1), num_nodes=len(graph), **fields)


# ---- connected tuples


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("name", GRAPHS)
def test_connected_tuples_are_those_of_the_definition(name, order, repeats):
    graph = GRAPHS[name]
    came = connected_tuples(read(graph, directed=graph.is_directed()), order, repeats)
    assert tuples_of(came) == [by_definition(graph, order, repeats)]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.floats(0, 1), st.integers(0, 99)), min_size=1, max_size=4))
def test_connected_tuples_of_a_batch_are_those_of_its_graphs(cases):
    graphs = [nx.gnp_random_graph(n, density, seed=seed) for n, density, seed in cases]
    came = connected_tuples(read(graphs), 3)
    assert tuples_of(came) == [by_definition(graph, 3) for graph in graphs]
    listed = [(number, entries) for number, part in enumerate(tuples_of(came)) for entries in part]
    assert Tuples.sampled(came, 3).tolist() == listed


def test_everything_else_in_the_batch_stays():
    graph = read(as_data(nx.path_graph(3), x=torch.rand(3, 2), edge_label_index=torch.tensor([[0], [2]])))
    for came in (connected_tuples(graph, 2), random_tuples(graph, 2, 4)):
        assert came.x is graph.x
        assert came.queries is graph.queries
        assert came.col is graph.col
    assert graph.tuples is None


@pytest.mark.parametrize("repeats", [True, False])
def test_too_many_connected_tuples_are_refused_at_the_limit_and_not_before(repeats):
    graph = nx.path_graph(6)
    count = len(by_definition(graph, 3, repeats))
    assert len(connected_tuples(read(graph), 3, repeats, limit=count).tuples) == count
    with pytest.raises(TooLargeError, match=f"limit of {count - 1}"):
        connected_tuples(read(graph), 3, repeats, limit=count - 1)


class Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor that was made."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = [value for value in (out if isinstance(out, tuple) else (out,)) if isinstance(value, torch.Tensor)]
        self.numel = max([self.numel, *(tensor.numel() for tensor in tensors)])
        return out


def test_too_many_tuples_are_refused_before_they_are_allocated(monkeypatch):
    star = read(nx.star_graph(8_000))  # 3.2·10^7 connected sets of three nodes, 1.9·10^8 tuples
    with Largest() as largest, pytest.raises(TooLargeError, match="limit of 50,000,000"):
        connected_tuples(star, 3)
    with largest, pytest.raises(TooLargeError, match="limit of 1,000"):
        connected_tuples(star, 4, limit=1000)
    assert 8_000 < largest.numel < 1_000_000

    monkeypatch.setattr(sampling, "_draw", lambda *args: pytest.fail("tuples were drawn"))
    for order, budget in ((3, 60_000_000), (5, 10)):
        with pytest.raises(TooLargeError, match="limit of 50,000,000"):
            random_tuples(star, order, budget)


def test_a_high_order_on_a_small_graph_costs_no_more_than_its_tuples():
    assert tuples_of(connected_tuples(read(nx.empty_graph(2)), 12)) == [[(0,) * 12, (1,) * 12]]


# ---- random tuples


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("budget", [1, 3, 20, 64, 1000])
def test_random_tuples_are_distinct_sorted_and_as_many_as_asked_or_all(order, budget):
    graphs = list(GRAPHS.values())[:6]
    for graph, rows in zip(graphs, tuples_of(random_tuples(read(graphs), order, budget)), strict=True):
        assert rows == sorted(set(rows))
        assert len(rows) == min(budget, len(graph) ** order)
        assert all(0 <= v < len(graph) for row in rows for v in row)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_sample_depends_on_seed_and_graph_but_not_on_the_batch(share):
    graphs = [nx.gnp_random_graph(8, 0.4, seed=seed) for seed in range(4)]
    batch = tuples_of(random_tuples(read(graphs), 3, 40, seed=5, connected_share=share))
    alone = [tuples_of(random_tuples(read(graph), 3, 40, seed=5, connected_share=share))[0] for graph in graphs]
    turned = tuples_of(random_tuples(read(graphs[::-1]), 3, 40, seed=5, connected_share=share))
    assert batch == alone == turned[::-1]
    assert len({tuple(rows) for rows in batch}) == 4
    assert tuples_of(random_tuples(read(graphs), 3, 40, seed=6, connected_share=share)) != batch


@pytest.mark.parametrize("budget", [10, 30])
def test_random_tuples_are_uniform(budget):
    """Each of 64 tuples is drawn in budget/64 of the seeds, by both ways of drawing (sparse and dense)."""
    graph, seeds = read(nx.path_graph(8)), 1500
    counts = Counter(row for seed in range(seeds) for row in tuples_of(random_tuples(graph, 2, budget, seed))[0])
    share = budget / 64
    came = np.array([counts[row] for row in product(range(8), repeat=2)])
    deviations = (came - seeds * share) / np.sqrt(seeds * share * (1 - share))
    assert np.abs(deviations).max() < 4.5
    assert 0.5 < deviations.std() < 1.5


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_a_share_of_the_sample_is_connected(share):
    graph, budget = nx.path_graph(30), 40  # 118 of 900 pairs are connected, or the same; 13 %
    connected = set(by_definition(graph, 2))
    seeds = range(50)
    came = [tuples_of(random_tuples(read(graph), 2, budget, seed, share))[0] for seed in seeds]
    assert all(len(set(rows)) == budget for rows in came)
    found = [len(connected & set(rows)) for rows in came]
    assert min(found) >= budget * share
    assert np.mean(found) == pytest.approx(budget * (share + (1 - share) * len(connected) / 900), abs=1.5)


def test_a_share_beyond_the_connected_tuples_is_filled_up_at_random():
    rows = tuples_of(random_tuples(read(nx.empty_graph(9)), 2, 20, connected_share=1.0))[0]
    assert len(set(rows)) == 20
    assert {(v, v) for v in range(9)} <= set(rows)


def test_directed_graphs_are_sampled_like_their_undirected_form():
    directed = read(GRAPHS["directed"], directed=True)
    undirected = read(GRAPHS["directed"].to_undirected())
    for draw in (lambda g: connected_tuples(g, 3), lambda g: random_tuples(g, 3, 20, connected_share=0.5)):
        assert tuples_of(draw(directed)) == tuples_of(draw(undirected))


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda graph: random_tuples(graph, 2, 0), "random:N"),
        (lambda graph: random_tuples(graph, 2, 5, connected_share=1.5), "connected_share"),
        (lambda graph: random_tuples(graph, 2, 5, seed=-1), "seed"),
        (lambda graph: random_tuples(graph, 0, 5), "order"),
        (lambda graph: connected_tuples(graph, 0), "order"),
    ],
)
def test_meaningless_options_are_refused(call, text):
    with pytest.raises(OptionError, match=f"^{text}: expected .*; came "):
        call(read(nx.path_graph(3)))


# ---- transforms

TRANSFORMS = {
    "connected": (ConnectedTuples(3), lambda graph: connected_tuples(graph, 3)),
    "connected, no repeats": (ConnectedTuples(2, repeats=False), lambda graph: connected_tuples(graph, 2, False)),
    "random": (RandomTuples(3, 30, seed=4), lambda graph: random_tuples(graph, 3, 30, 4)),
    "random, connected share": (
        RandomTuples(2, 9, connected_share=0.5),
        lambda graph: random_tuples(graph, 2, 9, connected_share=0.5),
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_draw_what_the_functions_draw_and_collate(name):
    transform, draw = TRANSFORMS[name]
    data = [as_data(graph, x=torch.rand(len(graph), 2)) for graph in list(GRAPHS.values())[:6]]
    expected = draw(read(data))
    drawn = [transform(item) for item in data]
    loaded = next(iter(DataLoader(drawn, batch_size=len(drawn))))
    for form in (drawn, Batch.from_data_list(drawn), loaded):
        came = read(form)
        assert came.tuple_counts == expected.tuple_counts
        assert torch.equal(came.tuples, expected.tuples)
        assert torch.equal(came.x, expected.x)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_do_not_alter_their_input(name):
    data = as_data(nx.path_graph(4), x=torch.rand(4, 2))
    before = data.clone()
    drawn = TRANSFORMS[name][0](data)
    assert set(data.keys()) == set(before.keys())
    assert all(torch.equal(torch.as_tensor(data[key]), torch.as_tensor(before[key])) for key in before.keys())  # noqa: SIM118
    assert drawn.num_tuples == len(drawn.tuples)
    assert drawn.x is data.x


def test_a_transform_samples_one_directional_edges_as_undirected_ones():
    graph = GRAPHS["directed"]
    data = Data(edge_index=torch.tensor(list(graph.edges)).t(), num_nodes=len(graph))
    assert [tuple(row) for row in ConnectedTuples(3)(data).tuples.tolist()] == by_definition(graph, 3)


def test_a_transform_refuses_graphs_that_were_collated_before():
    batch = Batch.from_data_list([as_data(nx.path_graph(2))] * 2)
    with pytest.raises(InputError, match=r"^data: expected one graph.*; came a Batch"):
        ConnectedTuples(2)(batch)


def test_the_name_of_a_transform_tells_its_options():
    assert repr(RandomTuples(3, 8, seed=1)) == "RandomTuples(order=3, budget=8, seed=1, connected_share=0.0)"
    assert repr(ConnectedTuples(2)) == "ConnectedTuples(order=2, repeats=True)"
