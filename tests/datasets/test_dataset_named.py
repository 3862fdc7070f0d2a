"""Data sets by name: sizes, splits, labels and targets as published; what is generated needs no folder."""

import time

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Batch
from torch_geometric.utils import to_networkx

import tuplet
from tuplet.datasets import CATALOGUE, load
from tuplet.datasets.counting import TARGETS
from tuplet.datasets.zinc import zinc_graph

PUBLISHED = {  # graphs, mean nodes, mean directed edges, split sizes
    "zinc": (12_000, 23.155333, 49.830833, (10_000, 1_000, 1_000)),
    "edge-detection": (12_000, 23.155333, 49.830833, (10_000, 1_000, 1_000)),
    "counting": (5_000, 18.8, 62.678, (1_500, 1_000, 2_500)),
    "molhiv": (41_127, 25.510322, 54.936562, (32_901, 4_113, 4_113)),
    "peptides-func": (15_535, 150.940393, 307.304409, (10_873, 2_331, 2_331)),
    "webkb-cornell": (1, 183, 298, (87, 59, 37)),
    "webkb-texas": (1, 183, 325, (87, 59, 37)),
    "webkb-wisconsin": (1, 251, 515, (120, 80, 51)),
}
LOADED = {}


@pytest.fixture
def named(packed):
    def get(name):
        if name not in LOADED:
            LOADED[name] = load(name, data=packed)
        return LOADED[name]

    return get


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_statistics(named, name):
    task = named(name)
    graphs, nodes, edges, sizes = PUBLISHED[name]
    assert len(task.graphs) == graphs
    if graphs == 1:
        data = task.graphs[0]
        assert (data.num_nodes, data.num_edges) == (nodes, edges)
        assert len(task.splits) == 10
    else:
        assert float(task.graphs.num_nodes.double().mean()) == pytest.approx(nodes, abs=1e-5)
        assert len(task.graphs.fields["edge_index"].values) / graphs == pytest.approx(edges, abs=1e-5)
    for split in task.splits:
        assert tuple(map(len, split.values())) == sizes
        assert len(torch.cat(list(split.values())).unique()) == sum(sizes)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_takes_its_first_graphs(named, name):
    """The door checks every field of what is loaded, and the declared types must hold."""
    task = named(name)
    model = tuplet.build("A1", dim=8, depth=1, heads=2, **task.model_options())
    some = [task.graphs[number] for number in range(min(4, len(task.graphs)))]
    out = model(some)
    rows = {
        "graph": len(some),
        "node": some[0].num_nodes,
        "edge": sum(len(data.get("edge_label", ())) for data in some),
    }
    assert out.shape == (rows[task.level], task.outputs)


