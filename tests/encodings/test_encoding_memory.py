"""Statistics for which there is no memory are refused in words, before any of it is taken."""

import networkx as nx
import pytest
import torch

import tuplet
from tuplet.encodings import KNOWN, RRWP, SPE, SignNet
from tuplet.errors import TooLargeError
from tuplet.experiments.measure import peak_bytes
from tuplet.graphs import read

DENSE = [*(kind() for name, kind in KNOWN.items() if name != "DEG"), RRWP(8, 4), SPE("all", 8), SignNet("all", 8)]
"""Every encoding that is computed with dense matrices, and some more options of these."""


def computed(encoding, graph, monkeypatch, available):
    with monkeypatch.context() as patch:
        patch.setattr("tuplet.encodings.blocks.available_bytes", lambda device: available)
        encoding.compute(graph)


@pytest.mark.parametrize("graph", [nx.cycle_graph(300), nx.gnm_random_graph(300, 400, seed=0)], ids=["ring", "random"])
@pytest.mark.parametrize("encoding", DENSE, ids=str)
def test_what_is_refused_is_what_would_not_fit(encoding, graph, monkeypatch):
    graph = read(graph)
    encoding.compute(graph)
    needed = peak_bytes(lambda: encoding.compute(graph), torch.device("cpu"))
    with pytest.raises(TooLargeError):
        computed(encoding, graph, monkeypatch, 0.8 * needed)
    computed(encoding, graph, monkeypatch, 2 * needed)


@pytest.mark.parametrize("encoding", DENSE, ids=str)
def test_nothing_is_allocated_before_the_refusal(encoding, monkeypatch):
    """A byte for each pair of these nodes would be 10 GB."""
    graph = read(nx.cycle_graph(100_000))

    def refused():
        with pytest.raises(TooLargeError, match=r"GB .* has .* GB: .* rows of .*Cheaper: DEG"):
            encoding.compute(graph)

    assert peak_bytes(refused, torch.device("cpu")) < 100e6


@pytest.mark.parametrize("encoding", ["RRWP:8:4", "SPD:8:4", "RD:4"])
def test_a_model_refuses_encodings_of_too_many_pairs(encoding):
    model = tuplet.build("A1-Linear", dim=8, depth=1, heads=4, encodings=[encoding])
    with pytest.raises(TooLargeError, match=f"{encoding} needs about"):
        model(nx.cycle_graph(100_000))
