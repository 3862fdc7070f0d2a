"""train, evaluate and predict on the command line, from a file to a result."""

import csv
import json

import pytest

from tuplet.cli import main

SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "CCN", "C", "CC#N", "OCC", "C1CC1", "CCCC", "c1ccncc1", "CCl", "CBr"]


@pytest.fixture
def table(tmp_path):
    pytest.importorskip("rdkit", reason="needs rdkit (the extra mol)")
    path = tmp_path / "molecules.csv"
    rows = [f"{smiles},{len(smiles)},{number}" for number, smiles in enumerate(SMILES)]
    path.write_text("smiles,size,name\n" + "\n".join(rows) + "\n")
    return path


def run(*words):
    return main([str(word) for word in words])


SMALL = ("--epochs", "2", "--batch-size", "4", "--set", "dim=8", "--set", "depth=1", "--set", "heads=2")


def test_from_a_table_of_smiles_to_predictions(table, tmp_path, capsys):
    folder = tmp_path / "run"
    train = ("train", table, "--targets", "size", "--model", "A1^LN", "--out", folder, *SMALL, "--encoding", "RWSE:4:4")
    assert run(*train) == 0
    assert "test mae" in capsys.readouterr().out
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["parameters"] > 0
    assert (folder / "curves.png").stat().st_size > 0
    assert (folder / "model" / "weights.safetensors").exists()

    assert run("evaluate", folder, table, "--targets", "size") == 0
    shown = capsys.readouterr().out
    assert float(shown.splitlines()[0].rsplit(":", 1)[1]) == pytest.approx(summary["test"], rel=1e-4)
    assert run("evaluate", folder) == 0  # the run remembers its data
    assert capsys.readouterr().out == shown

    more = tmp_path / "more.csv"
    more.write_text("id,smiles\n1,CCO\n2,not a molecule\n3,CCCCCC\n")
    assert run("predict", folder, more, "-o", tmp_path / "predicted.csv") == 0
    assert "2 of 3 predicted, 1 with an error text" in capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "predicted.csv").open()))
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert [bool(row["error"]) for row in rows] == [False, True, False]
    float(rows[0]["predicted_size"])
    assert rows[1]["predicted_size"] == ""


def test_a_named_data_set_and_a_finished_run(tmp_path, capsys):
    folder = tmp_path / "csl"
    words = (
        "train",
        "csl",
        "--model",
        "A1",
        "--variant",
        "RWSE",
        "--folds",
        "0",
        "--warmup",
        "0",
        "--out",
        folder,
        *SMALL,
    )
    assert run(*words) == 0
    first = (folder / "summary.json").read_text()
    assert run(*words) == 2  # a folder that holds a run is not overwritten
    assert "resume" in capsys.readouterr().err
    assert run(*words, "--resume") == 0
    assert json.loads((folder / "summary.json").read_text())["test"] == json.loads(first)["test"]
    assert "RWSE:20:28" in (folder / "config.yaml").read_text()
    capsys.readouterr()
    assert run("evaluate", folder) == 0
    assert "split 0" in capsys.readouterr().out


def test_an_empty_cell_is_a_row(table, tmp_path, capsys):
    folder = tmp_path / "run"
    assert run("train", table, "--targets", "size", "--model", "A1^LN", "--out", folder, *SMALL) == 0
    one = tmp_path / "one.csv"
    one.write_text("smiles\nCCO\n\nCC\n\n")
    assert run("predict", folder, one, "-o", tmp_path / "predicted.csv") == 0
    rows = list(csv.DictReader((tmp_path / "predicted.csv").open()))
    assert [row["smiles"] for row in rows] == ["CCO", "", "CC"]
    assert [bool(row["error"]) for row in rows] == [False, True, False]


def test_a_run_remembers_its_split(table, tmp_path, capsys):
    folder = tmp_path / "run"
    train = ("train", table, "--targets", "size", "--split", "scaffold", "--model", "A1^LN", "--out", folder, *SMALL)
    assert run(*train) == 0
    expected = json.loads((folder / "summary.json").read_text())["test"]
    capsys.readouterr()
    assert run("evaluate", folder) == 0
    assert float(capsys.readouterr().out.splitlines()[0].rsplit(":", 1)[1]) == pytest.approx(expected, rel=1e-4)


def test_baselines_train_too(tmp_path):
    words = ("train", "csl", "--model", "GIN", "--folds", "0", "--warmup", "0", "--out", tmp_path / "gin", *SMALL[:-2])
    assert run(*words) == 0


@pytest.mark.parametrize("what", ["datasets", "presets"])
def test_lists(what, capsys):
    assert run("list", what) == 0
    assert "zinc" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, message",
    [
        (["train", "csl"], "--out"),
        (["train", "nowhere.csv", "--out", "run"], "nowhere.csv"),
        (["train", "cls", "--out", "run"], "csl"),
        (["train", "csl", "--out", "run", "--epochs", "many"], "epochs"),
        (["train", "csl", "--out", "run", "--set", "lr"], "key=value"),
        (["train", "csl", "--out", "run", "--set", "learning_rate=1"], "learning_rate"),
        (["train", "csl", "--out", "run", "--model", "A2^XX"], "A2^XX"),
        (["train", "csl", "--out", "run", "--encoding", "RWZE:3:4"], "RWSE"),
        (["train", "csl", "--out", "run", "--variant", "Fourier"], "variant"),
        (["train", "csl", "--out", "run", "--task-option", "sed=3"], "seed"),
        (["train", "csl", "--out", "run", "--config", "nowhere.yaml"], "nowhere.yaml"),
        (["evaluate", "nowhere"], "nowhere"),
        (["predict", "nowhere", "a.csv", "-o", "b.csv"], "nowhere"),
        (["predict", "nowhere", "a.csv", "-o", "a.csv"], "another file"),
        (["predict", "nowhere", "a.csv"], "--out"),
    ],
)
def test_errors_name_what_is_wrong(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_debug_shows_where_an_error_came_from(tmp_path):
    with pytest.raises(Exception, match="nowhere"):
        main(["--debug", "evaluate", str(tmp_path / "nowhere")])
