"""ZINC: penalised logP of molecules; the 12,000 of the benchmark, or all 249,456; and edge detection on its graphs.

Irwin et al., "ZINC" (2012); the subset of Dwivedi et al., "Benchmarking Graph Neural Networks" (JMLR 2023). Atoms are one of 28
types (element, explicit hydrogens, charge), bonds single, double or triple.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from tuplet._extras import require
from tuplet.datasets.cache import Cache
from tuplet.datasets.local import packed_graphs, positions, read_arrays
from tuplet.datasets.packed import Field, PackedGraphs
from tuplet.datasets.parallel import Arrays, in_parts
from tuplet.datasets.preparation import worth_processes
from tuplet.datasets.task import PARTS, Task
from tuplet.datasets.where import Where
from tuplet.errors import InputError

ATOMS = (
    "C", "O", "N", "F", "C H1", "S", "Cl", "O -", "N H1 +", "Br", "N H3 +", "N H2 +", "N +", "N -", "S -", "I", "P", "O H1 +",
    "N H1 -", "O +", "S +", "P H1", "P H2", "C H2 -", "P +", "S H1 +", "C H1 -", "P H1 +",
)  # fmt: skip
"""Atom types in the benchmark's order."""
BONDS = 4
"""Bond types 1..3 for single, double, triple; 0 is not used."""
PICKLED = "https://www.dropbox.com/s/feo9qle74kg48gy/molecules.zip?dl=1"
_WHY = (
    f"Its publisher's file, {PICKLED}, holds pickles, which may run any code when they are read, so tuplet does not read them: if "
    "you trust them, read them with torch_geometric.datasets.ZINC and write the packed form with tuplet.datasets.pack."
)
_GRAPHS = ("num_nodes", "edge_ptr", "edges", "x", "edge_attr", "y")
PART = 512


def zinc_task(where: Where) -> Task:
    """The subset of 12,000 molecules, 10,000 / 1,000 / 1,000."""
    (path,) = where.needed("zinc", "zinc12k/zinc12k.npz", why=_WHY)
    return _task("zinc", path)


def zinc_full_task(where: Where) -> Task:
    """All 249,456 molecules, 220,011 / 24,445 / 5,000; made from SMILES once (rdkit, some minutes) if only these are there."""
    if (found := where.local("zinc_full/zinc_full.npz")) is not None:
        return _task("zinc-full", found[0])
    files = [f"zinc_full/{part}_smiles.txt.gz" for part in ("train", "valid", "test")]
    *texts, labels = where.needed("zinc-full", *files, "zinc_full/labels.npz", why=_WHY)
    lines = [_lines(path) for path in texts]
    arrays = read_arrays(labels, ("y_train", "y_valid", "y_test"))
    y = [arrays[f"y_{part}"] for part in ("train", "valid", "test")]
    for path, molecules, values in zip(texts, lines, y, strict=True):
        if values.shape != (len(molecules),):
            raise InputError(str(labels), f"{len(molecules)} labels for {path.name}", f"{values.shape}")
    graphs = from_zinc_smiles([line for part in lines for line in part], where)
    ends = np.cumsum([len(part) for part in lines]).tolist()
    split = {
        part: torch.arange(end - len(held), end) for part, end, held in zip(PARTS, ends, lines, strict=True)
    }  # fmt: skip
    target = Field(torch.from_numpy(np.concatenate(y))[:, None].float(), None, torch.float32)
    return _regression("zinc-full", graphs.with_fields(y=target), split, f"packed SMILES, {labels.parent}")


def edge_detection_task(where: Where, *, seed: int = 0) -> Task:
    """Which pairs of atoms are bonded: all edges of ZINC's 12,000 graphs and as many non-edges, drawn once.

    Müller et al., "Attending to Graph Transformers" (2023). Pairs are ordered: both directions of every edge, and as many ordered
    pairs of different nodes without an edge (all, should there be fewer). Bond types are left out. The released code of
    that work draws pairs (i, i) among the non-edges too; here they are not.

    Args:
        where: of ZINC's packed form.
        seed: of the non-edges and of the order of pairs.
    """
    zinc = zinc_task(where)
    assert isinstance(zinc.graphs, PackedGraphs)
    generator = np.random.default_rng(seed)
    pairs, labels, counts = [], [], [0]
    for data in zinc.graphs.only(["edge_index"]):
        drawn, label = _queries(data, generator)
        pairs.append(drawn)
        labels.append(label)
        counts.append(len(label))
    ptr = torch.tensor(counts).cumsum(0)
    graphs = zinc.graphs.only(["x", "edge_index"]).with_fields(
        edge_label_index=Field(torch.from_numpy(np.concatenate(pairs)).to(torch.uint8), ptr, columns=True),
        edge_label=Field(torch.from_numpy(np.concatenate(labels)).to(torch.uint8), ptr),
    )
    return Task(
        name="edge-detection", graphs=graphs, splits=zinc.splits, level="edge", kind="classification", outputs=2,
        loss="cross_entropy", metric="accuracy", node_types=len(ATOMS), targets=("no edge", "edge"),
        origin=f"{zinc.origin}, pairs drawn with seed {seed}",
    )  # fmt: skip


