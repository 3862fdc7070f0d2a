"""Malformed inputs in one table: each must be refused with its sentence, and with nothing else."""

import gzip
import pickle
import re
import zipfile

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from tuplet.datasets import load
from tuplet.errors import InputError, OptionError, TupletError

pytest.importorskip("rdkit")

EDGE = torch.tensor([[0, 1], [1, 0]])
GOOD = {
    "num_nodes": np.array([2, 3]), "edge_ptr": np.array([0, 1, 3]), "edges": np.array([[0, 1], [0, 1], [1, 2]]),
    "x": np.zeros(5, dtype=np.uint8), "edge_attr": np.ones(3, dtype=np.uint8), "y": np.array([0.5, 1.5]), "split": np.array([0, 2]),
}  # fmt: skip


def table(folder, text, **options):
    (folder / "m.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(folder / "m.csv", **options)


def packed(folder, **changes):
    """ZINC from a packed file with some arrays changed; None takes one away."""
    (folder / "zinc12k").mkdir()
    arrays = {name: array for name, array in {**GOOD, **changes}.items() if array is not None}
    np.savez(folder / "zinc12k" / "zinc12k.npz", **arrays)
    return load("zinc", data=folder)


def raw_file(folder, content):
    (folder / "zinc12k").mkdir()
    (folder / "zinc12k" / "zinc12k.npz").write_bytes(content)
    return load("zinc", data=folder)


def truncated(folder):
    packed(folder)
    content = (folder / "zinc12k" / "zinc12k.npz").read_bytes()
    (folder / "zinc12k" / "zinc12k.npz").write_bytes(content[: len(content) // 2])
    return load("zinc", data=folder)


def flipped(folder):
    """One bit of the stored labels: the archive's own checksum finds it."""
    packed(folder)
    path = folder / "zinc12k" / "zinc12k.npz"
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo("y.npy")
    content = bytearray(path.read_bytes())
    content[member.header_offset + 30 + len("y.npy") + 20 + 130] ^= 1
    path.write_bytes(content)
    return load("zinc", data=folder)


def graph6(folder, text, labels="0.5\n"):
    (folder / "g.g6").write_text(text)
    (folder / "labels.txt").write_text(labels)
    return load(folder / "g.g6", labels=folder / "labels.txt")


def broken_gzip(folder):
    (folder / "m.csv.gz").write_bytes(gzip.compress(b"smiles,y\nCC,1\n")[:-6])
    return load(folder / "m.csv.gz")


def written(folder, name, text):
    (folder / name).write_text(text)
    return load(folder / name)


def data(**fields):
    return Data(edge_index=EDGE, **{"num_nodes": 2, "y": torch.tensor([0.5]), **fields})


MALFORMED = {
    # names, paths and options
    "unknown name": (lambda f: load("zinck"), r"data set: expected one of csl, .*; came 'zinck'. Did you mean 'zinc'\?"),
    "unknown suffix": (lambda f: load(f / "m.xlsx"), r"data set: expected one of .*, or a file; came .*m.xlsx"),
    "no such table": (lambda f: load(f / "none.csv"), "file: expected an existing file; came .*none.csv"),
    "a folder": (lambda f: load(f), r"file: expected an existing file; came .*\(a folder\)\.$"),
    "a list of SMILES": (lambda f: written(f, "m.smi", "CCO ethanol\n"), r"file: expected a table .*; came .*m.smi\. Make it a .csv file"),
    "a spreadsheet": (lambda f: written(f, "m.xlsx", "PK"), "file: expected a table .*; came .*m.xlsx. Save the sheet as a .csv file"),
    "a saved PyG data set": (lambda f: written(f, "m.pt", "PK"), "came .*m.pt. It may run any code when it is read: read it in Python"),
    "a folder as table": (lambda f: (f / "d.csv").mkdir() or load(f / "d.csv"), r"file: expected an existing file; came .*\(a folder\)"),
    "no such data folder": (lambda f: load("zinc", data=f / "none"), "data: expected a folder of packed data sets; came .*none"),
    "folder without it": (lambda f: load("zinc", data=f), "zinc: expected the packed form, zinc12k/zinc12k.npz.*which lacks it"),
    "unknown option": (lambda f: load("csl", sead=1), "option: expected one of seed, source; came 'sead'. Did you mean 'seed'"),
    "option of another": (lambda f: load("zinc", targets="y"), "option: expected one of none; came 'targets'"),
    "unknown target": (lambda f: load("counting", target="square"), "target: expected 'all' or some of triangle"),
    "unknown source": (lambda f: load("csl", source="web"), "source: expected one of 'generated', 'published'; came 'web'"),
    "a seed that is a word": (lambda f: load("csl", seed="a"), "seed: expected a whole number; came 'a'"),
    "negative seed": (lambda f: load("csl", seed=-1), "seed: expected a whole number of at least 0; came -1"),
    "fold too high": (lambda f: load("csl", split=5), r"split: expected 0\.\.4 for csl; came 5"),
    "part of folds": (lambda f: load("csl", split="train"), "split: csl has 5 splits, so expected one of their numbers"),
    "unknown protocol": (lambda f: load("alchemy", protocol="mine"), "protocol: expected 'official' or 'paper'; came 'mine'"),
    "a number": (lambda f: load(7), "graphs: expected a name, a file, or a list of graphs; came int"),
    # tables
    "empty table": (lambda f: table(f, ""), "m.csv: expected a header and at least one row; came an empty file"),
    "blank table": (lambda f: table(f, "\n \n,\n"), "came an empty file"),
    "header alone": (lambda f: table(f, "smiles,y\n"), "expected at least one row below the header; came none"),
    "no SMILES column": (lambda f: table(f, "SMILES,y\nCC,1\n"), "smiles: expected a column of .*'SMILES', 'y'; came 'smiles'"),
    "no such target": (lambda f: table(f, "smiles,y\nCC,1\n", targets=["z"]), "targets: expected a column of .*; came 'z'"),
    "targets not chosen": (lambda f: table(f, "smiles,a,b\nCC,1,2\n"), "targets: expected columns of .*'a', 'b'; came no choice"),
    "target twice": (lambda f: table(f, "smiles,y\nCC,1\n", targets=["y", "y"]), "targets: expected different columns"),
    "column twice": (lambda f: table(f, "smiles,y,y\nCC,1,2\n"), "expected columns with different names; came 'y' twice"),
    "short row": (
        lambda f: table(f, "smiles,y\nCC,1\nCO\n", invalid="refuse"),
        r"expected a molecule and targets in every row; came 1 that cannot be used: row 3: 'CO, ' \(it has 1 cells, and the header 2\)",
    ),
    "long rows alone": (lambda f: table(f, "smiles,y\nCC,1,9\n"), "row 2: 'CC, 1' .*it has 3 cells, .*. Are these the columns"),
    "semicolons": (lambda f: table(f, "smiles;y\nCC;1\n"), r"expected columns parted by commas \(.csv\).*; came semicolons"),
    "open quote": (
        lambda f: table(f, 'smiles,y\n"C\nC",1\nCO,2\n"CC,1\nCN,3\n'),
        "expected a table with its quotes closed; came unexpected end of data in row 4, which begins in line 5",
    ),
    "text after a quote": (lambda f: table(f, 'smiles,y\nC,1\n"CC"N,1\n'), "quotes closed; came .* in row 3, which begins in line 3"),
    "not UTF-8": (lambda f: table(f, b"smiles,y\n\xff\xfe,1\n"), "expected a readable table in UTF-8"),
    "cut gzip": (broken_gzip, "expected a readable table in UTF-8; came Compressed file ended"),
    "text as number": (
        lambda f: table(f, "smiles,a,b\nCC,1,2\nCO,x,3\n", targets=["a", "b"], invalid="refuse"),
        r"1 that cannot be used: row 3: 'x' \(column 'a' holds 'x', which is no finite number\). Pass invalid='skip'",
    ),
    "infinite target": (
        lambda f: table(f, "smiles,y\nCC,1\nCO,inf\n", invalid="refuse"),
        "row 3: 'inf' .column 'y' holds 'inf', which is no finite number",
    ),
    "target beyond float32": (
        lambda f: table(f, "smiles,y\nCC,1\nCO,1e39\n", invalid="refuse"), "column 'y' holds '1e39', which is no finite number"
    ),
    "targets that float32 does not tell apart": (
        lambda f: table(f, "smiles,y\n" + "".join(f"{'C' * item},{item - 10**9}\n" for item in range(1, 13))),
        "targets: expected numbers that float32 tells apart; came 'y' about -1e.09, which varies by 3.5 .*by 12. Subtract a constant",
    ),
    "numbers and words": (
        lambda f: table(f, "smiles,y\nCC,1.5\nCO,n.d.\n"),
        "column 'y': expected numbers, or words for classes; came both: 'n.d.' in row 3 among numbers. Say which they are",
    ),
    "decimal comma": (
        lambda f: table(f, 'smiles,y\nCC,"253,84"\nCO,"253,84"\n'),
        "column 'y': expected numbers, or words for classes; came '253,84' in row 2. Write numbers with a decimal point .*kind=classif",
    ),
    "different words": (
        lambda f: table(f, "smiles,y\n" + "".join(f"{'C' * item},name {item}\n" for item in range(1, 13))),
        "column 'y': expected .* classes that occur again; came 12 different words in 12 rows, 12 of them once. With kind='classification'",
    ),
    "no target at all": (lambda f: table(f, "smiles,y\nCC,\nCO,nan\n"), "column 'y': expected a target in at least one row; came none"),
    "no class at all": (
        lambda f: table(f, "smiles,y\nCC,\nCO,\n", kind="classification"), "column 'y': expected a target in at least one row; came none"
    ),
    "classes in two columns": (
        lambda f: table(f, "smiles,a,b\nCC,1,2\n", targets=["a", "b"], kind="classification"),
        "targets: expected one column for classification; came 2",
    ),
    "one class": (lambda f: table(f, "smiles,y\nCC,a\nCO,a\n"), "expected at least two classes; came 'a' alone"),
    "not binary": (lambda f: table(f, "smiles,y\nCC,1\nCO,2\n", kind="binary"), "targets: expected 0, 1 or nothing for kind='binary'"),
    "unknown kind": (lambda f: table(f, "smiles,y\nCC,1\nCO,2\n", kind="rank"), "kind: expected one of 'regression'"),
    "unfit metric": (lambda f: table(f, "smiles,y\nCC,1.5\nCO,2\n", metric="ap"), "metric: expected one of 'mae', 'mse' for regression"),
    "no molecule": (lambda f: table(f, "smiles,y\nXX,1\nC1,2\n"), "in every row; came 2 that cannot be used: row 2.*row 3"),
    "refused molecule": (lambda f: table(f, "smiles,y\nXX,1\nCC,2\n", invalid="refuse"), "row 2: 'XX'.*Pass invalid='skip'"),
    "unknown invalid": (lambda f: table(f, "smiles,y\nCC,1\n", invalid="drop"), "invalid: expected one of 'skip', 'refuse'"),
    "unknown split": (lambda f: table(f, "smiles,y\nCC,1.5\n", split="time"), "split: expected 'random', .* or 'column:NAME'; came 'time'"),
    "no split column": (lambda f: table(f, "smiles,y\nCC,1.5\n", split="column:s"), "split: expected a column of .*; came 's'"),
    "bad split word": (
        lambda f: table(f, "smiles,y,s\nCC,1.5,train\nCO,2,hold\n", targets="y", split="column:s"),
        "column 's': expected train, val or test in every row; came 'hold' in row 3",
    ),
    "nothing to train on": (
        lambda f: table(f, "smiles,y,s\nCC,1.5,test\n", targets="y", split="column:s"),
        "split: expected at least one molecule to train on",
    ),
    "one fraction": (lambda f: table(f, "smiles,y\nCC,1.5\n", fractions=0.5), "fractions: expected a list; came 0.5"),
    "fraction of a word": (lambda f: table(f, "smiles,y\nCC,1.5\n", fractions=(1, "a", 0)), "fractions: expected a number; came 'a'"),
    "no fraction": (lambda f: table(f, "smiles,y\nCC,1.5\n", fractions=(float("nan"), 0, 0)), "fractions: expected three numbers"),
    "neither true nor false": (
        lambda f: table(f, "smiles,y\nCC,1.5\n", standardise="maybe"), "standardise: expected true or false; came 'maybe'"
    ),
    "a column by its number": (lambda f: table(f, "smiles,y\nCC,1.5\n", targets=1), "targets: expected a column of .*; came 1"),
    "bad fractions": (lambda f: table(f, "smiles,y\nCC,1.5\n", fractions=(1, 1, 1)), "fractions: expected three numbers"),
    # packed files
    "no archive": (lambda f: raw_file(f, b"hello"), "expected a complete .npz file of plain arrays"),
    "empty archive": (lambda f: raw_file(f, b""), "expected a complete .npz file of plain arrays"),
    "a pickle": (lambda f: raw_file(f, pickle.dumps({"x": 1})), "expected a complete .npz file of plain arrays"),
    "pickled array": (lambda f: packed(f, y=np.array([{}, {}], dtype=object)), "plain arrays; came Object arrays cannot be loaded"),
    "cut archive": (truncated, "expected a complete .npz file of plain arrays"),
    "flipped bit": (flipped, "expected a complete .npz file of plain arrays"),
    "array gone": (lambda f: packed(f, edges=None), "expected the array 'edges'; came num_nodes"),
    "edge out of range": (
        lambda f: packed(f, edges=np.array([[0, 2], [0, 1], [1, 2]])),
        r"expected edges u < v below n = 2 in graph 0; came \(0, 2\)",
    ),
    "edge backwards": (lambda f: packed(f, edges=np.array([[0, 1], [1, 0], [1, 2]])), r"expected edges u < v .* in graph 1"),
    "edges of reals": (lambda f: packed(f, edges=np.ones((3, 2))), "expected integers in 'edges'; came float64"),
    "wrong pointer": (lambda f: packed(f, edge_ptr=np.array([0, 2, 1])), "expected edge_ptr rising from 0 to 3"),
    "graph without nodes": (lambda f: packed(f, num_nodes=np.array([2, 0])), "expected at least one node in every graph"),
    "features cut": (lambda f: packed(f, x=np.zeros(4, dtype=np.uint8)), r"expected 5 rows of integers in 'x'; came uint8 \(4,\)"),
    "unknown atom": (lambda f: packed(f, x=np.full(5, 28, dtype=np.uint8)), r"expected values 0\.\.27 in 'x'; came 28"),
    "labels cut": (lambda f: packed(f, y=np.zeros(1)), "expected a number for each of the 2 graphs as target"),
    "infinite label": (lambda f: packed(f, y=np.array([1, np.inf])), "expected finite targets, or NaN"),
    "unknown part": (lambda f: packed(f, split=np.array([0, 3])), r"expected split \(2,\) of 0, 1, 2"),
    # own graphs
    "no graphs": (lambda f: load([]), "graphs: expected at least one graph; came an empty list"),
    "no graph": (lambda f: load([data(), 3]), r"graphs\[1\]: expected a PyG Data, networkx graph or graph6 string; came .*int"),
    "no targets": (lambda f: load([Data(edge_index=EDGE, num_nodes=2)]), r"y: expected targets in every graph \(graph 0\); came none"),
    "uneven targets": (
        lambda f: load([data(), data(y=torch.ones(2))]),
        r"y: expected 1 target\(s\) in every graph; came shape \(2,\) in graph 1",
    ),
    "node too high": (
        lambda f: load([data(), Data(edge_index=EDGE + 1, num_nodes=2, y=torch.ones(1))]),
        r"graphs\[1\]: expected a graph that can be read; came edge_index: expected node numbers 0\.\.1",
    ),
    "one-way edge": (
        lambda f: load([nx.DiGraph([(0, 1)])], labels=[1.5]),
        r"graphs\[0\]: expected a graph that can be read; came edge_index: expected both directions",
    ),
    "uneven features": (
        lambda f: load([data(x=torch.ones(2, 3)), data(x=torch.ones(2, 4))]),
        "x: expected 3 columns, as in graph 0; came 4 in graph 1",
    ),
    "negative type": (lambda f: load([data(x=torch.tensor([-1, 0]))]), "x: expected whole numbers of at least 0.*; came -1"),
    "y too close together": (
        lambda f: load([data(y=torch.tensor([1e9 + item], dtype=torch.float64)) for item in range(9)]),
        "targets: expected numbers that float32",
    ),
    "infinite y": (lambda f: load([data(y=torch.tensor([float("inf")]))]), "y: expected finite numbers"),
    "negative class": (
        lambda f: load([data(y=torch.tensor([1])), data(y=torch.tensor([-2]))]),
        r"y: expected one class 0, 1, .. for each item, or -1 where it is missing; came torch.int64 \(2, 1\) from -2",
    ),
    "half a class": (lambda f: load([data(y=torch.tensor([0.5]))], kind="classification"), "y: expected one class 0, 1, .. for each item"),
    "every class missing": (lambda f: load([data(y=torch.tensor([-1]))]), "y: expected a class for at least one item; came none"),
    "labels too few": (lambda f: load([data(), data()], labels=[1]), "labels: expected 2, one a graph; came 1"),
    "unknown level": (lambda f: load([data()], level="pair"), "level: expected one of 'graph', 'node', 'edge'; came 'pair'"),
    "pairs gone": (lambda f: load([data(edge_label=torch.ones(1))]), r"edge_label_index: expected the pairs to predict, \(2, Q\)"),
    "mask gone": (
        lambda f: load([data(train_mask=torch.ones(2, dtype=torch.bool), y=torch.tensor([0, 1]))]),
        "val_mask: expected a truth value for each of the 2 nodes; came None",
    ),
    # graph6 files
    "no graph6": (lambda f: graph6(f, "C~\n!!!\n"), "graphs: expected graph6 or an edge list; came .*line 2"),
    "graph6 empty": (lambda f: graph6(f, "\n"), "graphs: expected at least one graph"),
    "lines too many": (lambda f: graph6(f, "C~\n", "1\n2\n"), "labels: expected 1 lines in .*labels.txt, one a graph; came 2"),
    "labels uneven": (lambda f: graph6(f, "C~\nC~\n", "1 2\n3\n"), "labels: expected 2 in every line of .*; came 1 in line 2"),
    "a word as number": (
        lambda f: graph6(f, "C~\nC~\n", "1 2\n3 x\n"),
        "targets: expected finite numbers, or nothing; came row 2, where column 'target 1' holds 'x', which is no finite number",
    ),
    "labels gone": (lambda f: graph6(f, "C~\n") and load(f / "g.g6", labels=f / "none"), "labels: expected a readable text file"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name, tmp_path):
    call, sentence = MALFORMED[name]
    with pytest.raises(TupletError, match=sentence) as caught:
        call(tmp_path)
    assert isinstance(caught.value, InputError | OptionError)
    assert "\n" not in str(caught.value)
    assert not re.search(r"[^.]\.\.( |$)", str(caught.value).replace("1, ..", ""))  # no sentence ends twice


def test_the_table_is_long_enough_and_every_sentence_says_something():
    assert len(MALFORMED) >= 85
    assert min(len(sentence) for _, sentence in MALFORMED.values()) >= 15
