"""Tables of molecules: targets, missing values, rows that are no molecules, splits, odd but legal files."""

import csv
import gzip
import math
import re
import warnings

import numpy as np
import pytest
import torch

from tuplet.datasets import load, parallel
from tuplet.datasets.csv_table import TableRow, read_table
from tuplet.datasets.table import read_molecules
from tuplet.errors import InputError, OptionError
from tuplet.graphs.smiles import parse, scaffold

pytest.importorskip("rdkit")

SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "C1CCCCC1", "CCN", "CCCl", "c1ccncc1", "CC", "OCC1CC1", "CCCC"]


@pytest.fixture
def write(tmp_path):
    def write(text, name="molecules.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(text.encode(encoding))
        return path

    return write


def table(smiles=SMILES, **columns):
    names = ["smiles", *columns]
    rows = zip(smiles, *columns.values(), strict=True)
    return "\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]) + "\n"


def test_one_target(write):
    task = load(write(table(logS=[0.5 * number for number in range(10)])))
    assert (task.kind, task.loss, task.metric, task.outputs, task.targets) == ("regression", "l1", "mae", 1, ("logS",))
    assert [float(data.y) for data in task.graphs] == [0.5 * number for number in range(10)]
    assert task.graphs[0].y.shape == (1, 1)
    assert tuple(map(len, task.splits[0].values())) == (8, 1, 1)
    train = torch.tensor([0.5 * number for number in task.splits[0]["train"].tolist()])
    assert task.mean == pytest.approx((float(train.mean()),))
    assert task.std == pytest.approx((float(train.std()),))
    assert task.skipped == ()
    for word in (False, "no", "off", "False"):
        assert load(write(table(logS=range(10))), standardise=word).mean is None
    assert load(write(table(logS=range(10))), standardise="yes", seed="7", fractions=np.array([0.5, 0.5, 0])).mean


def test_targets_are_rounded_where_that_is_little(write):
    far = load(write(table(y=[20_000 + number / 7 for number in range(10)])))
    assert far.graphs[0].y.dtype == torch.float32
    constant = load(write(table(y=[0.1] * 9 + [0.1 + 1e-17])))
    assert float(constant.graphs[0].y) == pytest.approx(0.1)
    assert load(write(table(y=[0.1 + 1e-16 * number for number in range(10)]))).std == (1.0,)


def test_missing_targets_are_nan(write):
    cells = ["1.5", "", "nan", " NA ", "2", "null", "3", "4", "5", "None"]
    task = load(write(table(a=cells, b=[*range(9), ""])), targets=["a", "b"])
    y = torch.cat([data.y for data in task.graphs])
    assert y[:, 0].isnan().tolist() == [cell.strip().lower() in {"", "nan", "na", "null", "none"} for cell in cells]
    assert y[:, 1].isnan().tolist() == [False] * 9 + [True]
    assert all(not math.isnan(value) for value in (*task.mean, *task.std))


def test_binary_and_classes(write):
    binary = load(write(table(active=[0, 1] * 5)))
    assert (binary.kind, binary.loss, binary.metric, binary.outputs) == ("binary", "bce", "rocauc", 1)
    assert binary.mean is None
    words = load(write(table(kind=["b", "a"] * 5)), split="stratified")
    assert (words.kind, words.outputs, words.targets) == ("classification", 2, ("a", "b"))
    assert words.graphs[0].y.tolist() == [1]
    numbers = load(write(table(n=[1, 10, 2, 1, 1, 1, 1, 1, 1, 1])), kind="classification")
    assert numbers.targets == ("1", "2", "10")
    assert load(write(table(n=[0, 1] * 5)), kind="regression").metric == "mae"


@pytest.mark.parametrize(
    "cell",
    ["253,84", "-1,5", ",5", "12 %", "12%", "<0.5", "> 10", "~3", "≤ 1e-3", "−1.5", "1.234,56", "1 234.5", "<1,2e4"],
)
def test_words_that_look_like_numbers_are_no_classes(write, cell):
    path = write(table(y=[f'"{cell}"', *[f'"{cell}9"', '"1,5"'] * 4, '"1,5"']))
    with pytest.raises(InputError, match=f"came {re.escape(repr(cell))} in row 2.*kind=classification"):
        load(path)
    assert load(path, kind="classification").outputs == 3
    assert load(write(table(y=[f"{cell.replace(',', '')} cells", "1.1.1.1"] * 5))).kind == "classification"


@pytest.mark.parametrize("bins", [["<50", "≥50"], ["10 %", "20 %"], ["~1", "~2", ">2"]])
def test_a_few_bins_that_occur_again_are_classes(write, bins):
    assert load(write(table(y=(bins * 5)[:10]))).outputs == len(bins)


def test_many_words_that_occur_once_are_no_classes(write):
    words = [f"name {number}" for number in range(9)]
    assert load(write(table(name=[*words, "name 0"]))).outputs == 9  # few may be so by chance
    path = write(table(name=[*words, "name 9"]))
    with pytest.raises(InputError, match="10 different words in 10 rows, 10 of them once"):
        load(path)
    assert load(path, kind="classification").outputs == 10


def test_missing_classes_are_masked(write):
    words = ["b", "", "a", "NA", "b", "a", "b", "?", "a", "b"]
    task = load(write(table(kind=words)), split="stratified", fractions=(0.5, 0.3, 0.2))
    assert (task.kind, task.outputs, task.targets) == ("classification", 2, ("a", "b"))
    labels = torch.cat([data.y for data in task.graphs])
    assert labels.tolist() == [1, -1, 0, -1, 1, 0, 1, -1, 0, 1]
    assert sorted(torch.cat(list(task.splits[0].values())).tolist()) == list(range(10))
    assert (labels[task.splits[0]["train"]] == -1).sum() in (1, 2)  # missing ones are dealt out evenly too
    numbers = load(write(table(n=[1, 10, "", 1, 1, 1, 1, 1, 1, 1])), kind="classification")
    assert numbers.targets == ("1", "10")


def test_known_classes_need_not_all_be_there(write):
    task = load(write(table(kind=["salt", ""] * 5)), classes=["acid", "base", "salt"])
    assert (task.kind, task.outputs, task.targets) == ("classification", 3, ("acid", "base", "salt"))
    assert torch.cat([data.y for data in task.graphs]).tolist() == [2, -1] * 5
    pandas = load(write(table(kind=["3.0", "1.0"] * 5)), classes=["0", "1", "2", "3"])
    assert torch.cat([data.y for data in pandas.graphs]).tolist() == [3, 1] * 5
    with pytest.raises(InputError, match=r"targets: expected the classes 0, 1; came '1\.5'"):
        load(write(table(kind=["1.5", "1.0"] * 5)), classes=["0", "1"])
    with pytest.raises(OptionError, match="classes: expected targets that are classes; came regression"):
        load(write(table(kind=["1.5", "1.0"] * 5)), classes=["0", "1"], kind="regression")


def test_rows_that_are_no_molecules_are_told(write):
    smiles = ["CCO", "not a molecule", "CC", "C1CC", "", "CN(C)(C)(C)C", "CCC", "C", "CO", "N"]
    path = write(table(smiles, y=[0.1 * number for number in range(10)]))
    with pytest.warns(
        UserWarning, match=r"4 row\(s\) skipped that cannot be used: row 3: 'not a molecule'.*row 5.*row 6.*row 7"
    ) as caught:
        task = load(path)
    assert len([item for item in caught if "skipped" in str(item.message)]) == 1
    assert [item.row for item in task.skipped] == [3, 5, 6, 7]
    assert task.skipped[0].text == "not a molecule"
    assert "blanks" in task.skipped[0].reason
    assert "Explicit valence" in task.skipped[3].reason
    assert len(task.graphs) == 6
    assert [round(float(data.y), 3) for data in task.graphs] == [0.0, 0.2, 0.6, 0.7, 0.8, 0.9]
    assert sorted(torch.cat(list(task.splits[0].values())).tolist()) == list(range(6))
    with pytest.raises(InputError, match=r"4 that cannot be used: row 3.*Pass invalid='skip'"):
        load(path, invalid="refuse")


def test_many_bad_rows_are_counted(write):
    with pytest.warns(UserWarning, match=r"row 11: .*; and 15 more, all in task.skipped"):
        task = load(write(table(["X"] * 25 + SMILES[:5], y=[number / 2 for number in range(30)])))
    assert len(task.skipped) == 25


def test_odd_but_legal_files(write, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bom = load(write(table(y=range(10)), encoding="utf-8-sig"))
        quoted = load(
            write('"smiles","y, total"\n"CCO","1.5"\n\n"C[C@H](N)C(=O)O","2.5"\r\n"CC","3"\n'), fractions=(1, 0, 0)
        )
        tabs = load(write("smiles\ty\nCC\t1.5\nCO\t2\n", "m.tsv"), fractions=(0.5, 0.5, 0))
        (tmp_path / "m.csv.gz").write_bytes(gzip.compress(table(y=range(10)).encode()))
        packed = load(tmp_path / "m.csv.gz")
    assert len(bom.graphs) == len(packed.graphs) == 10
    assert quoted.targets == ("y, total",)
    assert len(quoted.graphs) == 3
    assert tuple(map(len, tabs.splits[0].values())) == (1, 1, 0)


@pytest.mark.parametrize("name", ["m.TSV", "m.Tsv.GZ", "m.CSV", "m.csv.GZ", "m.tsv.csv"])
def test_endings_in_any_case_say_the_same(tmp_path, name):
    parted = "\t" if "tsv" in name.lower() and not name.endswith(".csv") else ","
    text = table(y=range(10)).replace(",", parted).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("GZ") else text)
    assert len(load(tmp_path / name).graphs) == 10


def test_a_quoted_line_break_does_not_shift_row_numbers(write):
    path = write('smiles,note,y\nCC,"two\nlines",1\nBAD,x,2\nCO,y,3.5\n')
    with pytest.warns(UserWarning, match="row 3: 'BAD'"):
        task = load(path, targets="y")
    assert [item.row for item in task.skipped] == [3]
    assert read_table(path).rows[0] == TableRow(2, ["CC", "two\nlines", "1"])


def test_a_cell_may_be_long(write):
    note, limit = "x" * 200_000, csv.field_size_limit()
    rows = read_table(write(f"smiles,note\nCC,{note}\nCO,\n")).rows
    assert [len(row.cells[1]) for row in rows] == [200_000, 0]
    assert csv.field_size_limit() == limit


def test_rows_with_problems_are_skipped_and_told_in_the_order_of_the_file(write):
    text = "smiles,a,b\nCC,1,2\nC(,1,2\nCO,1\nCN,1,2,3\nCCC,low,2\nO,,inf\nN,,5\nCCO,3,\n"
    with pytest.warns(UserWarning, match=r"5 row\(s\) skipped that cannot be used: row 3.*row 4.*row 5.*row 6.*row 7"):
        task = load(write(text), targets=["a", "b"], fractions=(1, 0, 0))
    assert [item.row for item in task.skipped] == [3, 4, 5, 6, 7]
    assert task.skipped[1].reason == "it has 2 cells, and the header 3"
    assert task.skipped[2].reason == "it has 4 cells, and the header 3"
    assert (task.skipped[3].text, task.skipped[4].text) == ("low", "inf")
    assert [data.num_nodes for data in task.graphs] == [2, 1, 3]
    assert torch.cat([data.y for data in task.graphs]).nan_to_num(-1).tolist() == [[1, 2], [-1, 5], [3, -1]]


def test_a_row_with_too_few_or_too_many_cells_is_cut_to_the_header(write):
    rows = read_table(write("smiles,y\nCC\nCO,1\nCN,2,3\n")).rows
    assert [row.cells for row in rows] == [["CC", ""], ["CO", "1"], ["CN", "2"]]
    assert [row.problem is None for row in rows] == [False, True, False]


def test_repeated_rows_are_kept_and_told(write):
    with pytest.warns(UserWarning, match=r"2 row\(s\) repeat a SMILES \(row 5 that of row 2\)"):
        task = load(write(table(["CC", "CO", "CN", "CC", "CC"], y=[1, 2, 3, 4, 5])))
    assert len(task.graphs) == 5


def test_single_atoms_and_salts(write):
    task = load(write(table(["C", "[Na+].[Cl-]", "[H][H]", "*", "O.O.O"], y=[1, 2, 3, 4, 5])))
    sizes = [(data.num_nodes, data.num_edges) for data in task.graphs]
    assert sizes == [(1, 0), (2, 0), (2, 2), (1, 0), (3, 0)]
    assert all(data.edge_attr.shape == (data.num_edges, 3) for data in task.graphs)


@pytest.mark.parametrize("split", ["random", "stratified", "scaffold"])
def test_splits_are_the_same_every_time_and_disjoint(write, split):
    path = write(table(SMILES * 5, y=[number / 7 for number in range(50)]))
    with pytest.warns(UserWarning, match="repeat"):
        one, two = (load(path, split=split, seed=3) for _ in range(2))
    for part in ("train", "val", "test"):
        assert torch.equal(one.splits[0][part], two.splits[0][part])
    assert sorted(torch.cat(list(one.splits[0].values())).tolist()) == list(range(50))


def test_scaffolds_stay_together(write):
    rings = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CCNC1", "c1ccc2ccccc2c1"]
    tails = ["", "C", "CC", "CCC", "CCO", "N"]
    smiles = [tail + ring for ring in rings for tail in tails] + ["CCCC", "CCCCC"]
    task = load(write(table(smiles, y=[number / 7 for number in range(32)])), split="scaffold")
    found = {part: {scaffold(parse(smiles[item])) for item in items.tolist()} for part, items in task.splits[0].items()}
    assert not found["train"] & (found["val"] | found["test"])
    assert not found["val"] & found["test"]
    assert len(found["train"]) >= 3


def test_a_column_may_say_the_split(write):
    words = ["train", "Train", "training", "valid", "val", "validation", "dev", "test", "TEST ", "train"]
    task = load(write(table(y=range(10), part=words)), targets="y", split="column:part")
    assert {part: items.tolist() for part, items in task.splits[0].items()} == {
        "train": [0, 1, 2, 9], "val": [3, 4, 5, 6], "test": [7, 8],
    }  # fmt: skip
    assert load(write(table(y=range(10), part=words)), split="column:part").targets == ("y",)


def test_molecules_in_other_processes_are_the_same(monkeypatch):
    monkeypatch.setattr(parallel, "ALONE", 0.0)
    texts = [f"{'C' * (1 + number % 30)}{'' if number % 7 else '('}" for number in range(1100)]
    one, two = (read_molecules(texts, processes=processes, scaffolds=True) for processes in (1, 2))
    assert one.kept == two.kept
    assert one.failed == two.failed
    assert one.scaffolds == two.scaffolds
    assert len(one.failed) == len([number for number in range(1100) if number % 7 == 0])
    for name, field in one.graphs.fields.items():
        assert torch.equal(field.values, two.graphs.fields[name].values)
