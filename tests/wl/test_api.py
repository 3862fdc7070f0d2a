"""What comes in, what comes out, and what is refused, in words."""

import itertools
import subprocess
import sys
import time

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

import tuplet
from tuplet import wl
from tuplet.errors import InputError, OptionError, TooLargeError

TESTS = ["1-WL", "1-FWL", "2-WL", "3-FWL", "delta-1-WL", "delta-2-LWL", "delta-4-LWL+"]


@pytest.mark.parametrize("test", TESTS)
def test_shapes(test):
    order = int(test.split("-")[-2])
    colors = wl.colors(test, nx.path_graph(4))
    assert colors.shape == (4,) * order
    assert colors.dtype == np.int64
    assert set(colors.reshape(-1).tolist()) == set(range(colors.max() + 1))


def test_simplices_are_keys():
    colors = wl.colors("SWL", nx.complete_graph(3), dim=2)
    assert set(colors) == {(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)}
    assert len(set(colors.values())) == 3
    assert set(wl.colors("SWL", nx.complete_graph(3), dim=1)) == {key for key in colors if len(key) < 3}


def test_graphs_come_through_the_door():
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    ways = [nx.path_graph(3), "Bg", Data(edge_index=edges, num_nodes=3)]
    for one, other in itertools.combinations(ways, 2):
        assert not wl.distinguishes("2-FWL", one, other)
    batch = Batch.from_data_list([ways[2], ways[2]])
    assert wl.partition("1-WL", batch).tolist() == [0, 0]
    assert wl.compare("1-WL", tuplet.read(ways)).classes == 1


def test_rounds_of_a_path():
    """Colour refinement on a path of 9: the ends, then one more distance from the ends each round."""
    graph = nx.path_graph(9)
    result = wl.compare("1-WL", graph)
    assert result.history == (1, 2, 3, 4, 5)
    assert (result.rounds, result.stable) == (4, True)
    limited = wl.compare("1-WL", graph, rounds=2)
    assert (limited.rounds, limited.stable) == (2, False)
    assert wl.colors("1-WL", graph, rounds=0).tolist() == [0] * 9
    assert np.array_equal(wl.colors("1-WL", graph, rounds=2), limited.colors[0])
    assert np.array_equal(wl.colors("1-WL", graph, rounds=50), result.colors[0])


def test_a_limit_of_rounds_limits_what_is_seen():
    """A path of 8, and one of 5 beside a circle of 3: alike as far as two steps from every node."""
    one, other = nx.path_graph(8), nx.disjoint_union(nx.path_graph(5), nx.cycle_graph(3))
    assert wl.compare("1-WL", [one, other]).class_history[:4] == (1, 1, 1, 2)
    assert not wl.distinguishes("1-WL", one, other, rounds=2)
    assert wl.distinguishes("1-WL", one, other, rounds=3)
    assert wl.distinguishes("1-WL", one, other)


def test_classes_are_numbered_in_order_of_appearance():
    graphs = ["C~", "Bg", "C~", "@", "Bg", "BW"]
    assert wl.partition("2-FWL", graphs).tolist() == [0, 1, 0, 2, 1, 1]


def test_the_result_speaks():
    apart = wl.compare("2-WL", [nx.path_graph(4), nx.star_graph(3)])
    assert apart.separated
    assert apart.verdict.startswith("2-WL: told apart; stable after")
    alike = wl.compare("2-WL", [nx.cycle_graph(6), nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))])
    assert not alike.separated
    assert "2 graphs fall in 1 class" in alike.verdict
    assert alike.partition.tolist() == [0, 0]


def test_labels_are_numbers_of_any_kind():
    """Equal labels are equal numbers: 0.1 + 0.2 is not 0.3, large integers are not rounded, -0 is 0."""
    edges = torch.tensor([[0, 1], [1, 0]])

    def pair(*values, dtype):
        return Data(edge_index=edges, x=torch.tensor(values, dtype=dtype))

    assert wl.distinguishes("1-WL", pair(0.1 + 0.2, 1, dtype=torch.float64), pair(0.3, 1, dtype=torch.float64))
    assert wl.distinguishes("1-WL", pair(2**60, 1, dtype=torch.int64), pair(2**60 + 1, 1, dtype=torch.int64))
    assert not wl.distinguishes("1-WL", pair(-0.0, 1, dtype=torch.float32), pair(0.0, 1, dtype=torch.float32))
    assert not wl.distinguishes("1-WL", pair(0.5, 1, dtype=torch.bfloat16), pair(1, 0.5, dtype=torch.bfloat16))


@pytest.mark.parametrize("test", ["1-WL", "2-WL", "2-FWL", "delta-1-LWL", "delta-2-LWL+", "SWL"])
def test_direction_counts(test):
    options = {"dim": 1} if test == "SWL" else {}
    into, out = nx.DiGraph([(1, 0), (2, 0)]), nx.DiGraph([(0, 1), (0, 2)])
    through = nx.DiGraph([(1, 0), (0, 2)])
    assert wl.partition(test, [into, out, through, into], directed=True, **options).tolist() == [0, 1, 2, 0]
    circle, both_ways = nx.cycle_graph(4, nx.DiGraph), nx.DiGraph([(0, 1), (1, 0), (2, 3), (3, 2)])
    assert wl.distinguishes(test, circle, both_ways, directed=True, **options)
    with pytest.raises(InputError, match="both directions"):
        wl.colors(test, into, **options)


