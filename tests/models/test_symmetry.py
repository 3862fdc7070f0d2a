"""What is true of every model: permutation equivariance, batch invariance, agreement with the definition."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Batch, Data
from zoo import NAMES, TASKS, build

from tuplet import testing
from tuplet.attention import FavorFeatures, lines
from tuplet.graphs import read
from tuplet.graphs.graph6 import from_graph6
from tuplet.patterns.relation import TypeMatrix

GRAPHS = testing.graphs(max_nodes=5, node_types=3, edge_types=2, queries=3)
SMALL = testing.graphs(max_nodes=4, node_types=3, edge_types=2, queries=2)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=3)
@given(graph=GRAPHS, seed=st.integers(0, 9))
def test_renaming_nodes_renames_outputs(name, task, graph, seed):
    torch.manual_seed(seed)
    testing.assert_permutation_equivariant(build(name, task), graph, seed=seed)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=2)
@given(graphs=st.lists(GRAPHS, min_size=2, max_size=4))
def test_a_graph_does_not_see_its_batch(name, task, graphs):
    torch.manual_seed(len(graphs))
    testing.assert_batch_invariant(build(name, task), graphs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=3)
@given(graphs=st.lists(SMALL, min_size=1, max_size=3))
def test_torch_is_reference_forward_and_backward(name, task, graphs):
    torch.manual_seed(len(graphs))
    testing.assert_matches_reference(build(name, task), Batch.from_data_list(graphs))


@pytest.mark.parametrize("name", ["A2", "A2^Ngbh+", "A3^LN", "A2^LN+VT", "A1,2^Ngbh", "AS0:1^SN+VS", "AS0:1+bias"])
def test_training_mode_too(name):
    """Batch statistics included; on graphs without twins, since a norm of equal tokens divides rounding by nothing."""
    model = build(name, node_types=None, node_dim=2, edge_types=None).train()
    batch = Batch.from_data_list([from_graph6(text) for text in ("DDW", "CF", "EEh_")])
    batch.x = torch.randn(batch.num_nodes, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    testing.assert_matches_reference(model, batch)


JOINT = (
    "A2^Ngbh",
    "A2^Ngbh+",
    "A3^LN",
    "A2^LN+VT",
    "A2^Ngbh++VT",
    "A2-ReLU^Ngbh+VT",
    "A2-Performer^Ngbh+VT",
    "A1,2^Ngbh",
    "A2,1^Ngbh",
)


@pytest.mark.parametrize("name", JOINT)
@pytest.mark.parametrize("relation", ["none", "bias", "scale", "reweight"])
@settings(max_examples=2)
@given(graphs=st.lists(SMALL, min_size=2, max_size=3))
def test_the_joint_softmax_too(name, relation, graphs):
    if relation == "none" and "Ngbh+" in name.replace("Ngbh+VT", ""):
        relation = None
    if relation == "scale" and "Performer" in name:
        relation = None  # refused: FAVOR+ knows its scores up to a constant only
    model = build(name, softmax="joint", relation=relation)
    testing.assert_matches_reference(model, Batch.from_data_list(graphs))
    testing.assert_batch_invariant(model, graphs)
    testing.assert_permutation_equivariant(model, graphs[0])


OPTIONS = (
    {"norm": "layer"},
    {"norm": "none"},
    {"norm_position": "pre"},
    {"first_norm": True},
    {"pool": "mean"},
    {"pool": "max"},
    {"init": "sum"},
    {"degree": True},
    {"activation": "relu"},
    {"virtual": 3},
    {"heads": 4},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["A2^LN+VT", "A3^Ngbh+"])
@settings(max_examples=2)
@given(graphs=st.lists(SMALL, min_size=2, max_size=3))
def test_every_option_keeps_the_symmetries(name, options, graphs):
    for task in ("graph", "node"):
        model = build(name, task, **options)
        testing.assert_matches_reference(model, Batch.from_data_list(graphs))
        testing.assert_batch_invariant(model, graphs)
        testing.assert_permutation_equivariant(model, graphs[0])


TOLD_APART = ("A1^LN", "A2^LN", "A3^LN", "A2^LN+VT", "A2(connected)^LN", "A2^Ngbh+", "A2^Ngbh++VT", "A2-ReLU^LN")


@pytest.mark.parametrize("name", TOLD_APART)
@pytest.mark.parametrize("softmax", ["groups", "joint"])
@pytest.mark.parametrize("relation", [None, "scale", "reweight"])
@settings(max_examples=2)
@given(graphs=st.lists(SMALL, min_size=2, max_size=3))
def test_a_relation_that_tells_edges_apart(name, softmax, relation, graphs):
    model = build(name, edge_relation=True, softmax=softmax, relation=relation)
    testing.assert_matches_reference(model, Batch.from_data_list(graphs))
    testing.assert_batch_invariant(model, graphs)
    testing.assert_permutation_equivariant(model, graphs[0])


@pytest.mark.parametrize("name", TOLD_APART)
@pytest.mark.parametrize("softmax", ["groups", "joint"])
def test_a_relation_that_could_tell_edges_apart_and_does_not(name, softmax):
    """With the same number for every kind of edge it is the relation without kinds; with others it is not."""
    plain = build(name, softmax=softmax, relation="bias", edge_types=3)
    apart = build(name, softmax=softmax, edge_types=3, edge_relation=True)
    state = plain.state_dict()
    for key, table in apart.state_dict().items():
        if table.shape != state[key].shape:
            # of Ngbh+ the tuple itself, then "not adjacent" and "adjacent" of each group
            edges = [row > 0 and row % 2 == 0 if "Ngbh+" in name else True for row in range(len(state[key]))]
            state[key] = state[key].repeat_interleave(torch.tensor([3 if edge else 1 for edge in edges]), 0)
    apart.load_state_dict(state)
    graph = from_graph6("EEh_")
    graph.x = torch.arange(graph.num_nodes) % 3
    graph.edge_attr = (graph.edge_index.sum(0) * 7 + graph.edge_index.prod(0)) % 3
    same = plain([graph])
    torch.testing.assert_close(apart([graph]), same, rtol=1e-12, atol=1e-12)
    for key, table in apart.named_parameters():
        if ".tables." in key:
            table.data[-1] += 1
    assert (apart([graph]) - same).abs().max() > 1e-6


@pytest.mark.parametrize("name", ["A2^Ngbh+", "A2^LN", "A2(connected)^LN"])
@pytest.mark.parametrize("columns", [[0], [2, 0]], ids=str)
def test_columns_that_tell_edges_apart(name, columns):
    """Of molecules' bonds, say, the type and whether they are conjugated: what the other columns hold plays no part in the relation."""
    model = build(name, edge_types=[5, 6, 2], edge_relation=columns)
    graph = from_graph6("EEh_")
    graph.x = torch.arange(graph.num_nodes) % 3
    ends = graph.edge_index
    graph.edge_attr = torch.stack([ends.sum(0) % 5, ends.prod(0) % 6, (ends[0] - ends[1]).abs() % 2], 1)
    testing.assert_matches_reference(model, graph)
    testing.assert_permutation_equivariant(model, graph)
    kinds, batch = model.config.edge_kinds, read([graph])
    numbers, features = kinds.of_edges(batch).tolist(), [tuple(row) for row in batch.edge_attr[:, columns].tolist()]
    assert kinds.count == (5 if columns == [0] else 10)
    assert len(set(numbers)) == len(set(features)) == len(set(zip(numbers, features, strict=True))) > 2


