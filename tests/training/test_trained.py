"""Saved models: the same numbers as in training, any batch size, errors as rows, nothing executed, found again after a move."""

import csv
import json
import math
import pickle
import shutil
import warnings
from dataclasses import replace

import networkx as nx
import pytest
import torch
from training_cases import cycle, ends, links, one_sided, options, path, paths_and_cycles, sizes

from tuplet.datasets import pack
from tuplet.errors import InputError, OptionError
from tuplet.training import RunError, evaluate, load, predict_file, train
from tuplet.training.aligned import aligned
from tuplet.training.files import seal
from tuplet.training.inputs import ready
from tuplet.training.runs import make_model

SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "N", "C#N", "CCN(CC)CC", "O=C=O", "C1CC1", "CCCl", "[Na+].[Cl-]", "C", "CO"]


@pytest.fixture(scope="module")
def rings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rings") / "run"
    task = paths_and_cycles(9)
    train(task, options(epochs=3, model_options={"encodings": ["RWSE:4:5", "LapPE:3:4"]}), folder, show=False)
    return folder, task


@pytest.fixture(scope="module")
def molecules(tmp_path_factory):
    """A model of molecules, trained on a table with a missing target and a row that is no molecule."""
    pytest.importorskip("rdkit")
    from tuplet.datasets.table import load_table

    folder = tmp_path_factory.mktemp("molecules")
    rows = [
        [text, str(len(text) / 2), "" if number == 3 else str(number % 4)] for number, text in enumerate(SMILES * 2)
    ]
    rows.append(["not a molecule", "1", "1"])
    with open(folder / "data.csv", "w", newline="") as file:
        csv.writer(file).writerows([["smiles", "half", "rest"], *rows])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the row that is none, and of molecules that are there twice
        task = load_table(folder / "data.csv", targets=["half", "rest"])
    train(task, options(epochs=3, batch_size=8), folder / "run", show=False)
    return folder, task


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_predictions_are_those_of_training_for_any_batch_size(rings, size):
    folder, task = rings
    trained = load(folder)
    expected = evaluate(trained.model, ready(task, trained.model), "test", batch_size=4).outputs
    told = trained.predict(task.part("test"), batch_size=size)
    torch.testing.assert_close(told.outputs, expected.double(), rtol=0, atol=1e-6)
    assert told.errors == (None,) * len(told)
    assert torch.equal(told.labels, expected.argmax(1))
    assert torch.allclose(told.values.sum(1), torch.ones(len(told), dtype=torch.double))


def test_batches_by_tokens_predict_the_same(rings):
    folder, task = rings
    trained = load(folder)
    graphs = list(task.graphs)
    one, two = trained.predict(graphs), trained.predict(graphs, batch_tokens=40)
    torch.testing.assert_close(one.outputs, two.outputs, rtol=0, atol=1e-6)


def test_standardised_targets_come_back_in_their_own_units(tmp_path):
    task = sizes()
    train(task, options(epochs=2), tmp_path, show=False)
    trained = load(tmp_path)
    told = trained.predict(list(task.graphs))
    assert told.values.shape == (24, 2)
    assert told.values[:, 0].mean() > 20  # the model gives about 0 itself, the targets are about 55
    y = torch.cat([graph.y for graph in task.part("test")]).double()
    there = ~y.isnan()
    error = (told.values[task.splits[0]["test"]] - y)[there].abs().mean()
    assert trained.evaluate(task)["mae"] == pytest.approx(float(error), abs=1e-6)
    assert told.columns() == ["predicted_nodes", "predicted_ones"]


def test_graphs_come_in_any_form(rings):
    folder, _ = rings
    told = load(folder).predict([cycle(5), nx.cycle_graph(5), "DqK"])  # the last is the 5-cycle in graph6
    torch.testing.assert_close(told.outputs[0], told.outputs[1], rtol=0, atol=1e-6)
    torch.testing.assert_close(told.outputs[0], told.outputs[2], rtol=0, atol=1e-6)


def test_one_bad_graph_spoils_no_other(rings):
    folder, _ = rings
    one_way = path(4)
    one_way.edge_index = one_way.edge_index[:, :1]
    trained = load(folder)
    told = trained.predict([cycle(5), one_way, "no graph6 ~~~", 7, path(4)])
    assert [error is None for error in told.errors] == [True, False, False, False, True]
    assert "edge_index" in told.errors[1]
    assert told.outputs[1:4].isnan().all()
    torch.testing.assert_close(told.outputs[[0, 4]], trained.predict([cycle(5), path(4)]).outputs, rtol=0, atol=1e-6)
    assert told.labels.tolist()[1:4] == [-1, -1, -1]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_finite_number_is_a_row_with_an_error_text(tmp_path, value):
    task = sizes()
    train(task, options(epochs=1), tmp_path / "run", show=False)
    trained = load(tmp_path / "run")
    with torch.no_grad():
        trained.model.head.layers[-1].bias[0] = value
    told = trained.predict(task.graphs[:3])
    assert all(error.startswith("outputs: expected finite numbers") for error in told.errors)
    assert told.outputs.isnan().all()