def _queries(data: Data, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(Q, 2) ordered pairs in random order and (Q,) whether they are edges."""
    n = int(data.num_nodes or 0)
    codes = data.edge_index[0].numpy() * n + data.edge_index[1].numpy()
    free = np.ones(n * n, dtype=bool)
    free[codes] = False
    free[:: n + 1] = False
    others = generator.permutation(np.flatnonzero(free))[: len(codes)]
    both = np.concatenate([codes, others])
    order = generator.permutation(len(both))
    chosen = both[order]
    return np.stack([chosen // n, chosen % n], axis=1), order < len(codes)


def _task(name: str, path: Path) -> Task:
    arrays = read_arrays(path, (*_GRAPHS, "split"))
    y = arrays["y"].reshape(len(arrays["y"]), -1).astype(np.float32)
    graphs = packed_graphs(path, arrays, y, torch.float32)
    for field, count in (("x", len(ATOMS)), ("edge_attr", BONDS)):
        if int(graphs.fields[field].values.max()) >= count:
            raise InputError(
                str(path), f"values 0..{count - 1} in {field!r}", f"{int(graphs.fields[field].values.max())}"
            )
    return _regression(name, graphs, positions(path, arrays, len(graphs)), f"packed, {path}")


def _regression(name: str, graphs: PackedGraphs, split: dict[str, torch.Tensor], origin: str) -> Task:
    return Task(
        name=name, graphs=graphs, splits=(split,), level="graph", kind="regression", outputs=1, loss="l1", metric="mae",
        node_types=len(ATOMS), edge_types=BONDS, targets=("penalised logP",), origin=origin,
    )  # fmt: skip


def from_zinc_smiles(texts: list[str], where: Where) -> PackedGraphs:
    """Graphs of SMILES with ZINC's atom and bond types, made once and kept."""
    rdkit = require("rdkit", "mol")
    digest = hashlib.blake2b(f"zinc 1 {rdkit.__version__}\n".encode(), digest_size=16)
    for text in texts:
        digest.update(f"{text}\n".encode())
    cache = Cache(where.base / "prepared", digest.hexdigest())
    return cache.get(lambda folder: _made(texts, where, folder), where.force_reload)


def _made(texts: list[str], where: Where, folder: Path) -> Iterator[PackedGraphs]:
    parts = ({"texts": np.array(texts[first : first + PART], dtype=np.str_)} for first in range(0, len(texts), PART))
    processes = worth_processes(where.processes, len(texts))
    done = 0
    for result in in_parts("tuplet.datasets.zinc:work", {}, parts, processes, folder):
        part = PackedGraphs.from_arrays(result)
        done += len(part)
        yield part
        if where.progress is not None:
            where.progress(done, len(texts))


def work(options: Mapping[str, Any], part: Arrays) -> Arrays:
    """Graphs of one part of the SMILES."""
    packed = PackedGraphs.from_graphs([zinc_graph(text) for text in part["texts"].tolist()])
    return packed.stored_as(torch.int16).to_arrays()


def zinc_graph(smiles: str) -> Data:
    """The graph of a molecule with ZINC's types, bonds of aromatic rings as single and double: ``x`` (n, 1), ``edge_attr`` (E,)."""
    chem, base = require("rdkit.Chem", "mol"), require("rdkit.rdBase", "mol")
    with base.BlockLogs():
        mol = chem.MolFromSmiles(smiles)
    if mol is None:
        raise InputError("smiles", "a molecule", repr(smiles[:60]))
    chem.Kekulize(mol, clearAromaticFlags=True)
    try:
        x = torch.tensor([[_NUMBER[_type(atom)]] for atom in mol.GetAtoms()], dtype=torch.uint8)
    except KeyError as error:
        raise InputError("smiles", f"atoms of the types {', '.join(ATOMS)}", f"{error} in {smiles[:60]!r}") from error
    bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx(), int(bond.GetBondTypeAsDouble())) for bond in mol.GetBonds()]
    rows = torch.tensor(sorted([*bonds, *((v, u, kind) for u, v, kind in bonds)]), dtype=torch.int64).reshape(-1, 3)
    return Data(
        x=x.long(), edge_index=rows[:, :2].t().contiguous(), edge_attr=rows[:, 2].contiguous(), num_nodes=len(x)
    )


_NUMBER = {name: number for number, name in enumerate(ATOMS)}


def _type(atom: Any) -> str:
    hydrogens, charge = atom.GetNumExplicitHs(), atom.GetFormalCharge()
    sign = " +" if charge > 0 else " -" if charge < 0 else ""
    return f"{atom.GetSymbol()}{f' H{hydrogens}' if hydrogens else ''}{sign}"


def _lines(path: Path) -> list[str]:
    try:
        return gzip.decompress(path.read_bytes()).decode().split()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise InputError(str(path), "SMILES, a line each, packed with gzip", str(error)) from error
