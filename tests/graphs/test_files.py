"""Graphs from text files and graph6 strings."""

import networkx as nx
import pytest

from tuplet.errors import InputError
from tuplet.graphs.files import read_graphs


def edges(data):
    return sorted({tuple(sorted(pair)) for pair in data.edge_index.t().tolist()})


def test_graph6_files_hold_a_graph_a_line(tmp_path):
    path = tmp_path / "graphs.g6"
    graphs = [nx.path_graph(4), nx.cycle_graph(7), nx.empty_graph(1)]
    path.write_bytes(b"# three\n" + b"".join(nx.to_graph6_bytes(graph, header=False) for graph in graphs))
    assert [data.num_nodes for data in read_graphs(path)] == [4, 7, 1]
    assert edges(read_graphs(path)[0]) == [(0, 1), (1, 2), (2, 3)]


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    (tmp_path / "graphs.g6").write_text("Ch\nBw\n", encoding="utf-8-sig")
    assert [data.num_nodes for data in read_graphs(tmp_path / "graphs.g6")] == [4, 3]
    (tmp_path / "edges.txt").write_text("1 2\n2 1\n", encoding="utf-8-sig")
    assert read_graphs(tmp_path / "edges.txt")[0].num_nodes == 2


def test_a_graph6_string_is_a_graph():
    assert edges(read_graphs("Ch")[0]) == [(0, 1), (1, 2), (2, 3)]
    long = nx.to_graph6_bytes(nx.complete_graph(90), header=False).decode().strip()
    assert read_graphs(long)[0].num_nodes == 90


def test_edge_lists_number_their_nodes(tmp_path):
    numbers, names = tmp_path / "numbers.txt", tmp_path / "names.txt"
    numbers.write_text("10 2\n2 7\n30\n")
    (data,) = read_graphs(numbers)
    assert data.num_nodes == 4
    assert edges(data) == [(0, 1), (0, 2)]
    names.write_text("# a triangle\nb a\na c\n\nc b\nc b\n")
    assert edges(read_graphs(names)[0]) == [(0, 1), (0, 2), (1, 2)]


def test_edge_lists_with_directions(tmp_path):
    path = tmp_path / "arrows.txt"
    path.write_text("a b\nb c\n")
    assert read_graphs(path, directed=True)[0].edge_index.tolist() == [[0, 1], [1, 2]]
    assert read_graphs(path)[0].edge_index.tolist() == [[0, 1, 1, 2], [1, 2, 0, 1]]
    assert len(read_graphs("Ch", directed=True)[0].edge_index.t()) == 6  # graph6 has edges both ways


def test_edge_lists_with_labels(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_text("10 = 6\n2 10\n2 = 7\n30 = -1\n2 = 7\n")
    (data,) = read_graphs(path)
    assert data.x.tolist() == [[7], [6], [-1]]
    assert edges(data) == [(0, 1)]
    path.write_text("a = 1\n")
    assert read_graphs(path)[0].x.tolist() == [[1]]
    path.write_text("a b\n")
    assert read_graphs(path)[0].x is None


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "holds none"),
        ("# only words\n", "holds none"),
        ("a b c\n", "line 1: 'a b c'"),
        ("a b\na = red\nb = 1\n", "a whole number as a label; came .*line 2: 'red'"),
        ("a = 9999999999999999999\n", "line 1: '9999999999999999999'"),
        ("a b\na = 1\n", "labels of all nodes or of none; came .*: none of b"),
        ("a = 1\na = 2\n", "one label a node; came .*line 2: another one for a"),
        ("Ch\n!!\n", "line 2: graph6"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, message):
    path = tmp_path / "graphs.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_graphs(path)


def test_neither_file_nor_graph6(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_graphs("nowhere.g6")
    path = tmp_path / "bytes.g6"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="readable text file"):
        read_graphs(path)