def test_too_large_a_graph_is_a_row_with_a_sentence(rings):
    folder, _ = rings
    told = load(folder).predict([cycle(5), cycle(200_000)])
    assert told.errors[0] is None
    assert "200,000" in told.errors[1]


def test_nodes_of_new_graphs(tmp_path):
    task = ends()
    train(task, options(epochs=1), tmp_path, show=False)
    told = load(tmp_path).predict([path(3, x=torch.randn(3, 3)), path(2), path(4, x=torch.randn(4, 3))])
    assert told.owner.tolist() == [0, 0, 0, 1, 2, 2, 2, 2]
    assert "x" in told.errors[1]


def test_a_file_of_graphs_for_a_node_task(tmp_path):
    task = replace(ends(), node_dim=None)
    del task.graphs[0].x
    train(task, options(epochs=1), tmp_path / "run", show=False)
    (tmp_path / "graphs.g6").write_text("A_\nBw\n")
    assert predict_file(tmp_path / "run", tmp_path / "graphs.g6", tmp_path / "out.csv") == (2, 0)
    rows = [line.split(",")[:2] for line in (tmp_path / "out.csv").read_text().splitlines()]
    assert rows == [["graph", "row"], ["0", "0"], ["0", "1"], ["1", "0"], ["1", "1"], ["1", "2"]]


def test_molecules_from_smiles_and_from_a_file(molecules):
    folder, task = molecules
    trained = load(folder / "run")
    assert trained.reads_smiles()
    told = trained.predict(["CCO", "C(", "", "CC(=O)O", 5])
    assert [error is None for error in told.errors] == [True, False, False, True, False]
    assert "smiles: expected a molecule; came 'C('" in told.errors[1]
    with open(folder / "new.csv", "w", newline="") as file:
        csv.writer(file).writerows([["id", "smiles"], ["a", "CCO"], ["b", "C("], ["c", "CC(=O)O"]])
    assert predict_file(folder / "run", folder / "new.csv", folder / "out.csv", batch_size=2) == (3, 1)
    with open(folder / "out.csv") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "smiles", "predicted_half", "predicted_rest", "error"]
    assert [row["id"] for row in rows] == ["a", "b", "c"]
    assert float(rows[0]["predicted_half"]) == pytest.approx(float(told.values[0, 0]), abs=1e-6)
    assert float(rows[2]["predicted_rest"]) == pytest.approx(float(told.values[3, 1]), abs=1e-6)
    assert rows[1]["predicted_half"] == ""
    assert "C(" in rows[1]["error"]
    assert rows[0]["error"] == ""
    expected = trained.predict(task.part("test")).values
    texts = [SMILES[int(position) % len(SMILES)] for position in task.splits[0]["test"]]
    torch.testing.assert_close(trained.predict(texts).values, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["told.tsv", "told.csv.gz", "TOLD.TSV.GZ"])
def test_a_table_of_predictions_can_be_read_again(molecules, tmp_path, name):
    folder, _ = molecules
    table, again = tmp_path / "molecules.csv", tmp_path / "again.csv"
    table.write_text('smiles,note\nCCO,"a, b"\nN,c\n')
    predict_file(folder / "run", table, tmp_path / name)
    assert predict_file(folder / "run", tmp_path / name, again) == (2, 0)
    rows = list(csv.DictReader(again.open()))
    assert [row["note"] for row in rows] == ["a, b", "c"]
    assert [row["predicted_half"] for row in rows] == [row["tuplet_predicted_half"] for row in rows]


def test_a_file_of_graphs(rings, tmp_path):
    folder, _ = rings
    (tmp_path / "graphs.g6").write_text("DqK\nC]\n")
    assert predict_file(folder, tmp_path / "graphs.g6", tmp_path / "out.csv") == (2, 0)
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == "graph,predicted,p_0,p_1,error"
    assert len(lines) == 3
    with pytest.raises(InputError, match="expected graphs, since rings was not trained on SMILES; came a table"):
        predict_file(folder, tmp_path / "out.csv", tmp_path / "again.csv")


