"""First features are equal exactly when ordered isomorphism types are."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

import tuplet
from tuplet import testing
from tuplet.graphs import read
from tuplet.tokens import Tuples


def isomorphism_type(graph, entries):
    """Which entries are equal, node features, loops, and for every two places the edge there with its features."""
    edges = dict(zip(map(tuple, graph.edge_index.t().tolist()), graph.edge_attr.tolist(), strict=True))
    kinds = graph.x.reshape(graph.num_nodes, -1).tolist()
    return (
        tuple(entries.index(node) for node in entries),
        tuple(tuple(kinds[node]) for node in entries),
        tuple(edges.get((node, node)) for node in entries),
        tuple(edges.get((u, v)) for u, v in itertools.permutations(entries, 2) if u != v),
    )


def first_features(model, graphs):
    with torch.no_grad():
        prepared = model.prepare(graphs)
        rows = model.embed(prepared)[1]
    return rows, [isomorphism_type(graphs[g], entries) for g, entries in prepared.queries.tolist()]


def agree(rows, types):
    """Whether distances between rows are zero exactly for equal types."""
    number = {kind: position for position, kind in enumerate(dict.fromkeys(types))}
    labels = torch.tensor([number[kind] for kind in types])
    apart = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist") > 1e-9
    return torch.equal(apart, labels[:, None] != labels[None, :])


@pytest.mark.parametrize("order", [1, 2, 3])
@settings(max_examples=8)
@given(graphs=st.lists(testing.graphs(max_nodes=4, node_types=2, edge_types=2), min_size=1, max_size=3))
def test_concatenation_is_injective_on_isomorphism_types(order, graphs):
    model = tuplet.build(f"A{order}", dim=16, heads=4, node_types=2, edge_types=2).double()
    assert agree(*first_features(model, graphs))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_directed_types(order):
    edges = torch.tensor([[0, 1, 2, 3, 3], [1, 2, 0, 2, 3]])
    graph = Data(x=torch.tensor([0, 0, 1, 0]), edge_index=edges, edge_attr=torch.tensor([0, 1, 0, 1, 1]))
    model = tuplet.build(f"A{order}", dim=16, heads=4, node_types=2, edge_types=2, directed=True).double()
    assert agree(*first_features(model, [graph]))


def test_the_sum_forgets_which_entry_is_which():
    """The optional form of the paper is symmetric in the entries, so it must fail the same check."""
    graph = Data(x=torch.tensor([0, 1]), edge_index=torch.tensor([[0, 1], [1, 0]]), edge_attr=torch.tensor([0, 0]))
    model = tuplet.build("A2", dim=16, heads=4, node_types=2, edge_types=2, init="sum").double()
    rows, types = first_features(model, [graph])
    assert not agree(rows, types)
    torch.testing.assert_close(rows[1], rows[2])  # (0, 1) and (1, 0)


def test_the_numbering_of_tuples():
    """Token numbers are mixed-radix: offsets of graphs, strides of axes."""
    tuples = Tuples.all(read(["DDW", "A_"]), 3)
    assert tuples.counts == (125, 8)
    assert tuples.tolist() == [
        (graph, entries) for graph, n in enumerate((5, 2)) for entries in itertools.product(range(n), repeat=3)
    ]
    assert tuples.stride(0).tolist() == [25, 4]
    assert torch.equal(tuples.code((0, 1, 2)), torch.arange(133))
    assert tuples.nodes is None
