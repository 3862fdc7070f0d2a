"""Graphs from text files: graph6, one graph a line, or an edge list, one graph a file."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch_geometric.data import Data

from tuplet.errors import InputError
from tuplet.graphs.graph6 import from_graph6


def read_graphs(source: str | Path, directed: bool = False) -> list[Data]:
    """The graphs of a file, or of a graph6 string if there is no such file.

    A file whose lines hold two words each is an edge list: nodes are the words, numbered in the order in which they first
    appear (numbers in their own order), and a line of one word is a node. A line ``node = label``, with spaces around the
    sign, gives a node a whole number as its label; all nodes of a file have one, or none has. Any other file is graph6.
    Empty lines and lines that begin with "#" are skipped, as is a byte order mark.

    Args:
        source: the file, or the graph6 string.
        directed: whether a line "u v" of an edge list is an edge from u to v only; otherwise it counts both ways.
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
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("graphs", "a readable text file", f"{path}: {error}") from error
    kept = [(number, line) for number, line in enumerate(lines, start=1) if line and not line.startswith("#")]
    if not kept:
        raise InputError("graphs", "at least one graph", f"{path}, which holds none")
    if any(len(line.split()) > 1 for _, line in kept):
        return [_edge_list(path, kept, directed)]
    graphs = []
    for number, line in kept:
        try:
            graphs.append(from_graph6(line))
        except InputError as error:
            raise InputError("graphs", "graph6 or an edge list", f"{path}, line {number}: {error}") from error
    return graphs


def _edge_list(path: Path, lines: list[tuple[int, str]], directed: bool) -> Data:
    words: dict[str, None] = {}
    labels: dict[str, int] = {}
    pairs = []
    for number, line in lines:
        nodes = line.split()
        if len(nodes) == 3 and nodes[1] == "=":
            nodes, label = nodes[:1], _label(path, number, nodes[2])
            if labels.setdefault(nodes[0], label) != label:
                raise InputError("graphs", "one label a node", f"{path}, line {number}: another one for {nodes[0]}")
        elif len(nodes) > 2:
            expected = "two nodes, or node = label, in a line of an edge list"
            raise InputError("graphs", expected, f"{path}, line {number}: {line[:40]!r}")
        words.update(dict.fromkeys(nodes))
        pairs += [nodes] if len(nodes) == 2 else []
    order = sorted(words, key=int) if all(word.isdecimal() for word in words) else list(words)
    place = {word: number for number, word in enumerate(order)}
    edges = torch.tensor([[place[u], place[v]] for u, v in pairs], dtype=torch.long).reshape(-1, 2).t()
    data = Data(edge_index=(edges if directed else torch.cat([edges, edges.flip(0)], dim=1)).contiguous())
    data.num_nodes = len(place)
    if labels:
        bare = [word for word in order if word not in labels]
        if bare:
            raise InputError("graphs", "labels of all nodes or of none", f"{path}: none of {', '.join(bare[:5])}")
        data.x = torch.tensor([[labels[word]] for word in order])
    return data


def _label(path: Path, number: int, word: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", word):
        raise InputError("graphs", "a whole number as a label", f"{path}, line {number}: {word[:40]!r}")
    return int(word)