def test_a_graph6_line_that_fails_is_a_row_with_an_error_text(rings, tmp_path):
    folder, _ = rings
    (tmp_path / "graphs.g6").write_text("DqK\n# another good one\n!!\n\nC]\n", encoding="utf-8-sig")
    assert predict_file(folder, tmp_path / "graphs.g6", tmp_path / "out.csv") == (3, 1)
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert [row["predicted"] != "" for row in rows] == [True, False, True]
    assert rows[1]["error"].startswith("graph6: expected a graph6 string")


def test_graphs_with_features_come_packed(tmp_path):
    task = sizes()
    train(task, options(epochs=1), tmp_path / "run", show=False)
    pack(tmp_path / "new.npz", {"test": task.part("test")})
    assert predict_file(tmp_path / "run", tmp_path / "new.npz", tmp_path / "out.csv") == (len(task.part("test")), 0)
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    expected = load(tmp_path / "run").predict(task.part("test")).values
    assert [float(row["predicted_nodes"]) for row in rows] == pytest.approx(expected[:, 0].tolist(), abs=1e-6)


def test_a_ragged_row_is_a_row_with_an_error_text(molecules, tmp_path):
    folder, _ = molecules
    (tmp_path / "new.csv").write_text("id,smiles,error\n1,CCO,0.5\n2,CC\n3,CC,0.1,9\n4,C(,0.1\n5,CN,0.2\n")
    assert predict_file(folder / "run", tmp_path / "new.csv", tmp_path / "out.csv") == (5, 3)
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert list(rows[0]) == ["id", "smiles", "error", "predicted_half", "predicted_rest", "tuplet_error"]
    assert [row["tuplet_error"] == "" for row in rows] == [True, False, False, False, True]
    assert rows[1]["tuplet_error"] == "it has 2 cells, and the header 3"
    assert [row["error"] for row in rows] == ["0.5", "", "0.1", "0.1", "0.2"]
    alone = load(folder / "run").predict(["CCO", "CN"]).values[:, 0].tolist()
    assert [float(rows[place]["predicted_half"]) for place in (0, 4)] == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize(
    "name, words",
    [
        ("none.g6", "file: expected an existing file; came .*none.g6"),
        ("", r"file: expected an existing file; came .*\(a folder\)"),
        ("m.smi", r"file: expected a table \(.csv, .tsv\) or graph6 lines \(.g6\); came .*m.smi. Make it a .csv file"),
        ("m.pt", "m.pt. It may run any code when it is read: read it in Python"),
        ("m.npz", "m.npz: expected a complete .npz file of plain arrays"),
        ("m.g6", "file: expected a readable text file; came .*m.g6"),
    ],
)
def test_files_that_cannot_be_read(rings, tmp_path, name, words):
    folder, _ = rings
    if name.startswith("m"):
        (tmp_path / name).write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=words):
        predict_file(folder, tmp_path / name, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_a_model_folder_can_be_moved(rings, tmp_path):
    folder, task = rings
    shutil.copytree(folder / "model", tmp_path / "elsewhere")
    one, two = load(folder), load(tmp_path / "elsewhere")
    assert torch.equal(one.predict(list(task.graphs)).outputs, two.predict(list(task.graphs)).outputs)
    config = json.loads((tmp_path / "elsewhere" / "config.json").read_text())
    assert config["model"]["options"]["encodings"] == ["RWSE:4:5", "LapPE:3:4"]
    assert config["task"]["metric"] == "accuracy"
    assert config["versions"]["tuplet"]


def test_the_config_holds_options_that_were_not_given(rings):
    """A later version with other defaults builds the same model."""
    folder, _ = rings
    config = json.loads((folder / "model" / "config.json").read_text())
    model = make_model(paths_and_cycles(), options(model_options={"encodings": ["RWSE:4:5", "LapPE:3:4"]}))
    for name in model.config.__dataclass_fields__:
        if name != "name":
            assert name in config["model"]["options"]


def test_nothing_in_the_files_is_executed(rings, tmp_path):
    """Weights that are a pickle with a command inside are refused, and the command does not run."""
    folder, _ = rings
    shutil.copytree(folder / "model", tmp_path / "bad")

    class Command:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    (tmp_path / "bad" / "weights.safetensors").write_bytes(pickle.dumps(Command()))
    with pytest.raises(RunError, match="its checksum does not fit"):
        load(tmp_path / "bad")
    config = json.loads((tmp_path / "bad" / "config.json").read_text())
    config.pop("sha256")
    import hashlib

    config["weights"]["sha256"] = hashlib.sha256((tmp_path / "bad" / "weights.safetensors").read_bytes()).hexdigest()
    (tmp_path / "bad" / "config.json").write_bytes(seal(config))
    with pytest.raises(RunError, match="expected tensors in the safetensors format"):
        load(tmp_path / "bad")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("level", ["graph", "edge"])
def test_classes_are_known_by_their_names(tmp_path, level):
    """A file of which a class is absent, or that lists them in another order, numbers them otherwise."""
    if level == "graph":
        base, field = paths_and_cycles(9), "y"
        base = replace(base, outputs=3, targets=("path", "ring", "star"))
    else:
        base, field = links(), "edge_label"
        graphs = [graph.clone() for graph in base.graphs]
        for graph in graphs:
            graph.edge_label = graph.edge_label[:, 0].long()
        classes = {"kind": "classification", "loss": "cross_entropy", "metric": "accuracy", "outputs": 3}
        base = replace(base, graphs=graphs, targets=("path", "ring", "star"), **classes)
    train(base, options(epochs=2), tmp_path, show=False)
    trained = load(tmp_path)
    graphs = [graph.clone() for graph in base.graphs]
    for graph in graphs:
        graph[field] = 1 - graph[field]
    other = replace(base, graphs=graphs, outputs=2, targets=("ring", "path"))
    assert trained.evaluate(other, "train") == trained.evaluate(base, "train")
    graphs[0][field] = torch.full_like(graphs[0][field], -1)
    assert aligned(other, trained.task).graphs[0][field].tolist() == graphs[0][field].tolist()
    with pytest.raises(OptionError, match=r"task: expected the classes path, ring, star, .*; .* has 'tree'"):
        trained.evaluate(replace(other, targets=("ring", "tree")), "train")
    numbered = aligned(replace(other, targets=("1.0", "0.0")), replace(trained.task, targets=("0", "1", "2")))
    assert (numbered.outputs, numbered.targets) == (3, ("0", "1", "2"))
    assert torch.equal(numbered.graphs[1][field], base.graphs[1][field])


def test_numbers_in_another_order_are_refused(tmp_path):
    task = sizes()
    train(task, options(epochs=1), tmp_path, show=False)
    with pytest.raises(OptionError, match="targets: expected nodes, ones, in this order; sizes has ones, nodes"):
        load(tmp_path).evaluate(replace(task, targets=("ones", "nodes")))
    with pytest.raises(OptionError, match="targets: expected nodes, ones, in this order; sizes has atoms, nodes"):
        load(tmp_path).evaluate(replace(task, targets=("atoms", "nodes")))
    assert load(tmp_path).evaluate(replace(task, targets=("atoms", "ones"))) == load(tmp_path).evaluate(task)


def test_an_undefined_metric_is_told(tmp_path):
    task = one_sided()
    with pytest.warns(UserWarning, match="the rocauc of the validation part of split 0"):
        train(task, options(epochs=1), tmp_path, show=False)
    with pytest.warns(
        UserWarning, match="the rocauc of the val part is undefined: no target has both a 0 and a 1 there"
    ):
        assert math.isnan(load(tmp_path).evaluate(task, "val")["rocauc"])


def test_targets_that_have_no_part_in_a_metric_are_named(tmp_path):
    """And rows without a target are counted."""
    task = one_sided(count=24)
    for part in task.splits[0].values():
        for place, number in enumerate(part.tolist()):
            task.graphs[number].y = torch.tensor([[place % 2, 1.0]])
    for number in task.splits[0]["test"][:2].tolist():
        task.graphs[number].y[:] = torch.nan
    task = replace(task, outputs=2, targets=("first", "second"))
    words = r"the rocauc of the {} is of 1 of 2 targets: there is not both a 0 and a 1 of second"
    with pytest.warns(UserWarning, match=words.format("test part of split 0")):
        train(task, options(epochs=1), tmp_path, show=False)
    with pytest.warns(UserWarning, match=words.format("test part")):
        score = load(tmp_path).evaluate(task)
    assert score["known"] == score["rows"] - 2 == len(task.splits[0]["test"]) - 2


def test_a_device_that_is_not_there_is_told(rings):
    with pytest.raises(OptionError, match="device: expected one that torch has here, as 'cpu'; came 'banana'"):
        load(rings[0], "banana")


def test_evaluation_refuses_what_does_not_fit(rings):
    folder, task = rings
    trained = load(folder)
    with pytest.raises(OptionError, match="task: expected kind = 'classification'"):
        trained.evaluate(sizes())
    with pytest.raises(
        OptionError, match="part: expected train or val or test, the parts that are not empty; came 'dev'"
    ):
        trained.evaluate(task, "dev")
    with pytest.raises(OptionError, match=r"fold: expected a number 0\.\.0"):
        trained.evaluate(task, fold=4)
    with pytest.raises(InputError, match="items: expected a list of graphs or SMILES; came str alone"):
        trained.predict("DqK")
    with pytest.raises(InputError, match="items: expected a list of graphs or SMILES; came Graph alone"):
        trained.predict(nx.path_graph(3))
