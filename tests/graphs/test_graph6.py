"""graph6 strings are read as networkx reads them."""

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuplet.errors import InputError
from tuplet.graphs import read
from tuplet.graphs.graph6 import from_graph6


def line(graph: nx.Graph, header: bool = False) -> str:
    return nx.to_graph6_bytes(graph, header=header).decode()


def assert_reads_like_networkx(text: str) -> None:
    data = from_graph6(text)
    graph = nx.from_graph6_bytes(text.strip().encode())
    assert data.num_nodes == len(graph)
    assert data.edge_index.dtype == torch.int64
    came = [tuple(pair) for pair in data.edge_index.t().tolist()]
    assert len(came) == 2 * graph.number_of_edges()
    assert set(came) == {pair for u, v in graph.edges for pair in ((u, v), (v, u))}


def test_the_whole_graph_atlas():
    for graph in nx.graph_atlas_g():
        assert_reads_like_networkx(line(graph))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 100), st.floats(0, 1), st.integers(0, 1000), st.booleans())
def test_random_graphs_with_and_without_header(n, density, seed, header):
    assert_reads_like_networkx(line(nx.gnp_random_graph(n, density, seed=seed), header))


@pytest.mark.parametrize("n", [61, 62, 63, 64, 100, 300])
def test_both_sides_of_the_longer_size_field(n):
    assert_reads_like_networkx(line(nx.cycle_graph(n)))
    assert read(line(nx.empty_graph(n))).sizes == (n,)


def test_the_longest_size_field():
    n = 3  # nauty writes small sizes short, but the format allows this
    data = from_graph6("~~?????" + chr(n + 63) + "w")
    assert data.num_nodes == n
    assert data.edge_index.shape == (2, 6)


def test_space_around_the_line_does_not_matter():
    assert read("  Bw\n").num_edges == 6
    assert read(">>graph6<<Bw\n").num_edges == 6


BAD = {
    "empty": "",
    "blank": "  \n",
    "header only": ">>graph6<<",
    "a character below ?": "B>",
    "a character outside ASCII": "Bé",
    "two lines": "Bw\nBw",
    "too short": "D",
    "too long": "Bww",
    "no size": "~",
    "size cut off": "~??",
    "long size cut off": "~~???",
    "size without its adjacency": "~~~~~~~~",
    "bits after the last pair": "B~",
    "sparse6": ":Bf",
    "sparse6 with header": ">>sparse6<<:Bf",
    "digraph6": "&B?_",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_bad_strings_are_refused_by_name(text):
    with pytest.raises(InputError, match=r"^graph6: expected .*; came ") as caught:
        read(text)
    assert caught.value.field == "graph6"
    with pytest.raises(InputError, match=r"^graph6: "):
        read(["Bw", text])
