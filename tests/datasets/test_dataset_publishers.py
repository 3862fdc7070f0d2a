"""Files in the form of their publishers, written here and read as if they had been fetched."""

import gzip
import io
import zipfile

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from tuplet.datasets import load, ogb, pack
from tuplet.datasets.alchemy import read_tu_archive
from tuplet.datasets.where import Where
from tuplet.errors import InputError


@pytest.fixture
def published(monkeypatch, tmp_path):
    """Files by name that ``fetched`` hands out instead of a publisher."""
    files = {}

    def fetched(self, name, remote, file):
        if file not in files:
            raise AssertionError(f"{name} asked for {file} of {remote.url}")
        path = tmp_path / file
        path.write_bytes(files[file])
        return path

    monkeypatch.setattr(Where, "fetched", fetched)
    return files


def lines(rows):
    return "\n".join(",".join(map(str, row)) for row in rows).encode() + b"\n"


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def molhiv_archive(data, count):
    """The first graphs of a packed file, written as OGB writes them: one direction an edge, ends in any order."""
    members: dict[str, list] = {
        name: [] for name in ("num-node-list", "num-edge-list", "edge", "node-feat", "edge-feat", "graph-label")
    }
    for number in range(count):
        graph = data.graphs[number]
        kept = (graph.edge_index[0] < graph.edge_index[1]).nonzero()[:, 0].flip(0)
        members["num-node-list"].append([graph.num_nodes])
        members["num-edge-list"].append([len(kept)])
        members["edge"] += [
            row[:: 1 if place % 2 else -1] for place, row in enumerate(graph.edge_index[:, kept].t().tolist())
        ]
        members["node-feat"] += graph.x.tolist()
        members["edge-feat"] += graph.edge_attr[kept].tolist()
        members["graph-label"].append([int(graph.y)])
    files = {f"hiv/raw/{name}.csv.gz": gzip.compress(lines(rows)) for name, rows in members.items()}
    for part, numbers in (
        ("train", range(count - 4)),
        ("valid", range(count - 4, count - 2)),
        ("test", range(count - 2, count)),
    ):
        files[f"hiv/split/scaffold/{part}.csv.gz"] = gzip.compress(lines([[number] for number in numbers]))
    return zipped(files)


def test_molhiv_as_ogb_publishes_it(packed, published):
    whole = load("molhiv", data=packed)
    published["hiv.zip"] = molhiv_archive(whole, 20)
    task = load("molhiv")
    assert len(task.graphs) == 20
    assert tuple(map(len, task.splits[0].values())) == (16, 2, 2)
    for number in range(20):
        one, other = task.graphs[number], whole.graphs[number]
        assert all(torch.equal(one[field], other[field]) for field in ("x", "edge_index", "edge_attr", "y"))
    published["hiv.zip"] = published["hiv.zip"][:1000]
    with pytest.raises(InputError, match="an archive as OGB publishes it"):
        load("molhiv")


def tu_members(graphs=40):
    """Paths and rings with 12 targets, as TUDataset writes them: nodes from 1 over all graphs, both directions."""
    generator = np.random.default_rng(0)
    a, indicator, nodes, edges, targets = [], [], [], [], []
    first = 1
    for graph in range(graphs):
        n = 3 + graph % 5
        for u in range(n - 1):
            a += [(first + u, first + u + 1), (first + u + 1, first + u)]
            edges += [[1 + u % 4]] * 2
        indicator += [[graph + 1]] * n
        nodes += [[u % 6] for u in range(n)]
        targets.append(generator.normal(size=12).round(6).tolist())
        first += n
    rows = {
        "A": a,
        "graph_indicator": indicator,
        "node_labels": nodes,
        "edge_labels": edges,
        "graph_attributes": targets,
    }
    return {f"alchemy_full/alchemy_full_{name}.txt": lines(values) for name, values in rows.items()}, np.array(targets)


