"""graph6 strings (McKay's format for small undirected graphs) to PyG ``Data``."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data

from tuplet.errors import InputError

_EXPECTED = "a graph6 string (characters '?' to '~', as networkx and nauty write it)"


def from_graph6(text: str) -> Data:
    """The graph of one graph6 line; the optional ``>>graph6<<`` header is skipped."""
    line = text.strip().removeprefix(">>graph6<<")
    if line.startswith((":", "&", ";")):
        raise InputError("graph6", _EXPECTED, f"a sparse6 or digraph6 string {text[:20]!r}")
    if not line or any(not 63 <= ord(character) <= 126 for character in line):
        raise InputError("graph6", _EXPECTED, repr(text[:40]))
    values = np.frombuffer(line.encode("ascii"), dtype=np.uint8).astype(np.int64) - 63
    n, values = _size(values, text)
    pairs = n * (n - 1) // 2
    if len(values) != -(-pairs // 6):
        raise InputError(
            "graph6", f"{-(-pairs // 6)} characters of adjacency for n = {n}", f"{len(values)} in {text[:40]!r}"
        )
    bits = ((values[:, None] >> np.arange(5, -1, -1)) & 1).reshape(-1)
    if bits[pairs:].any():
        raise InputError("graph6", "zero bits after the last pair", f"non-zero padding in {text[:40]!r}")
    # the format lists the upper triangle column by column: (0,1), (0,2), (1,2), (0,3), ...
    column, row = np.tril_indices(n, -1)
    present = bits[:pairs].astype(bool)
    upper = torch.from_numpy(np.stack([row[present], column[present]]))
    return Data(edge_index=torch.cat([upper, upper.flip(0)], dim=1), num_nodes=n)


def _size(values: np.ndarray, text: str) -> tuple[int, np.ndarray]:
    def number(digits: np.ndarray) -> int:
        return int((digits << np.arange(6 * (len(digits) - 1), -1, -6)).sum())

    if values[0] < 63:
        return int(values[0]), values[1:]
    if len(values) >= 4 and values[1] < 63:
        return number(values[1:4]), values[4:]
    if len(values) >= 8:
        return number(values[2:8]), values[8:]
    raise InputError("graph6", "a complete size field", repr(text[:40]))
