"""Graphs from text files: graph6, one graph a line, or an edge list, one graph a file."""

from __future__ import annotations

from pathlib import Path

import torch
from torch_geometric.data import Data

from tuplet.errors import InputError
from tuplet.graphs.graph6 import from_graph6


def read_graphs(source: str | Path) -> list[Data]:
    """The graphs of a file, or of a graph6 string if there is no such file.

    A file whose lines hold two words each is an edge list: nodes are the words, numbered in the order in which they first
    appear (numbers in their own order), a line of one word is a node, and each edge counts both ways. Any other file is
    graph6. Empty lines and lines that begin with "#" are skipped.
    """
    path = Path(source)
    try:
        exists = path.is_file()
    except OSError:  # a graph6 string may be longer than a file name can be
        exists = False
    if not exists:
        try:
            return [from_graph6(str(source))]
        except InputError as error:
            raise InputError(
                "graphs", "a file, or a graph6 string", f"{str(source)[:60]!r}: no such file; {error}"
            ) from error
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("graphs", "a readable text file", f"{path}: {error}") from error
    kept = [(number, line) for number, line in enumerate(lines, start=1) if line and not line.startswith("#")]
    if not kept:
        raise InputError("graphs", "at least one graph", f"{path}, which holds none")
    if any(len(line.split()) > 1 for _, line in kept):
        return [_edge_list(path, kept)]
    graphs = []
    for number, line in kept:
        try:
            graphs.append(from_graph6(line))
        except InputError as error:
            raise InputError("graphs", "graph6 or an edge list", f"{path}, line {number}: {error}") from error
    return graphs


def _edge_list(path: Path, lines: list[tuple[int, str]]) -> Data:
    words: dict[str, None] = {}
    pairs = []
    for number, line in lines:
        nodes = line.split()
        if len(nodes) > 2:
            raise InputError("graphs", "two nodes in a line of an edge list", f"{path}, line {number}: {line[:40]!r}")
        words.update(dict.fromkeys(nodes))
        pairs += [nodes] if len(nodes) == 2 else []
    order = sorted(words, key=int) if all(word.isdecimal() for word in words) else list(words)
    place = {word: number for number, word in enumerate(order)}
    edges = torch.tensor([[place[u], place[v]] for u, v in pairs], dtype=torch.long).reshape(-1, 2).t()
    return Data(edge_index=torch.cat([edges, edges.flip(0)], dim=1).contiguous(), num_nodes=len(place))