def test_alchemy_as_tudataset_publishes_it(published, tmp_path):
    members, targets = tu_members()
    published["alchemy_full.zip"] = zipped(members)
    published["train_al_10.index"] = b"0,1,2,3,3,7"
    published["val_al_10.index"] = b"10,11"
    published["test_al_10.index"] = b"39, 3\n"
    task = load("alchemy")
    assert (task.outputs, task.node_types, task.edge_types) == (12, 6, 4)
    standard = (targets - targets.mean(0)) / targets.std(0, ddof=1)
    picked = [task.graphs[place] for place in task.splits[0]["train"].tolist()]
    assert np.allclose([data.y[0].tolist() for data in picked], standard[[0, 1, 2, 3, 3, 7]], atol=1e-5)
    assert picked[5].num_nodes == 3 + 7 % 5
    assert picked[1].edge_index.tolist() == [[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]
    assert picked[1].edge_attr.tolist() == [0, 0, 1, 1, 2, 2]
    assert np.allclose(np.array(task.scale) * picked[0].y[0].numpy() + np.array(task.shift), targets[0], atol=1e-5)
    with pytest.raises(InputError, match=r"alchemy: expected at least 12,000 graphs; came 40"):
        load("alchemy", protocol="paper")


def test_alchemy_from_a_packed_folder_by_both_protocols(tmp_path):
    generator = np.random.default_rng(0)
    count = 12_050
    folder = tmp_path / "alchemy"
    folder.mkdir()
    arrays = {
        "num_nodes": np.full(count, 2), "edge_ptr": np.arange(count + 1), "edges": np.tile([0, 1], (count, 1)),
        "x": np.tile([0, 5], count), "edge_attr": np.arange(count) % 4, "y": generator.normal(size=(count, 12)),
    }  # fmt: skip
    np.savez(folder / "graphs.npz", **arrays)
    np.savez(folder / "split_12k.npz", train=np.array([12_049, 3]), val=np.array([5]), test=np.array([3]))
    paper = load("alchemy", data=tmp_path, protocol="paper")
    assert tuple(map(len, paper.splits[0].values())) == (10_000, 1_000, 1_000)
    official = load("alchemy", data=tmp_path)
    assert len(official.graphs) == 3
    last = official.graphs[int(official.splits[0]["train"][0])]
    standard = (arrays["y"] - arrays["y"].mean(0)) / arrays["y"].std(0, ddof=1)
    assert np.allclose(last.y[0], standard[12_049], atol=1e-5)
    assert torch.equal(official.splits[0]["train"][1:], official.splits[0]["test"])


def test_a_tu_archive_whose_files_disagree(tmp_path):
    members, _ = tu_members()
    name = "alchemy_full/alchemy_full_node_labels.txt"
    (tmp_path / "a.zip").write_bytes(zipped({**members, name: members[name][:-2]}))
    with pytest.raises(InputError, match="files that agree"):
        read_tu_archive(tmp_path / "a.zip", "alchemy_full")


def test_webkb_as_geom_gcn_publishes_it(packed, published):
    whole = load("webkb-texas", data=packed)
    data = whole.graphs[0]
    rows = ["node_id\tfeature\tlabel"]
    rows += [
        f"{node}\t{','.join(str(int(value)) for value in data.x[node])}\t{int(data.y[node])}"
        for node in reversed(range(data.num_nodes))
    ]
    published["out1_node_feature_label.txt"] = ("\n".join(rows) + "\n").encode()
    edges = "".join(f"{u}\t{v}\n" for u, v in data.edge_index.t().tolist())
    published["out1_graph_edges.txt"] = f"node_id\tnode_id\n{edges}".encode()
    for number in range(10):
        buffer = io.BytesIO()
        np.savez(
            buffer, **{f"{part}_mask": data[f"{part}_mask"][:, number].numpy() for part in ("train", "val", "test")}
        )
        published[f"texas_split_0.6_0.2_{number}.npz"] = buffer.getvalue()
    task = load("webkb-texas")
    for field in ("x", "edge_index", "y", "train_mask"):
        assert torch.equal(task.graphs[0][field], data[field])
    assert torch.equal(task.splits[7]["test"], whole.splits[7]["test"])


PEPTIDES = ["CC(N)C(=O)O", "NCC(=O)NCC(=O)O", "OC[C@H](N)C(=O)O", "CC(=O)N"]


def peptide_table(struct):
    if struct:
        header = ["smiles", "peptide_seq", *ogb.PROPERTIES]
        rows = [[smiles, "AG", *(number * 11 + place for place in range(11))] for number, smiles in enumerate(PEPTIDES)]
    else:
        header = ["smiles", "peptide_seq", "labels"]
        rows = [
            [smiles, "AG", f'"[{number % 2}, 0, 0, 0, 0, 0, 0, 0, 0, 1]"'] for number, smiles in enumerate(PEPTIDES)
        ]
    return gzip.compress(lines([header, *rows]))


@pytest.mark.parametrize(
    "name, file", [("func", "peptide_multi_class_dataset.csv.gz"), ("struct", "peptide_structure_dataset.csv.gz")]
)
def test_peptides_as_lrgb_publishes_them(published, tmp_path, name, file):
    pytest.importorskip("rdkit")
    published[file] = peptide_table(name == "struct")
    with pytest.raises(InputError, match="pickle only, which may run any code"):
        load(f"peptides-{name}")
    (tmp_path / "data" / "peptides_func").mkdir(parents=True)
    np.savez(tmp_path / "data" / "peptides_func" / "split.npz", train=[0, 3], val=[1], test=[2])
    task = load(f"peptides-{name}", data=tmp_path / "data")
    assert tuple(map(len, task.splits[0].values())) == (2, 1, 1)
    assert task.graphs[0].x.shape == (6, 9)
    y = torch.cat([data.y for data in task.graphs])
    if name == "func":
        assert y.shape == (4, 10)
        assert y[:, 0].tolist() == [0, 1, 0, 1]
        assert y[:, 9].tolist() == [1, 1, 1, 1]
    else:
        assert y.shape == (4, 11)
        assert torch.allclose(y.mean(0), torch.zeros(11), atol=1e-6)
        assert torch.allclose(y.std(0), torch.ones(11))
        assert np.allclose(y[2].numpy() * task.scale + np.array(task.shift), np.arange(22, 33))


def test_pack_and_load_again(packed, tmp_path):
    """What another library read can be written in the packed form: for ZINC's own file is a pickle."""
    task = load("zinc", data=packed)
    parts = {part: [task.graphs[int(number)] for number in numbers[:20]] for part, numbers in task.splits[0].items()}
    pack(tmp_path / "zinc12k" / "zinc12k.npz", parts)
    again = load("zinc", data=tmp_path)
    for part, graphs in parts.items():
        for one, place in zip(graphs, again.splits[0][part].tolist(), strict=True):
            other = again.graphs[place]
            assert all(torch.equal(one[field], other[field]) for field in ("x", "edge_index", "edge_attr", "y"))


def test_zinc_full_from_smiles_and_labels(tmp_path):
    pytest.importorskip("rdkit")
    folder = tmp_path / "zinc_full"
    folder.mkdir()
    texts = {"train": ["CCO", "c1cc[nH]c1"], "valid": ["C[NH3+]"], "test": ["C#N"]}
    for part, smiles in texts.items():
        (folder / f"{part}_smiles.txt.gz").write_bytes(gzip.compress("\n".join(smiles).encode()))
    labels = {f"y_{part}": np.arange(len(smiles), dtype=np.float32) for part, smiles in texts.items()}
    np.savez(folder / "labels.npz", **labels)
    task = load("zinc-full", data=tmp_path)
    again = load("zinc-full", data=tmp_path, force_reload=True)
    assert tuple(map(len, task.splits[0].values())) == (2, 1, 1)
    ring = task.graphs[1]
    assert ring.x.unique().tolist() == [0, 2]
    assert sorted(ring.edge_attr.tolist()) == [1] * 6 + [2] * 4
    assert task.graphs[2].x[:, 0].tolist() == [0, 10]
    assert task.graphs[3].edge_attr.tolist() == [3, 3]
    assert float(task.graphs[1].y) == 1
    assert torch.equal(again.graphs[1].edge_index, ring.edge_index)
    np.savez(folder / "labels.npz", **{**labels, "y_test": np.zeros(2, dtype=np.float32)})
    with pytest.raises(InputError, match="expected 1 labels for test_smiles"):
        load("zinc-full", data=tmp_path)


def test_pack_refuses_what_the_form_cannot_hold(tmp_path):
    loop = Data(edge_index=torch.tensor([[0], [0]]), num_nodes=1)
    one_way = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2)
    for data in (loop, one_way):
        with pytest.raises(InputError, match=r"train\[0\]: expected an undirected graph without self loops"):
            pack(tmp_path / "x.npz", {"train": [data]})
    with pytest.raises(InputError, match="parts: expected at least one graph"):
        pack(tmp_path / "x.npz", {"train": []})
    assert not (tmp_path / "x.npz").exists()
