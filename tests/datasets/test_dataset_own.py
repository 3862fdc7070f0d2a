"""Own graphs: PyG, networkx, graph6; graph, node and edge tasks."""

import networkx as nx
import pytest
import torch
from torch_geometric.data import Data, InMemoryDataset

import tuplet
from tuplet.datasets import load
from tuplet.errors import InputError, OptionError


def ring(n, **more):
    node = torch.arange(n)
    pairs = torch.stack([torch.cat([node, (node + 1) % n]), torch.cat([(node + 1) % n, node])])
    return Data(edge_index=pairs, num_nodes=n, **more)


def test_list_of_data_for_regression():
    graphs = [ring(n, x=torch.randn(n, 3), y=torch.tensor([float(n)])) for n in range(3, 23)]
    task = load(graphs, name="rings")
    assert (task.name, task.kind, task.outputs, task.node_dim, task.node_types) == ("rings", "regression", 1, 3, None)
    assert task.graphs[4].y.shape == (1, 1)
    assert tuple(map(len, task.splits[0].values())) == (16, 2, 2)
    assert graphs[0].y.shape == (1,)  # what was given is not altered
    model = tuplet.build("A2^LN", dim=8, depth=1, heads=2, **task.model_options())
    assert model(list(task.graphs)[:3]).shape == (3, 1)


def test_classes_and_types():
    graphs = [
        ring(n, x=torch.arange(n)[:, None] % 3, edge_attr=torch.ones(2 * n, dtype=torch.long), y=torch.tensor(n % 4))
        for n in range(3, 43)
    ]
    task = load(graphs, split="stratified", fractions=(0.5, 0.25, 0.25))
    assert (task.kind, task.outputs, task.node_types, task.edge_types) == ("classification", 4, (3,), (2,))
    labels = torch.cat([data.y for data in task.graphs])
    for part, count in (("train", 5), ("val", 2.5), ("test", 2.5)):
        assert all(abs(found - count) <= 1 for found in labels[task.splits[0][part]].bincount(minlength=4).tolist())


def test_missing_targets_and_several():
    y = torch.rand(12, 2).round()
    y[3, 1] = float("nan")
    task = load([ring(4, y=row) for row in y])
    assert (task.kind, task.outputs) == ("binary", 2)
    assert bool(task.graphs[3].y[0, 1].isnan())


def test_missing_classes_are_minus_one():
    graphs = [ring(n, y=torch.tensor([n % 3 - 1])) for n in range(3, 23)]
    task = load(graphs, split="stratified")
    assert (task.kind, task.outputs, task.targets) == ("classification", 2, ("0", "1"))
    assert [int(data.y) for data in task.graphs] == [n % 3 - 1 for n in range(3, 23)]
    real = [ring(n, y=torch.tensor([float("nan") if n % 3 == 0 else n % 3 - 1.0])) for n in range(3, 23)]
    again = load(real, kind="classification")
    assert [int(data.y) for data in again.graphs] == [int(data.y) for data in task.graphs]
    words = load(graphs, labels=[None if n % 3 == 0 else "ab"[n % 2] for n in range(20)])
    assert words.targets == ("a", "b")
    assert [int(data.y) == -1 for data in words.graphs] == [n % 3 == 0 for n in range(20)]
    nodes = load(ring(9, y=torch.arange(9) % 3 - 1, train_mask=torch.ones(9).bool(), val_mask=torch.zeros(9).bool(),
                      test_mask=torch.zeros(9).bool()))  # fmt: skip
    assert nodes.graphs[0].y.tolist() == [-1, 0, 1] * 3
    edges = [
        ring(5, edge_label_index=torch.tensor([[0, 0], [1, 2]]), edge_label=torch.tensor([1, -1])) for _ in range(5)
    ]
    assert load(edges).graphs[0].edge_label.tolist() == [1, -1]


def test_pyg_data_set():
    class Rings(InMemoryDataset):
        def __init__(self):
            super().__init__(None)
            self.data, self.slices = self.collate([ring(n, y=torch.tensor([n % 2])) for n in range(3, 13)])

    task = load(Rings())
    assert len(task.graphs) == 10
    assert task.outputs == 2