@pytest.mark.parametrize("name", ["A2^Ngbh+", "A2^LN", "A2(connected)^LN"])
@pytest.mark.parametrize("softmax", ["groups", "joint"])
@settings(max_examples=4)
@given(graph=testing.graphs(max_nodes=4, node_types=3), seed=st.integers(0, 99))
def test_directed_edges_told_apart(name, softmax, graph, seed):
    """Both directions of an edge may be of different kinds, or one of them may be missing."""
    generator = torch.Generator().manual_seed(seed)
    kept = graph.edge_index[:, torch.rand(graph.num_edges, generator=generator) < 0.7]
    kinds = torch.randint(2, (kept.shape[1],), generator=generator)
    directed = Data(x=graph.x, edge_index=kept, edge_attr=kinds, num_nodes=graph.num_nodes)
    model = build(name, "node", directed=True, edge_relation=True, softmax=softmax)
    testing.assert_permutation_equivariant(model, directed, seed=seed)
    testing.assert_matches_reference(model, directed)


@pytest.mark.parametrize("name", ["A2^Ngbh+", "A2^LN", "A3^LN", "A2(connected)^LN", "A2^Ngbh++VT", "A1,2^Ngbh"])
@settings(max_examples=5)
@given(graph=testing.graphs(max_nodes=5, node_types=3), seed=st.integers(0, 99))
def test_directed_graphs(name, graph, seed):
    keep = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(seed)) < 0.6
    directed = Data(x=graph.x, edge_index=graph.edge_index[:, keep], num_nodes=graph.num_nodes)
    model = build(name, "node", directed=True, edge_types=None, degree=True)
    testing.assert_permutation_equivariant(model, directed, seed=seed)
    testing.assert_matches_reference(model, directed)


