"""Circular skip links: sizes, classes, folds, and the published graphs."""

import itertools
import os
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.utils import degree, to_networkx

from tuplet.datasets import CSL_NODES, CSL_SKIPS, csl, csl_folds


@pytest.fixture(scope="module")
def graphs():
    return csl()


def as_networkx(data):
    return to_networkx(data, to_undirected=True)


def test_sizes_and_degrees(graphs):
    assert len(graphs) == 150
    assert torch.cat([graph.y for graph in graphs]).bincount().tolist() == [15] * 10
    for graph in graphs:
        assert graph.num_nodes == CSL_NODES
        assert graph.edge_index.shape == (2, 164)
        assert graph.is_undirected()
        assert not graph.has_self_loops()
        assert degree(graph.edge_index[0], CSL_NODES).eq(4).all()


def test_classes_are_not_isomorphic():
    circulants = [nx.circulant_graph(CSL_NODES, [1, skip]) for skip in CSL_SKIPS]
    for one, other in itertools.combinations(circulants, 2):
        assert not nx.is_isomorphic(one, other)


def test_copies_are_isomorphic_and_numbered_anew(graphs):
    for graph in graphs:
        circulant = nx.circulant_graph(CSL_NODES, [1, CSL_SKIPS[int(graph.y)]])
        assert nx.is_isomorphic(as_networkx(graph), circulant)
    distinct = {frozenset(map(tuple, graph.edge_index.t().tolist())) for graph in graphs}
    assert len(distinct) == 150


def test_seed_decides(graphs):
    again, other = csl(), csl(seed=1)
    assert all(torch.equal(one.edge_index, two.edge_index) for one, two in zip(graphs, again, strict=True))
    assert not torch.equal(graphs[0].edge_index, other[0].edge_index)
    assert csl_folds(3) == csl_folds(3) != csl_folds(4)


def test_folds_are_stratified_and_tests_partition(graphs):
    folds = csl_folds()
    labels = torch.cat([graph.y for graph in graphs])
    assert len(folds) == 5
    for fold in folds:
        for part, count in ((fold.train, 9), (fold.val, 3), (fold.test, 3)):
            assert labels[part].bincount(minlength=10).tolist() == [count] * 10
        assert sorted(fold.train + fold.val + fold.test) == list(range(150))
    assert sorted(index for fold in folds for index in fold.test) == list(range(150))


def test_same_classes_as_published():
    folder = Path(os.environ.get("TUPLET_DATA", Path(__file__).parents[3] / "shared" / "data")) / "csl"
    if not folder.exists():
        pytest.skip(f"the published graphs are not at {folder}; set TUPLET_DATA to the folder that holds csl/csl.npz")
    published = np.load(folder / "csl.npz", allow_pickle=False)
    assert len(published["y"]) == 150
    for graph, label in enumerate(published["y"]):
        edges = published["edges"][published["edge_ptr"][graph] : published["edge_ptr"][graph + 1]]
        circulant = nx.circulant_graph(CSL_NODES, [1, CSL_SKIPS[label]])
        assert nx.is_isomorphic(nx.Graph(edges.tolist()), circulant)
