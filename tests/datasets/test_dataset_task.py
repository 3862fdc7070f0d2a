"""Tasks and packed graphs: what they refuse, how they are cut, and that a graph is a copy of its own."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from tuplet.datasets import Task, load
from tuplet.datasets.packed import PackedGraphs, WithFields
from tuplet.errors import InputError, OptionError


def graphs(count=6):
    made = []
    for number in range(count):
        n = number % 3 + 1
        path = torch.arange(n - 1)
        pairs = torch.stack([torch.cat([path, path + 1]), torch.cat([path + 1, path])])
        made.append(
            Data(x=torch.full((n, 2), number), edge_index=pairs, y=torch.tensor([[float(number)]]), num_nodes=n)
        )
    return made


def make(**changes):
    split = {"train": torch.arange(4), "val": torch.tensor([4]), "test": torch.tensor([5])}
    options = {
        "name": "t",
        "graphs": graphs(),
        "splits": (split,),
        "level": "graph",
        "kind": "regression",
        "outputs": 1,
    }
    return Task(**{**options, "loss": "l1", "metric": "mae", **changes})


def test_parts_and_limits():
    task = make()
    assert [float(data.y) for data in task.part("train")] == [0, 1, 2, 3]
    small = task.limited(train=2, test=0)
    assert [len(positions) for positions in small.splits[0].values()] == [2, 1, 0]
    assert not task.maximise
    assert repr(task) == "Task('t': 6 graphs, 4/1/1, graph regression, mae)"
    with pytest.raises(OptionError, match="part: expected one of train, val, test; came 'valid'"):
        task.part("valid")


@pytest.mark.parametrize(
    "changes, error, sentence",
    [
        ({"level": "pair"}, OptionError, "level: expected one of 'graph', 'node', 'edge'; came 'pair'"),
        ({"kind": "ranking"}, OptionError, "kind: expected one of 'regression'"),
        ({"loss": "bce"}, OptionError, "loss: expected one of 'l1', 'mse' for regression; came 'bce'"),
        ({"metric": "rocauc"}, OptionError, "metric: expected one of 'mae', 'mse' for regression"),
        ({"splits": ()}, InputError, "splits: expected at least one split; came none"),
        (
            {"splits": ({"valid": torch.arange(2)},)},
            InputError,
            r"splits\[0\]: expected the parts train, val, test; came 'valid'",
        ),
        ({"splits": ({"train": torch.arange(9)},)}, InputError, r"expected positions 0\.\.5; came 0\.\.8"),
        ({"splits": ({"train": torch.ones(2)},)}, InputError, r"expected int64 positions \(m,\)"),
        ({"level": "node"}, InputError, "graphs: expected one graph for a node task; came 6"),
    ],
)
def test_what_makes_no_task(changes, error, sentence):
    with pytest.raises(error, match=sentence):
        make(**changes)


def test_packed_graphs_are_the_graphs():
    packed = PackedGraphs.from_graphs(graphs())
    again = PackedGraphs.from_arrays(packed.to_arrays())
    taken = packed.take(torch.tensor([5, 0, 0]))
    for number, data in enumerate(graphs()):
        for found in (
            packed[number],
            again[number],
            packed[number - 6],
            packed.part(1, 6)[number - 1] if number else packed[0],
        ):
            assert all(torch.equal(found[key], data[key]) for key in ("x", "edge_index", "y"))
            assert found.num_nodes == data.num_nodes
    assert [int(data.x[0, 0]) for data in taken] == [5, 0, 0]
    assert len(PackedGraphs.join([packed, taken])) == 9
    assert torch.equal(PackedGraphs.join([packed, taken])[6].edge_index, packed[5].edge_index)
    assert [data.num_nodes for data in packed[1:3]] == [2, 3]
    with pytest.raises(IndexError):
        packed[6]


def test_a_graph_is_a_copy():
    packed = PackedGraphs.from_graphs(graphs())
    packed[1].x.zero_()
    assert int(packed[1].x[0, 0]) == 1
    shown = WithFields(packed, None, lambda data: data)
    shown[1].x.zero_()
    assert int(shown[-5].x[0, 0]) == 1
    listed = graphs()
    marked = WithFields(listed, packed.only(["y"]), lambda data: data.update({"mark": 1}) or data)
    assert "mark" in marked[0]
    assert "mark" not in listed[0]


def test_a_loader_takes_them():
    packed = PackedGraphs.from_graphs(graphs())
    batches = list(DataLoader(packed, batch_size=4))
    assert [batch.num_graphs for batch in batches] == [4, 2]
    assert int(batches[0].edge_index.max()) == 1 + 2 + 3 - 1


def test_what_cannot_be_packed():
    odd = graphs()
    odd[3].more = torch.ones(1)
    with pytest.raises(
        InputError, match="more: expected the same attributes in every graph; came a difference in graph 3"
    ):
        PackedGraphs.from_graphs(odd)
    wide = graphs()
    wide[2].x = torch.ones(3, 5, dtype=torch.long)
    with pytest.raises(InputError, match="x: expected the same columns in every graph"):
        PackedGraphs.from_graphs(wide)
    text = graphs()
    for data in text:
        data.smiles = "C"
    with pytest.raises(InputError, match="smiles: expected a tensor with rows, or a number; came str"):
        PackedGraphs.from_graphs(text)


def test_arrays_hold_no_objects():
    arrays = PackedGraphs.from_graphs(graphs()).to_arrays()
    assert all(isinstance(array, np.ndarray) and not array.dtype.hasobject for array in arrays.values())
    assert load("csl").model_options() == {"task": "graph", "outputs": 10, "directed": False}