def test_networkx_with_labels_of_the_graph_or_a_list():
    graphs = [nx.path_graph(n) for n in range(2, 12)]
    for n, graph in enumerate(graphs):
        graph.graph["y"] = 0.5 * n
        nx.set_node_attributes(graph, 1, "x")
    own = load(graphs)
    assert [float(data.y) for data in own.graphs] == [0.5 * n for n in range(10)]
    assert own.node_types == (2,)
    listed = load(graphs, labels=[n % 3 for n in range(10)])
    assert (listed.kind, listed.outputs) == ("classification", 3)
    words = load(graphs, labels=["even" if n % 2 == 0 else "odd" for n in range(10)])
    assert words.targets == ("even", "odd")


def test_known_classes_need_not_all_be_there(tmp_path):
    graphs = [ring(n, y=torch.tensor([1])) for n in range(3, 9)]
    (tmp_path / "labels.txt").write_text("b\n" * 6)
    for task in (
        load(graphs, classes=["0", "1", "2"]),
        load(graphs, classes=[0, 1, 2]),
        load(graphs, labels=tmp_path / "labels.txt", classes=["a", "b", "c"]),
    ):
        assert task.outputs == 3
        assert [int(data.y) for data in task.graphs] == [1] * 6


def test_directed_and_symmetrised():
    graphs = [nx.path_graph(n, create_using=nx.DiGraph) for n in range(3, 9)]
    with pytest.raises(
        InputError, match=r"graphs\[0\]: expected a graph that can be read; came edge_index.*directed=True"
    ):
        load(graphs, labels=range(6))
    assert load(graphs, labels=[0.5 * n for n in range(6)], directed=True).directed
    both = load(graphs, labels=[0.5 * n for n in range(6)], undirected="symmetrise")
    assert both.graphs[0].is_undirected()


def test_graph6_file_with_labels(tmp_path):
    (tmp_path / "g.g6").write_text("C~\nDDW\nCF\nA_\n")
    (tmp_path / "labels.txt").write_text("1.5\n\n0\n2\n")
    task = load(tmp_path / "g.g6", labels=tmp_path / "labels.txt", fractions=(0.5, 0.25, 0.25))
    assert [data.num_nodes for data in task.graphs] == [4, 5, 4, 2]
    assert task.graphs[1].y.isnan().all()
    assert task.kind == "regression"
    (tmp_path / "labels.txt").write_text("1, 0\n0 1\n1 1\n0,0\n")
    assert load(tmp_path / "g.g6", labels=str(tmp_path / "labels.txt")).outputs == 2


def test_node_task_with_masks_or_a_split():
    n = 20
    masks = {f"{part}_mask": torch.arange(n) % 4 == place for place, part in enumerate(("train", "val", "test"))}
    data = ring(n, x=torch.randn(n, 2), y=torch.arange(n) % 3, **masks)
    task = load([data])
    assert (task.level, task.kind, task.outputs, task.size) == ("node", "classification", 3, 20)
    assert task.splits[0]["val"].tolist() == [1, 5, 9, 13, 17]
    model = tuplet.build("A1", dim=8, depth=1, heads=2, **task.model_options())
    assert model([task.graphs[0]]).shape == (20, 3)
    other = load(ring(n, y=torch.randn(n, 2)), level="node", split="stratified")
    assert (other.kind, other.outputs) == ("regression", 2)
    assert len(other.mean) == 2


def test_edge_task():
    graphs = [
        ring(n, edge_label_index=torch.tensor([[0, 0], [1, 2]]), edge_label=torch.tensor([1, 0])) for n in range(4, 14)
    ]
    task = load(graphs)
    assert (task.level, task.kind, task.outputs) == ("edge", "classification", 2)
    assert task.graphs[0].edge_label.tolist() == [1, 0]
    model = tuplet.build("A2", dim=8, depth=1, heads=2, **task.model_options())
    assert model(list(task.graphs)[:3]).shape == (6, 2)


def test_a_given_split():
    graphs = [ring(n, y=torch.tensor([0.5 * n])) for n in range(3, 9)]
    task = load(graphs, split={"train": [0, 5], "test": [2]})
    assert task.splits[0]["train"].tolist() == [0, 5]
    with pytest.raises(InputError, match="each position in one part, once"):
        load(graphs, split={"train": [0, 1], "test": [1]})
    with pytest.raises(InputError, match=r"splits\[0\]\['test'\]: expected positions 0..5"):
        load(graphs, split={"train": [0], "test": [6]})
    with pytest.raises(OptionError, match="split: expected 'random', 'stratified'"):
        load(graphs, split="scaffold")
