"""Molecules from SMILES, with the atom and bond features of the Open Graph Benchmark (Hu et al., NeurIPS 2020).

A column of ``x`` or ``edge_attr`` is the place of a value in its list; what is not in the list has the last place. Atoms are
nodes in the order of the SMILES, hydrogens are not nodes unless they must be ("[H][H]"). Needs rdkit (extra ``mol``).

Chirality is as OGB has it: which way the neighbours turn in the order in which the SMILES names them. So a chiral molecule has
other features in another writing: "N[C@@H](C)C(=O)O" is "C[C@H](N)C(=O)O", and has the features of its mirror image. Molecules
are told apart if all SMILES, in training and in use, are written in one way, as rdkit's ``CanonSmiles`` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch_geometric.data import Data

from tuplet._extras import require
from tuplet.errors import InputError

_CHIRALITY = {"CHI_UNSPECIFIED": 0, "CHI_TETRAHEDRAL_CW": 1, "CHI_TETRAHEDRAL_CCW": 2, "CHI_OTHER": 3}
_HYBRIDISATION = {"SP": 0, "SP2": 1, "SP3": 2, "SP3D": 3, "SP3D2": 4}
_BOND = {"SINGLE": 0, "DOUBLE": 1, "TRIPLE": 2, "AROMATIC": 3}
_STEREO = {"STEREONONE": 0, "STEREOZ": 1, "STEREOE": 2, "STEREOCIS": 3, "STEREOTRANS": 4, "STEREOANY": 5}

ATOM_TYPES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
"""Values of each atom feature: atomic number 1..118, chirality, degree 0..10, charge -5..5, hydrogens 0..8, radical electrons
0..4, hybridisation, aromatic, in a ring; the first seven have a last value for everything else."""
BOND_TYPES = (5, 6, 2)
"""Values of each bond feature: type (with a last value for everything else), stereo, conjugated."""


@dataclass(frozen=True)
class Unreadable:
    """A text that is no molecule: why."""

    reason: str


def from_smiles(smiles: str, *, check_valence: bool = True) -> Data:
    """The graph of a molecule: ``x`` (n, 9), ``edge_index`` (2, E) with both directions of a bond, ``edge_attr`` (E, 3).

    Args:
        smiles: one molecule; parts joined by a dot (salts) make a graph of several components.
        check_valence: refuse impossible valences; without it metal complexes that older rdkit versions took pass.
    """
    graph = try_smiles(smiles, check_valence=check_valence)
    if isinstance(graph, Unreadable):
        raise InputError("smiles", "a molecule", f"{_short(smiles)}: {graph.reason}")
    return graph


def try_smiles(smiles: str, *, check_valence: bool = True) -> Data | Unreadable:
    """As ``from_smiles``, with what is unreadable returned and not raised."""
    mol = parse(smiles, check_valence=check_valence)
    return mol if isinstance(mol, Unreadable) else from_molecule(mol)


def parse(smiles: Any, *, check_valence: bool = True) -> Any:
    """An rdkit molecule of at least one atom, or ``Unreadable``."""
    chem, base = require("rdkit.Chem", "mol"), require("rdkit.rdBase", "mol")
    if not isinstance(smiles, str):
        return Unreadable(f"text was expected, not {type(smiles).__name__}")
    text = smiles.strip()
    if not text:
        return Unreadable("it is empty")
    if len(text.split()) > 1 or not text.isprintable():  # rdkit would take what follows a blank for a name
        return Unreadable("a SMILES has no blanks inside")
    with base.BlockLogs():
        mol = chem.MolFromSmiles(text) if check_valence else _without_valence(chem, text)
        if mol is None:
            return Unreadable(_reason(chem, text))
    return mol if mol.GetNumAtoms() else Unreadable("it has no atoms")


def from_molecule(mol: Any) -> Data:
    """The graph of an rdkit molecule."""
    x = torch.tensor([_atom(atom) for atom in mol.GetAtoms()], dtype=torch.int64).reshape(-1, len(ATOM_TYPES))
    bonds = list(mol.GetBonds())
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds]
    pairs = torch.tensor([pair for u, v in ends for pair in ((u, v), (v, u))], dtype=torch.int64).reshape(-1, 2)
    features = torch.tensor([_bond(bond) for bond in bonds], dtype=torch.int64).reshape(-1, len(BOND_TYPES))
    return Data(
        x=x, edge_index=pairs.t().contiguous(), edge_attr=features.repeat_interleave(2, dim=0), num_nodes=len(x)
    )


def scaffold(mol: Any) -> str:
    """The Bemis–Murcko scaffold of an rdkit molecule as SMILES, without stereo; "" for a molecule without rings."""
    murcko = require("rdkit.Chem.Scaffolds.MurckoScaffold", "mol")
    return str(murcko.MurckoScaffoldSmiles(mol=mol, includeChirality=False))


def _atom(atom: Any) -> list[int]:
    number, charge = atom.GetAtomicNum(), atom.GetFormalCharge()
    return [
        number - 1 if 1 <= number <= 118 else 118,
        _CHIRALITY.get(str(atom.GetChiralTag()), 4),
        min(atom.GetTotalDegree(), 11),
        charge + 5 if -5 <= charge <= 5 else 11,
        min(atom.GetTotalNumHs(), 9),
        min(atom.GetNumRadicalElectrons(), 5),
        _HYBRIDISATION.get(str(atom.GetHybridization()), 5),
        int(atom.GetIsAromatic()),
        int(atom.IsInRing()),
    ]


def _bond(bond: Any) -> list[int]:
    stereo = _STEREO.get(str(bond.GetStereo()), _STEREO["STEREOANY"])
    return [_BOND.get(str(bond.GetBondType()), 4), stereo, int(bond.GetIsConjugated())]


def _without_valence(chem: Any, text: str) -> Any:
    mol = chem.MolFromSmiles(text, sanitize=False)
    if mol is None:
        return None
    mol.UpdatePropertyCache(strict=False)
    every, valence = chem.SanitizeFlags.SANITIZE_ALL, chem.SanitizeFlags.SANITIZE_PROPERTIES
    failed = chem.SanitizeMol(mol, sanitizeOps=every ^ valence, catchErrors=True)
    if failed != chem.SanitizeFlags.SANITIZE_NONE:
        return None
    chem.AssignStereochemistry(mol, cleanIt=True)
    return mol


def _reason(chem: Any, text: str) -> str:
    """Why rdkit does not take a SMILES."""
    raw = chem.MolFromSmiles(text, sanitize=False)
    if raw is None:
        return "it is not written as a SMILES is"
    problems = [problem.Message() for problem in chem.DetectChemistryProblems(raw)]
    return "; ".join(problems) or "rdkit does not take it"


def _short(text: Any) -> str:
    return repr(text if len(str(text)) <= 60 else f"{str(text)[:57]}...")
