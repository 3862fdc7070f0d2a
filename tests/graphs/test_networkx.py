"""networkx graphs of every class are read: nodes in iteration order, attributes ``x`` and ``edge_attr``."""

import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
import torch

from tuplet.errors import InputError
from tuplet.graphs import read


def pairs_of(graph) -> list[tuple[int, int]]:
    return list(zip(graph.row.tolist(), graph.col.tolist(), strict=True))


def test_nodes_are_numbered_in_iteration_order_whatever_their_names():
    graph = nx.Graph()
    graph.add_nodes_from([("c", {"x": 3}), (("a", 1), {"x": 1}), (7, {"x": 2})])
    graph.add_edge(7, "c")
    came = read(graph)
    assert came.x.tolist() == [[3], [1], [2]]
    assert pairs_of(came) == [(0, 2), (2, 0)]


@pytest.mark.parametrize(
    "values, expected",
    [
        ([1, 2, 3], torch.tensor([[1], [2], [3]])),
        ([True, False, True], torch.tensor([[1], [0], [1]])),
        ([(1, 0), [2, 0], np.array([3, 1])], torch.tensor([[1, 0], [2, 0], [3, 1]])),
        ([0.5, 1, 2.5], torch.tensor([[0.5], [1.0], [2.5]], dtype=torch.float64)),
        ([torch.tensor([0.5, 1.0])] * 3, torch.tensor([[0.5, 1.0]] * 3)),
    ],
    ids=["whole numbers", "truth values", "columns", "real numbers", "tensors"],
)
def test_attributes_become_categorical_columns_or_real_vectors(values, expected):
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, dict(enumerate(values)), "x")
    nx.set_edge_attributes(graph, dict(zip(graph.edges, values, strict=False)), "edge_attr")
    came = read(graph)
    assert torch.equal(came.x, expected)
    assert pairs_of(came) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert torch.equal(came.edge_attr, expected[[0, 0, 1, 1]].to(came.edge_attr.dtype))


def test_other_attributes_are_left_alone():
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, "red", "colour")
    nx.set_edge_attributes(graph, 2.0, "weight")
    came = read(graph)
    assert came.x is None
    assert came.edge_attr is None


def test_a_directed_graph_is_kept_repaired_or_refused():
    graph = nx.DiGraph([(0, 1), (1, 2)])
    with pytest.raises(InputError, match=r"edge_index: expected both directions .*; came \(0, 1\)"):
        read(graph)
    assert pairs_of(read(graph, directed=True)) == [(0, 1), (1, 2)]
    assert pairs_of(read(graph, undirected="symmetrise")) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert pairs_of(read(graph.to_undirected(), directed=True)) == [(0, 1), (1, 0), (1, 2), (2, 1)]


def test_self_loops_become_flags():
    graph = nx.Graph([(0, 0), (0, 1)])
    graph.edges[0, 0]["edge_attr"], graph.edges[0, 1]["edge_attr"] = 5, 2
    came = read(graph)
    assert came.loop.tolist() == [2, -1]
    assert came.edge_attr.tolist() == [[2], [2], [5]]


@pytest.mark.parametrize("kind", [nx.MultiGraph, nx.MultiDiGraph])
def test_parallel_edges_merge_when_equal_and_are_refused_when_not(kind):
    graph = kind()
    graph.add_edge(0, 1, edge_attr=1)
    graph.add_edge(0, 1, edge_attr=1)
    assert read(graph, undirected="symmetrise").edge_attr.tolist() == [[1], [1]]
    graph.add_edge(0, 1, edge_attr=2)
    with pytest.raises(InputError, match=r"edge_attr: expected equal features .*; came the edge \(0, 1\) twice"):
        read(graph, undirected="symmetrise")


def test_views_and_subclasses_are_networkx_graphs():
    class Own(nx.Graph):
        pass

    assert read(nx.path_graph(5).subgraph([1, 2, 4])).sizes == (3,)
    assert read(Own([(0, 1)])).num_edges == 2


def test_a_graph_without_edges_may_stand_among_graphs_with_edge_features():
    graph = nx.path_graph(2)
    nx.set_edge_attributes(graph, 4, "edge_attr")
    came = read([nx.empty_graph(2), graph])
    assert came.edge_attr.tolist() == [[4], [4]]


BAD = {
    "some nodes only": ("x", {0: 1, 1: 2}, "1 without one"),
    "of two widths": ("x", {0: [1, 2], 1: [1], 2: [1, 2]}, "one shape"),
    "words": ("x", {0: "a", 1: "b", 2: "c"}, "numbers"),
    "objects": ("x", dict.fromkeys(range(3), object()), "numbers"),
    "tensors with a gradient": ("x", dict.fromkeys(range(3), torch.ones(1, requires_grad=True)), "grad"),
    "matrices": ("x", dict.fromkeys(range(3), np.eye(2)), "(3, 2, 2)"),
    "NaN": ("x", {0: 1.0, 1: float("nan"), 2: 1.0}, "row 1"),
    "some edges only": ("edge_attr", {(0, 1): 1}, "2 without one"),
    "words on edges": ("edge_attr", {(0, 1): "a", (1, 2): "b"}, "numbers"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_attributes_are_refused_by_name(case):
    field, values, text = BAD[case]
    graph = nx.path_graph(3)
    (nx.set_node_attributes if field == "x" else nx.set_edge_attributes)(graph, values, field)
    with pytest.raises(InputError, match=f"^{field}: expected .*; came ") as caught:
        read(graph)
    assert caught.value.field == field
    assert text in str(caught.value)


def test_networkx_need_not_be_installed():
    code = (
        "import sys; sys.modules['networkx'] = None\nfrom tuplet.graphs.door import read\nprint(read('Bw').num_edges)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == "6", ran.stderr
