"""train, evaluate and predict on the command line, from a file to a result."""

import csv
import json

import pytest

from tuplet.cli import main
from tuplet.training.settings import from_yaml

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


def test_a_file_that_has_changed_is_not_evaluated_as_the_runs_own(table, tmp_path, capsys):
    """Its test part is another one, of molecules that the model has learned from."""
    folder, text = tmp_path / "run", table.read_text()
    assert run("train", table, "--targets", "size", "--out", folder, *SMALL) == 0
    head, *rows = text.splitlines()
    table.write_text("\n".join([head, *reversed(rows)]) + "\n")
    capsys.readouterr()
    assert run("evaluate", folder) == 2
    assert (
        "molecules.csv has changed since, or is read in another way, so its test part may hold some that the model has seen"
        in capsys.readouterr().err
    )
    assert run("evaluate", folder, table, "--targets", "size", "--part", "train") == 2
    other = tmp_path / "other.csv"
    other.write_text(table.read_text())
    assert run("evaluate", folder, other) == 0
    assert "all mae" in capsys.readouterr().out
    table.write_text(text)
    assert run("evaluate", folder) == 0


def test_a_run_that_was_refused_leaves_the_folder_free(table, tmp_path, capsys):
    folder = tmp_path / "run"
    train = ("train", table, "--targets", "size", "--out", folder, *SMALL)
    assert run(*train, "--lr", "1e30", "--clip", "none") == 2
    assert "lr: expected a loss that stays finite" in capsys.readouterr().err
    assert run(*train) == 0
    assert run(*train) == 2
    assert run("train", table, "--targets", "size", "--out", "", *SMALL) == 2
    assert "out: expected a folder; came an empty text" in capsys.readouterr().err


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