@pytest.mark.parametrize("name", ["zinc", "molhiv", "peptides-func", "counting"])
def test_every_graph_is_undirected_and_sorted(named, name):
    task = named(name)
    for number in range(0, len(task.graphs), max(1, len(task.graphs) // 50)):
        data = task.graphs[number]
        code = data.edge_index[0] * data.num_nodes + data.edge_index[1]
        assert data.is_undirected()
        assert bool((code.diff() > 0).all())
        assert int(data.edge_index.max()) < data.num_nodes


def test_zinc_is_quick_and_has_the_published_labels(packed):
    start = time.perf_counter()
    task = load("zinc", data=packed)
    assert time.perf_counter() - start < 3
    y = task.graphs.fields["y"].values[:, 0]
    means = [float(y[task.splits[0][part]].mean()) for part in ("train", "val", "test")]
    assert means == pytest.approx([0.0153, 0.0315, 0.0125], abs=1e-4)
    median = y[task.splits[0]["train"]].median()
    assert float((y[task.splits[0]["test"]] - median).abs().mean()) == pytest.approx(1.547, abs=1e-3)
    first = task.graphs[0]
    assert (first.num_nodes, first.num_edges, first.x.shape, first.y.shape) == (29, 64, (29, 1), (1, 1))
    assert sorted(task.graphs.fields["edge_attr"].values.unique().tolist()) == [1, 2, 3]
    assert task.model_options() == {"task": "graph", "outputs": 1, "directed": False, "node_types": 28, "edge_types": 4}
    assert (task.loss, task.metric, task.maximise) == ("l1", "mae", False)


def test_bonds_have_the_type_of_their_edge(packed):
    """Both directions of an edge carry the feature that the file gives it."""
    arrays = np.load(packed / "zinc12k" / "zinc12k.npz", allow_pickle=False)
    task = load("zinc", data=packed)
    for number in (0, 7, 11_999):
        rows = slice(arrays["edge_ptr"][number], arrays["edge_ptr"][number + 1])
        wanted = {
            tuple(edge): kind
            for edge, kind in zip(arrays["edges"][rows].tolist(), arrays["edge_attr"][rows], strict=True)
        }
        data = task.graphs[number]
        for (u, v), kind in zip(data.edge_index.t().tolist(), data.edge_attr.tolist(), strict=True):
            assert wanted[min(u, v), max(u, v)] == kind


def test_zinc_from_smiles_is_the_same_graph(packed):
    """The rule that makes all of ZINC from SMILES gives the benchmark's graphs, up to the numbering of atoms."""
    pytest.importorskip("rdkit")
    import gzip

    lines = gzip.decompress((packed / "zinc12k" / "zinc12k_smiles.txt.gz").read_bytes()).decode().split()
    task = load("zinc", data=packed)
    for number in range(0, 12_000, 400):
        mine, theirs = (
            to_networkx(data, to_undirected=True, node_attrs=["x"])
            for data in (zinc_graph(lines[number]), task.graphs[number])
        )
        assert nx.is_isomorphic(mine, theirs, node_match=lambda a, b: a["x"] == b["x"])


def test_counting_targets_are_counts_over_their_deviation(named, packed):
    task = named("counting")
    arrays = np.load(packed / "substructure_counting" / "graphs.npz", allow_pickle=False)
    y = task.graphs.fields["y"].values.double()
    for column, name in enumerate(TARGETS):
        assert np.allclose(y[:, column] * task.scale[column], arrays[name], atol=1e-4)
        assert float(y[:, column].std()) == pytest.approx(1, abs=1e-5)
    assert task.scale == pytest.approx((3.0720, 25.9432, 17.7771, 6.9384, 4.7421), rel=2e-4)
    assert ((y[:, 3] * task.scale[3]).round().numpy() == arrays["pub_cycle4"]).all()
    one = load("counting", data=packed, target="cycle4")
    assert one.outputs == 1
    assert torch.allclose(one.graphs[17].y[0, 0], task.graphs[17].y[0, 3])


def test_molhiv_labels(named):
    task = named("molhiv")
    y = task.graphs.fields["y"].values[:, 0]
    assert [int(y[task.splits[0][part]].sum()) for part in ("train", "val", "test")] == [1_232, 81, 130]
    assert (task.graphs[0].num_nodes, task.graphs[0].num_edges) == (19, 40)
    assert (task.kind, task.loss, task.metric, task.maximise) == ("binary", "bce", "rocauc", True)


def test_peptides_have_ten_targets(named):
    task = named("peptides-func")
    y = task.graphs.fields["y"].values
    assert y.shape == (15_535, 10)
    assert set(y.unique().tolist()) == {0, 1}
    assert task.metric == "ap"


def test_edge_detection_is_balanced_and_true(named):
    task = named("edge-detection")
    for number in range(0, 12_000, 600):
        data = task.graphs[number]
        edges = set(map(tuple, data.edge_index.t().tolist()))
        queries = list(map(tuple, data.edge_label_index.t().tolist()))
        assert len(set(queries)) == len(queries) == 2 * len(edges)
        assert all(u != v for u, v in queries)
        assert [pair in edges for pair in queries] == data.edge_label.bool().tolist()
        assert float(data.edge_label.double().mean()) == 0.5
        assert data.edge_attr is None
    labels = task.graphs.fields["edge_label"].values
    assert 0.45 < float(labels[: len(labels) // 2].double().mean()) < 0.55


def test_edge_detection_draws_by_seed(packed, named):
    again, other = (load("edge-detection", data=packed, seed=seed) for seed in (0, 1))
    one = named("edge-detection").graphs[3].edge_label_index
    assert torch.equal(one, again.graphs[3].edge_label_index)
    assert not torch.equal(one, other.graphs[3].edge_label_index)
    batch = Batch.from_data_list([again.graphs[0], again.graphs[1]])
    assert int(batch.edge_label_index.max()) >= again.graphs[0].num_nodes


def test_webkb_keeps_direction_and_splits(named):
    task = named("webkb-texas")
    data = task.graphs[0]
    assert task.directed
    assert not data.is_undirected()
    assert int((data.edge_index[0] == data.edge_index[1]).sum()) == 325 - 309
    assert data.x.unique().tolist() == [0, 1]
    assert data.y.unique().tolist() == [0, 1, 2, 3, 4]
    assert torch.equal(task.splits[4]["val"], data.val_mask[:, 4].nonzero()[:, 0])
    simple = {tuple(sorted(edge)) for edge in data.edge_index.t().tolist() if edge[0] != edge[1]}
    homophily = np.mean([int(data.y[u] == data.y[v]) for u, v in data.edge_index.t().tolist()])
    assert len(simple) == 279
    assert homophily == pytest.approx(0.108, abs=1e-3)


def test_published_csl(packed):
    task = load("csl", data=packed, source="published")
    assert len(task.graphs) == 150
    assert len(task.splits) == 5
    labels = torch.cat([data.y for data in task.graphs])
    for split in task.splits:
        assert labels[split["test"]].bincount().tolist() == [3] * 10
        assert len(torch.cat(list(split.values())).unique()) == 150
    assert torch.cat([split["test"] for split in task.splits]).unique().numel() == 150


@pytest.mark.parametrize("name, graphs, classes", [("csl", 150, 10), ("cfi", 90, 6), ("srg", 90, 6), ("sr", 90, 6)])
def test_generated_without_a_folder(name, graphs, classes):
    task = load(name)
    assert (len(task.graphs), task.outputs, len(task.splits)) == (graphs, classes, 5)
    assert "generated" in task.origin
    labels = torch.cat([data.y for data in task.graphs])
    for split in task.splits:
        assert sorted(torch.cat(list(split.values())).tolist()) == list(range(graphs))
        for part, count in (("train", 9), ("val", 3), ("test", 3)):
            assert labels[split[part]].bincount(minlength=classes).tolist() == [count] * classes


def test_counting_is_generated_without_a_folder():
    task = load("counting", target=["triangle", "star"])
    assert (len(task.graphs), task.outputs, task.targets) == (5_000, 2, ("triangle", "star"))
    assert tuple(map(len, task.splits[0].values())) == (1_500, 1_000, 2_500)
    assert "generated" in task.origin
    assert float(torch.cat([data.y for data in task.graphs]).std(0)[0]) == pytest.approx(1, abs=1e-5)


def test_cfi_of_other_bases():
    task = load("cfi", bases=["C~", nx.cycle_graph(4)], copies=5)
    assert len(task.graphs) == 20
    assert task.outputs == 4


def test_one_fold_and_one_part(packed, named):
    assert torch.equal(load("csl", split=3).splits[0]["test"], load("csl").splits[3]["test"])
    val = load("zinc", data=packed, split="val")
    assert len(val.graphs) == 1_000
    assert list(val.splits[0]) == ["val"]
    for number in (0, 999):
        one, other = val.graphs[number], named("zinc").graphs[10_000 + number]
        assert all(torch.equal(one[field], other[field]) for field in ("x", "edge_index", "edge_attr", "y"))


def test_pyg_conventions(packed):
    def double(data):
        data.x = data.x * 2
        return data

    def mark(data):
        data.mark = torch.ones(1)
        return data

    task = load("zinc", data=packed, split="test", transform=double, pre_transform=mark)
    plain = load("zinc", data=packed, split="test")
    assert torch.equal(task.graphs[5].x, plain.graphs[5].x * 2)
    assert torch.equal(task.graphs[5].x, task.graphs[5].x)  # once at each access, not once more each time
    assert "mark" in task.graphs[5]


def test_every_name_is_in_the_catalogue():
    names = [row.name for row in CATALOGUE]
    assert len(set(names)) == len(names)
    wanted = (
        "csl counting edge-detection zinc zinc-full molhiv peptides-func peptides-struct alchemy webkb-cornell webkb-texas "
        "webkb-wisconsin cfi srg"
    )
    assert set(wanted.split()) == set(names)
    assert all(row.size and row.licence and row.source and row.metric and row.task for row in CATALOGUE)