def test_index_breaks_the_symmetry_as_the_paper_says():
    """Theorem 3.3 buys its power with permutation invariance; everything else about the model stays intact."""
    model = build("A2+index", node_types=None, edge_types=None)
    with pytest.raises(AssertionError, match="renaming nodes"):
        testing.assert_permutation_equivariant(model, "DDW")
    testing.assert_matches_reference(model, ["DDW", "A_"])
    testing.assert_batch_invariant(model, ["DDW", "A_"])


class TestTheChecksCanFail:
    """Each symmetry test is run on a model that is broken on purpose, in the ways of the released code."""

    def test_relation_by_node_numbering(self, monkeypatch):
        monkeypatch.setattr(TypeMatrix, "types", lambda self, lines, q, k, i, j: (q[:, :, None] < k[:, None, :]).long())
        model = build("A2^Ngbh+", node_types=None, edge_types=None)
        with pytest.raises(AssertionError, match="renaming nodes"):
            testing.assert_permutation_equivariant(model, "DDW")
        with pytest.raises(AssertionError, match="differ from reference"):
            testing.assert_matches_reference(model, "DDW")

    def test_padding_in_a_normaliser(self, monkeypatch):
        monkeypatch.setattr(
            "tuplet.patterns.structure.block_size", lambda device: 1 << 22
        )  # all sizes in one padded block
        real = lines._take
        monkeypatch.setattr(lines, "_take", lambda x, token, exists=None: real(x, token))
        with pytest.raises(AssertionError, match="the batch around a graph"):
            testing.assert_batch_invariant(build("A2-Performer", node_types=None, edge_types=None), ["DDW", "C~", "A_"])

    def test_a_stabiliser_over_the_whole_batch(self, monkeypatch):
        real = FavorFeatures.keys
        monkeypatch.setattr(FavorFeatures, "epsilon", 1e-2)
        monkeypatch.setattr(
            FavorFeatures, "keys", lambda self, keys, graphs, n: real(self, keys, [g * 0 for g in graphs], n)
        )
        with pytest.raises(AssertionError, match="the batch around a graph"):
            testing.assert_batch_invariant(build("A2-Performer", node_types=None, edge_types=None), ["DDW", "C~", "A_"])

    def test_dropout_in_evaluation(self, monkeypatch):
        monkeypatch.setattr(nn.Dropout, "forward", lambda self, x: nn.functional.dropout(x, 0.2, training=True))
        model = build("A2^LN", node_types=None, edge_types=None)
        with pytest.raises(AssertionError, match="the batch around a graph"):
            testing.assert_batch_invariant(model, ["DDW", "C~"])
        with pytest.raises(AssertionError, match="renaming nodes"):
            testing.assert_permutation_equivariant(model, "DDW")

    def test_neighbourhoods_swapped(self, monkeypatch):
        from tuplet.patterns import LocalNeighbour

        real = LocalNeighbour.layout
        monkeypatch.setattr(LocalNeighbour, "layout", lambda self, q, k, j, *rest: real(self, q, k, 1 - j, *rest))
        with pytest.raises(AssertionError, match="differ from reference"):
            testing.assert_matches_reference(build("A2^LN", "node", node_types=None, edge_types=None), ["DDW", "CF"])
