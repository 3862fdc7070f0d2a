"""Batches of packed graphs: what ``read`` makes of them is what it makes of a list of the same graphs."""

from dataclasses import fields

import pytest
import torch
from torch_geometric.data import Data

from tuplet.datasets.packed import Checked, PackedGraphs, WithFields, batch_of
from tuplet.errors import InputError
from tuplet.graphs import read
from tuplet.models import build
from tuplet.topology import CliqueComplex
from tuplet.training.batches import checked_for, packed_for


def graph(n, joined, seed):
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.combinations(torch.arange(n))[:joined]
    ends = torch.cat([pairs, pairs.flip(1)]).t().contiguous()
    edge_attr = torch.randint(4, (joined,), generator=generator).repeat(2)
    asked = torch.zeros(2, seed % 3, dtype=torch.long)
    x = torch.randn(n, 3, generator=generator)
    return Data(edge_index=ends, num_nodes=n, x=x, edge_attr=edge_attr, edge_label_index=asked, y=torch.rand(1, 1))


GRAPHS = [graph(4, 5, 0), graph(1, 0, 1), graph(6, 0, 2), graph(3, 3, 3), graph(5, 4, 4)]


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def assert_read_alike(packed, members):
    batch = batch_of(packed, members)
    assert isinstance(batch, Data)
    found, expected = read(batch), read([packed[member] for member in members])
    for field in fields(expected):
        assert same(getattr(found, field.name), getattr(expected, field.name)), field.name


@pytest.mark.parametrize("members", [[0, 1, 2, 3, 4], [3, 0, 3], [1], [2, 1], [-1, 2]])
def test_a_batch_is_read_as_its_graphs_are(members):
    assert_read_alike(PackedGraphs.from_graphs(GRAPHS), members)
    assert_read_alike(PackedGraphs.from_graphs(GRAPHS).stored_as(torch.int8), members)


def test_no_graphs_and_odd_numbers_are_refused_as_in_a_list():
    with pytest.raises(InputError, match="at least one graph"):
        read(batch_of(PackedGraphs.from_graphs(GRAPHS), []))
    short = [Data(edge_index=g.edge_index.to(torch.int16), num_nodes=g.num_nodes) for g in GRAPHS]
    for given in (short, batch_of(PackedGraphs.from_graphs(short), [0, 3])):
        with pytest.raises(InputError, match=r"edge_index.*int64"):
            read(given)


def test_added_statistics_come_along():
    added = PackedGraphs.from_graphs([Data(num_nodes=g.num_nodes, pe_rwse=torch.rand(g.num_nodes, 4)) for g in GRAPHS])
    assert_read_alike(WithFields(PackedGraphs.from_graphs(GRAPHS), added), [4, 1, 0])


def test_simplices_come_along():
    packed = PackedGraphs.from_graphs([CliqueComplex(2)(data) for data in GRAPHS])
    assert_read_alike(packed, [3, 2, 0])
    model = build("AS0:1^SN", dim=8, heads=2, depth=1, node_dim=3, edge_types=4).eval()
    torch.testing.assert_close(model(batch_of(packed, [3, 2, 0])), model([packed[place] for place in (3, 2, 0)]))


def test_what_only_sounds_like_numbers_of_nodes_is_left_alone():
    odd = [Data(edge_index=g.edge_index, num_nodes=g.num_nodes, edge_index_kind=torch.ones(2)) for g in GRAPHS]
    assert_read_alike(PackedGraphs.from_graphs(odd), [2, 0])


def test_what_is_not_packed_or_is_to_be_changed_comes_as_a_list():
    packed = PackedGraphs.from_graphs(GRAPHS)
    assert len(batch_of(GRAPHS, [2, 0])) == 2
    assert batch_of(GRAPHS, [2, 0])[0] is GRAPHS[2]
    changed = batch_of(WithFields(packed, transform=lambda data: data.update({"seen": 1})), [4, 2, 1])
    assert [data.seen for data in changed] == [1, 1, 1]