@pytest.mark.parametrize("name", ["WL", "2-wl", "k-WL", "2-LWL", "delta-2-FWL", "delta-LWL", "SWL3", "", None])
def test_unknown_names(name):
    with pytest.raises(OptionError, match=r"expected one of 1-WL, k-WL, k-FWL.*SWL"):
        wl.colors(name, "C~")


def test_bad_options():
    with pytest.raises(OptionError, match="k >= 1"):
        wl.colors("0-WL", "C~")
    with pytest.raises(OptionError, match="at most 64; came '65-WL'"):
        wl.colors("65-WL", "C~")
    with pytest.raises(OptionError, match="dim: SWL expects"):
        wl.colors("SWL", "C~")
    with pytest.raises(OptionError, match="dim: SWL expects"):
        wl.colors("SWL", "C~", dim=-1)
    with pytest.raises(OptionError, match="dim: only SWL"):
        wl.colors("2-WL", "C~", dim=2)
    with pytest.raises(OptionError, match="rounds: expected"):
        wl.colors("2-WL", "C~", rounds=-1)
    with pytest.raises(InputError, match="one graph"):
        wl.colors("2-WL", ["C~", "C~"])


def test_too_large_is_refused_with_the_numbers():
    with pytest.raises(
        TooLargeError, match=r"2-FWL needs about .* GB and .* n = 300000 .* 90,000,000,000 tuples of order k = 2"
    ):
        wl.colors("2-FWL", nx.empty_graph(300_000))
    with pytest.raises(TooLargeError, match=r"over 1e\+18 tuples of order k = 60"):
        wl.colors("60-WL", nx.path_graph(3))
    with pytest.raises(TooLargeError, match="order k = 64"):
        wl.colors("64-FWL", nx.empty_graph(1_000_000))


def test_what_takes_too_long_is_refused_with_the_numbers(monkeypatch):
    monkeypatch.setattr("tuplet.wl.memory.available_bytes", lambda device: 10**15)
    with pytest.raises(
        TooLargeError,
        match=r"12-WL takes about 65 minutes a round, and more than 5 are refused: .* n = 6 .* 2,176,782,336 tuples of order k = 12",
    ):
        wl.colors("12-WL", nx.path_graph(6))
    with pytest.raises(TooLargeError, match="2-FWL takes about"):
        wl.colors("2-FWL", nx.empty_graph(3000))
    with pytest.raises(TooLargeError, match="delta-4-LWL takes about"):
        wl.partition("delta-4-LWL", [nx.path_graph(100)] * 9)
    monkeypatch.setattr("tuplet.wl.simplices.SECONDS_A_MESSAGE", 1.0)
    with pytest.raises(TooLargeError, match="SWL takes about"):
        wl.colors("SWL", nx.complete_graph(20), dim=2)


def test_what_takes_long_says_how_long(monkeypatch):
    monkeypatch.setattr("tuplet.wl.memory.LONG_SECONDS", 0.1)
    with pytest.warns(UserWarning, match=r"7-WL takes about 0 seconds a round: .* n = 6 .* 279,936 tuples"):
        wl.colors("7-WL", nx.path_graph(6), rounds=0)


@pytest.mark.parametrize("test, n", [("5-WL", 12), ("3-FWL", 40), ("delta-4-LWL", 20), ("delta-3-LWL+", 40)])
def test_a_round_takes_about_as_long_as_is_estimated(test, n, monkeypatch):
    """Within a factor of ten either way, on a machine that others may use."""
    told = []
    monkeypatch.setattr("tuplet.wl.tuples.refuse_if_too_large", lambda *arguments: told.append(arguments[3]))
    started = time.perf_counter()
    found = wl.compare(test, nx.random_regular_graph(3, n, seed=0))
    assert 0.1 < (time.perf_counter() - started) / (told[0] * (found.rounds + 1)) < 10


def test_simplices_that_say_too_much_are_refused(monkeypatch):
    """A star has few simplices, but all its edges share a node."""
    monkeypatch.setattr("tuplet.wl.memory.available_bytes", lambda device: 10**8)
    wl.compare("SWL", nx.cycle_graph(2000), dim=1)
    with pytest.raises(
        TooLargeError, match=r"SWL needs .* 4,001 simplices up to dimension 1 exchange 4,010,000 messages"
    ):
        wl.compare("SWL", nx.star_graph(2000), dim=1)


def test_it_is_there_after_importing_the_package():
    code = (
        "import tuplet, sys; assert tuplet.wl.distinguishes('1-WL', 'Bg', 'Bw'); assert 'networkx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
