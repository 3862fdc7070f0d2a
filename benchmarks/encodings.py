"""How long the raw statistics of every encoding take on all 12,000 graphs of ZINC, from PyG graphs to PyG graphs.

    python benchmarks/encodings.py --data FOLDER [--device cuda] [--rows RWSE:20:28,LapPE:all:16] [--graphs 12000] [--threads 1]

FOLDER (or the environment variable TUPLET_DATA) holds ``zinc12k.npz`` itself or in a folder ``zinc12k``: ``num_nodes`` (G),
``edge_ptr`` (G+1) and ``edges`` (M, 2), one row a bond. One pass each, ``Precompute.many`` on the whole list.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

from tuplet.encodings import CATALOGUE, MAP, Precompute
from tuplet.graphs import read

EXTRA = ("LapPE:all:16", "MAP:all:16", "HodgeRW:16:16:dim=2:rings=5/6")
"""Rows beside the defaults of the catalogue."""
LIMITS = {"RWSE:20:28": 10.0, "LapPE:all:16": 30.0}
"""Seconds that these may take for 12,000 graphs on two cores."""


def find(folder: str | None) -> Path | None:
    """The packed file, if it is there."""
    if folder is None:
        return None
    places = (Path(folder) / "zinc12k.npz", Path(folder) / "zinc12k" / "zinc12k.npz")
    return next((place for place in places if place.is_file()), None)


def load(file: Path, count: int) -> list[Data]:
    """The first graphs of the packed file, without features: encodings do not see them."""
    with np.load(file, allow_pickle=False) as packed:
        sizes, ptr = packed["num_nodes"][:count], packed["edge_ptr"]
        edges = torch.from_numpy(packed["edges"].astype(np.int64))
    graphs = []
    for number, n in enumerate(sizes.tolist()):
        bonds = edges[ptr[number] : ptr[number + 1]].t()
        graphs.append(Data(edge_index=torch.cat([bonds, bonds.flip(0)], dim=1), num_nodes=n))
    return graphs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("TUPLET_DATA"), help="folder of the packed data sets")
    parser.add_argument("--device", default=None, help="where to compute, by default the CPU")
    parser.add_argument("--rows", default=None, help="short forms, separated by commas")
    parser.add_argument("--graphs", type=int, default=12_000)
    parser.add_argument("--threads", type=int, default=1, help="two are little faster: PyG's own part is most")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    file = find(options.data)
    if file is None:
        sys.exit(
            f"No zinc12k.npz in {options.data!r}: pass --data FOLDER or set TUPLET_DATA to the folder that holds it."
        )
    graphs = load(file, options.graphs)
    rows = options.rows.split(",") if options.rows else [row.short for row in CATALOGUE] + list(EXTRA)
    print(f"{len(graphs):,} graphs, {torch.get_num_threads()} threads, device {options.device or 'cpu'}")
    print(f"{'encoding':32}{'seconds':>9}{'graphs/s':>10}{'MB':>8}{'limit':>8}")
    Precompute(rows[:1], device=options.device).many(graphs[:100])
    for row in rows:
        started = time.perf_counter()
        done = Precompute([row], device=options.device).many(graphs)
        seconds = time.perf_counter() - started
        stored = sum(item[field].nbytes for item in done for field in item.keys() if field.startswith("pe_"))  # noqa: SIM118
        limit = f"{LIMITS[row]:.0f} s" if row in LIMITS else ""
        print(f"{row:32}{seconds:9.2f}{len(graphs) / seconds:10,.0f}{stored / 1e6:8.1f}{limit:>8}")
    if any(row.startswith("MAP") for row in rows):
        batch = read(graphs)
        for vectors in (8, "all"):
            encoding = MAP(vectors)
            print(f"{encoding}: {encoding.census(encoding.compute(batch), batch)}")


if __name__ == "__main__":
    main()