def test_lists_are_packed_for_models_of_ours_where_graphs_are_alike():
    model = build("A1", node_types=3)
    alike = [Data(x=torch.zeros(n, 1, dtype=torch.long), edge_index=torch.empty(2, 0).long(), name="a") for n in (1, 4)]
    packed = packed_for(model, alike)
    assert isinstance(packed, PackedGraphs)
    assert set(packed.fields) == {"x", "edge_index"}
    assert packed_for(model, packed) is packed
    different = [alike[0], Data(edge_index=torch.empty(2, 0).long(), num_nodes=2)]
    assert packed_for(model, different) is different
    assert packed_for(torch.nn.Linear(1, 1), alike) is alike
    torch.testing.assert_close(model(batch_of(packed, [1, 0])), model([alike[1], alike[0]]))


def test_what_a_model_has_checked_is_read_alike():
    packed = PackedGraphs.from_graphs([CliqueComplex(2)(data) for data in GRAPHS])
    model = build("AS0:1^SN", dim=8, heads=2, depth=1, node_dim=3, edge_types=4).eval()
    checked = checked_for(model, packed, [3, 2, 0])
    assert isinstance(checked, Checked)
    assert checked_for(model, checked, [0]) is checked
    assert len(checked) == len(packed)
    assert torch.equal(checked[2].edge_index, packed[2].edge_index)
    one, other = model.read(batch_of(checked, [3, 2, 0])), model.read(batch_of(packed, [3, 2, 0]))
    assert one.checked
    assert not other.checked
    for field in ("ptr", "rowptr", "col", "loop", "x", "edge_attr"):
        assert torch.equal(getattr(one, field), getattr(other, field))
    assert all(map(torch.equal, one.simplices, other.simplices))
    assert torch.equal(model(batch_of(checked, [3, 2, 0])), model(batch_of(packed, [3, 2, 0])))


def test_lists_and_other_models_are_not_checked():
    assert checked_for(build("A1"), GRAPHS, [0]) is GRAPHS
    packed = PackedGraphs.from_graphs(GRAPHS)
    assert checked_for(torch.nn.Linear(1, 1), packed, [0]) is packed


@pytest.mark.parametrize(
    "field, values",
    [
        ("edge_index", torch.tensor([[0, 1], [1, 5]])),
        ("edge_index", torch.tensor([[0], [1]])),
        ("x", torch.tensor([[0], [9]])),
        ("simplex_index_1", torch.tensor([[1], [1]])),
        ("simplex_index_2", torch.tensor([[0], [1], [1]])),
        ("simplex_index_1", torch.empty(2, 0, dtype=torch.long)),
    ],
)
@pytest.mark.parametrize("name, encodings", [("AS0:1^SN", []), ("A2^LN", ["EdgeRWSE:4:4"])])
def test_every_graph_is_checked_before_the_first_batch(field, values, name, encodings):
    """Nodes that are not there, a direction without the other, features beyond those declared, sets that are no complex; where there is
    nothing to learn from it, a graph may be what it is."""

    def data(**changed):
        index = torch.tensor([[0, 1], [1, 0]])
        fields = {"x": torch.tensor([[0], [1]]), "edge_index": index, "simplex_index_1": index[:, :1]}
        return Data(**{**fields, "simplex_index_2": torch.empty(3, 0, dtype=torch.long), **changed})

    graphs = PackedGraphs.from_graphs([data(), data(), data(**{field: values})])
    model = build(name, dim=8, heads=4, depth=1, node_types=3, encodings=encodings)
    assert isinstance(checked_for(model, graphs, [0, 1]), Checked)
    with pytest.raises(InputError, match=r"edge_index|x:|simplex_index"):
        checked_for(model, graphs, [0, 1, 2])


def test_what_one_model_has_checked_another_checks_itself():
    graphs = PackedGraphs.from_graphs([Data(x=torch.tensor([[2]]), edge_index=torch.empty(2, 0, dtype=torch.long))])
    model, other = (build("A1", dim=8, heads=2, node_types=types) for types in (3, 1))
    graph = model.read(batch_of(checked_for(model, graphs, [0]), [0]))
    assert graph.checked
    with pytest.raises(InputError, match="x:"):
        other(graph)