def test_how_far_the_reading_of_many_molecules_is_is_shown(table, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tuplet.datasets.preparation.MANY", 5)
    words = ("--targets", "size", "--model", "A1^LN", "--out", tmp_path / "run")
    assert run("train", table, *words, *SMALL) == 0
    shown = capsys.readouterr()
    assert f"reading {table}: 12 of 12 molecules" in shown.err
    assert "12 of 12" not in shown.out


def test_a_run_remembers_its_columns(table, tmp_path):
    table.write_text(table.read_text().replace("smiles,", "structure,"))
    words = (
        "train",
        table,
        "--smiles",
        "structure",
        "--targets",
        "size",
        "--model",
        "A1^LN",
        "--out",
        tmp_path / "run",
    )
    assert run(*words, *SMALL) == 0
    assert run("predict", tmp_path / "run", table, "-o", tmp_path / "p.csv") == 0
    assert run("predict", tmp_path / "run", table, "--smiles", "smiles", "-o", tmp_path / "p.csv") == 2
    other = tmp_path / "other.csv"
    other.write_text(table.read_text())
    assert run("evaluate", tmp_path / "run", other) == 0


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


def test_another_file_is_evaluated_as_a_whole_by_the_names_of_its_classes(tmp_path, capsys):
    pytest.importorskip("rdkit", reason="needs rdkit (the extra mol)")
    table, other = tmp_path / "m.csv", tmp_path / "other.csv"
    words = ["acid", "base", "", "salt"]
    rows = [f"{smiles},{words[number % 4]}" for number, smiles in enumerate(SMILES)]
    table.write_text("smiles,kind\n" + "\n".join(rows) + "\n")
    other.write_text("smiles,kind,note\n" + "\n".join(f"{row},x" for row in rows if "acid" not in row) + "\n")
    folder = tmp_path / "run"
    assert run("train", table, "--targets", "kind", "--model", "A1^LN", "--out", folder, *SMALL) == 0
    capsys.readouterr()
    assert run("evaluate", folder, other) == 0
    shown = capsys.readouterr().out.splitlines()[0]
    assert shown.startswith("all accuracy of A1^LN on other.csv, 9 rows, 6 with a target: ")
    assert run("predict", folder, other, "-o", tmp_path / "p.csv") == 0
    told = [row for row in csv.DictReader((tmp_path / "p.csv").open()) if row["kind"]]
    right = sum(row["predicted"] == row["kind"] for row in told) / len(told)
    assert float(shown.rsplit(":", 1)[1]) == pytest.approx(right, abs=1e-5)
    assert run("evaluate", folder, other, "--part", "train") == 0
    assert "train accuracy of A1^LN on other.csv, 7 rows, 5 with a target: " in capsys.readouterr().out
    other.write_text("smiles,kind\nCC,base\nCO,gas\n")
    assert run("evaluate", folder, other) == 2
    assert "targets: expected the classes acid, base, salt; came 'gas'." in capsys.readouterr().err
    other.write_text("smiles,kind\nCC,base\nCO,base\n")
    assert run("evaluate", folder, other) == 0
    assert "on other.csv, 2 rows: " in capsys.readouterr().out


def test_classes_that_are_numbers_are_known_however_they_are_written(table, tmp_path, capsys):
    words = ("--targets", "size", "--task-option", "kind=classification", "--model", "A1^LN", "--out", tmp_path / "run")
    assert run("train", table, *words, *SMALL) == 0
    other = tmp_path / "pandas.csv"
    other.write_text("smiles,size\nCCO,3.0\nCCN,3.0\nC1CC1,5.0\n")
    assert run("evaluate", tmp_path / "run", other) == 0
    assert "on pandas.csv, 3 rows: " in capsys.readouterr().out


def test_a_run_goes_on_with_the_options_it_began_with(tmp_path, capsys):
    folder = tmp_path / "csl"
    assert run("train", "csl", "--model", "A1", "--folds", "0", "--warmup", "0", "--out", folder, *SMALL) == 0
    assert run("train", "CSL", "--out", folder, "--resume") == 0
    capsys.readouterr()
    assert run("train", "csl", "--out", folder, "--resume", "--lr", "0.5") == 2
    assert "lr: expected 0.001, as the run in" in capsys.readouterr().err


def test_another_name_of_a_data_set_has_its_presets(tmp_path, capsys):
    assert run("train", "SR", "--variant", "RWSE", "--out", tmp_path / "sr") == 2
    assert "variant: expected none, since srg has no presets; came 'RWSE'" in capsys.readouterr().err
    assert run("train", "Csl", "--epochs", "1", "--warmup", "50", "--out", tmp_path / "csl") == 2
    assert "warmup: expected at most epochs = 1; came 50" in capsys.readouterr().err
    assert run("train", "Csl", "--folds", "0", "--out", tmp_path / "csl", *SMALL) == 0
    assert from_yaml(tmp_path / "csl" / "config.yaml").lr == 1e-3


def test_rows_that_were_skipped_are_in_the_run_folder(table, tmp_path, capsys):
    table.write_text(table.read_text() + "C(,3,x\nCC\n")
    assert run("train", table, "--targets", "size", "--model", "A1^LN", "--out", tmp_path / "run", *SMALL) == 0
    assert "2 row(s) skipped that cannot be used: row 14: 'C('" in capsys.readouterr().err
    rows = list(csv.DictReader((tmp_path / "run" / "skipped.csv").open()))
    assert [(row["row"], row["text"]) for row in rows] == [("14", "C("), ("15", "CC, , ")]
    assert rows[1]["reason"] == "it has 1 cells, and the header 3"


def test_a_place_to_write_is_looked_for_before_any_work(table, tmp_path, capsys):
    assert run("train", table, "--targets", "size", "--model", "A1^LN", "--out", tmp_path / "run", *SMALL) == 0
    capsys.readouterr()
    assert run("predict", tmp_path / "run", table, "-o", tmp_path) == 2
    assert "out: expected a file to write; " in capsys.readouterr().err
    assert run("predict", tmp_path / "run", table, "-o", table / "p.csv") == 2
    assert "out: expected a folder that can be written to; " in capsys.readouterr().err
    assert run("predict", tmp_path / "run", table, "-o", tmp_path / "new" / "p.csv") == 0


def test_no_traceback_even_of_an_error_that_nobody_thought_of(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tuplet.cli.train.run_train", lambda arguments: 1 / 0)
    assert run("train", "csl", "--out", tmp_path) == 1
    assert (
        capsys.readouterr().err
        == "tuplet: unexpected ZeroDivisionError: division by zero (--debug shows where it came from)\n"
    )
    with pytest.raises(ZeroDivisionError):
        run("--debug", "train", "csl", "--out", tmp_path)


def test_baselines_train_too(tmp_path):
    words = ("train", "csl", "--model", "GIN", "--folds", "0", "--warmup", "0", "--out", tmp_path / "gin", *SMALL[:-2])
    assert run(*words) == 0


@pytest.mark.parametrize("what", ["datasets", "presets"])
def test_lists(what, capsys):
    assert run("list", what) == 0
    assert "zinc" in capsys.readouterr().out


def test_presets_say_where_published_names_hide_a_virtual_tuple(capsys):
    assert run("list", "presets") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "zinc, zinc-full: The released configuration behind the paper's A2^Ngbh and A2^Ngbh+ has one virtual tuple"
        in shown
    )
    assert "alchemy: The released configuration behind the paper's A2^Ngbh+ has six virtual tuples" in shown
    assert "A2^Ngbh+VT and A2^Ngbh++VT are the released settings" in shown


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
        (["train", "csl", "--out", "run", "--task-option", "seed=a"], "seed: expected a whole number; came 'a'"),
        (["train", "cfi", "--out", "run", "--task-option", "bases=5"], "bases: expected a list; came 5"),
        (["train", "csl", "--out", "run", "--config", "nowhere.yaml"], "nowhere.yaml"),
        (["evaluate", "nowhere"], "nowhere"),
        (["predict", "nowhere", "a.csv", "-o", "b.csv"], "nowhere"),
        (["predict", "nowhere", "a.csv", "-o", "a.csv"], "another file"),
        (["predict", "nowhere", "a.csv"], "--out"),
        (["train", "csl", "--out", "run", "--devices", "500"], "devices: expected at most"),
        (["train", ".", "--out", "run"], "file: expected an existing file; came . (a folder)."),
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
