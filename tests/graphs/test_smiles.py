"""SMILES: features against OGB's definition and data, what cannot be read, single atoms and salts."""

import csv
import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch

import tuplet
from tuplet.errors import InputError, MissingExtraError
from tuplet.graphs import smiles as module
from tuplet.graphs.smiles import ATOM_TYPES, BOND_TYPES, Unreadable, from_smiles, parse, scaffold, try_smiles

pytest.importorskip("rdkit")


@pytest.fixture(scope="module")
def molhiv():
    folder = Path(os.environ.get("TUPLET_DATA", Path(__file__).parents[3] / "shared" / "data")) / "ogbg_molhiv"
    if not folder.is_dir():
        pytest.skip(f"no packed molhiv at {folder}; set TUPLET_DATA to the folder that holds ogbg_molhiv/graphs.npz")
    with np.load(folder / "graphs.npz", allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["node_ptr"] = np.concatenate([[0], np.cumsum(arrays["num_nodes"])])
    with gzip.open(folder / "molhiv.csv.gz", "rt") as file:
        return [row["smiles"] for row in csv.DictReader(file)], arrays


def agrees(data, arrays, number):
    nodes = slice(arrays["node_ptr"][number], arrays["node_ptr"][number + 1])
    rows = slice(arrays["edge_ptr"][number], arrays["edge_ptr"][number + 1])
    one_way = data.edge_index[0] < data.edge_index[1]
    edges, features = data.edge_index[:, one_way].t().numpy(), data.edge_attr[one_way].numpy()
    order = np.lexsort((edges[:, 1], edges[:, 0]))
    return (
        np.array_equal(data.x.numpy(), arrays["x_t"][:, nodes].T)
        and np.array_equal(edges[order], arrays["edges"][rows])
        and np.array_equal(features[order], arrays["edge_attr_t"][:, rows].T)
    )


def check(molhiv, step):
    smiles, arrays = molhiv
    refused = []
    for number in range(0, len(smiles), step):
        data = try_smiles(smiles[number])
        if isinstance(data, Unreadable):
            refused.append(number)
            data = from_smiles(smiles[number], check_valence=False)
        assert agrees(data, arrays, number), smiles[number]
    return refused


def test_features_of_molhiv(molhiv):
    check(molhiv, 101)


def test_metal_complexes_need_no_valence_check(molhiv):
    smiles, arrays = molhiv
    for number in (137, 987, 12_882, 18_293, 30_784, 30_785, 35_728):
        assert "Explicit valence" in try_smiles(smiles[number]).reason
        assert agrees(from_smiles(smiles[number], check_valence=False), arrays, number)


@pytest.mark.soak
def test_features_of_all_of_molhiv(molhiv):
    assert check(molhiv, 1) == [137, 987, 12_882, 18_293, 30_784, 30_785, 35_728]


def test_by_hand():
    """Atom and bond of the published definition: a chiral carbon and a double bond with stereo."""
    data = from_smiles("Cl[C@H](/C=C/C)Br")
    assert data.x[1].tolist() == [5, 2, 4, 5, 1, 0, 2, 0, 0]
    double = data.edge_attr[(data.edge_attr[:, 0] == 1)]
    assert double.tolist() == [[1, 2, 0]] * 2
    assert data.edge_index[:, 0].flip(0).tolist() == data.edge_index[:, 1].tolist()
    benzene = from_smiles("c1ccccc1")
    assert benzene.edge_attr.unique(dim=0).tolist() == [[3, 0, 1]]
    assert benzene.x.unique(dim=0).tolist() == [[5, 0, 3, 5, 1, 0, 1, 1, 1]]
    assert from_smiles("[CH3]").x[0, 5] == 1


def test_every_feature_is_within_its_types():
    odd = [
        "*",
        "[H][H]",
        "[U+6]",
        "F[P-](F)(F)(F)(F)F",
        "[Fe-8]",
        "F[Xe](F)(F)F",
        "CC->[Fe]",
        "[Na+].[Cl-]",
        "[2H]O[2H]",
        "N[Pt@SP1](N)(Cl)Cl",
    ]
    for text in odd:
        data = from_smiles(text)
        assert bool((data.x < torch.tensor(ATOM_TYPES)).all())
        assert bool((data.x >= 0).all())
        assert data.edge_attr.numel() == 0 or bool((data.edge_attr < torch.tensor(BOND_TYPES)).all())
    assert from_smiles("*").x[0, 0] == 118
    assert from_smiles("[Fe-8]").x[0, 3] == 11


@pytest.mark.parametrize("text, nodes, edges", [("C", 1, 0), ("[Na+].[Cl-]", 2, 0), ("[H]", 1, 0), ("  CCO\n", 3, 4)])
def test_small_molecules_run_through_a_model(text, nodes, edges):
    data = from_smiles(text)
    assert (data.num_nodes, data.num_edges) == (nodes, edges)
    assert data.x.dtype == data.edge_index.dtype == data.edge_attr.dtype == torch.int64
    model = tuplet.build("A2^LN", dim=8, depth=1, heads=2, node_types=ATOM_TYPES, edge_types=BOND_TYPES).eval()
    assert bool(torch.isfinite(model([data, from_smiles("CCO")])).all())


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "it is empty"),
        ("   ", "it is empty"),
        ("C1CC", "not written as a SMILES is"),
        ("hello", "not written as a SMILES is"),
        ("CCO ethanol", "no blanks inside"),
        ("C\x00C", "no blanks inside"),
        ("CN(C)(C)(C)C", "Explicit valence for atom # 1 N"),
        ("c1cccc1", "kekulize"),
        (None, "text was expected, not NoneType"),
        (3.5, "text was expected, not float"),
    ],
)
def test_what_is_no_molecule(text, reason, capfd):
    found = try_smiles(text)
    assert reason.lower() in found.reason.lower()
    with pytest.raises(InputError, match="smiles: expected a molecule; came"):
        from_smiles(text)
    assert capfd.readouterr().err == ""  # rdkit's own lines do not reach the user


def test_scaffolds():
    assert scaffold(parse("CCc1ccccc1CN")) == "c1ccccc1"
    assert scaffold(parse("CCO")) == ""
    assert scaffold(parse("C[C@H]1CCNC1")) == "C1CCNC1"


def test_without_rdkit(monkeypatch):
    def missing(name, extra):
        raise MissingExtraError(f"{name} is not installed; it comes with the extra [{extra}]")

    monkeypatch.setattr(module, "require", missing)
    with pytest.raises(MissingExtraError, match=r"extra \[mol\]"):
        from_smiles("CCO")
