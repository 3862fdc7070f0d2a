"""Every test agrees with its definition, round by round, for all kinds of graphs."""

import itertools

import numpy as np
import pytest
from literal import simplex_rounds, tuple_rounds
from random_graphs import SETTINGS, isomorphic, permute, some_graphs

from tuplet import wl
from tuplet.wl import rank

TESTS = [f"{k}-{kind}" for k in (1, 2, 3) for kind in ("WL", "FWL")]
TESTS += [f"delta-{k}-{kind}" for k in (1, 2, 3) for kind in ("WL", "LWL", "LWL+")]


def flat(colors):
    """(graph number, tuple or simplex) -> colour, as the literal implementation has it."""
    flattened = {}
    for g, own in enumerate(colors):
        items = own.items() if isinstance(own, dict) else np.ndenumerate(own)
        flattened.update(((g, item), int(color)) for item, color in items)
    return flattened


def assert_same_classes(expected, found):
    """Equal colours for exactly the same pairs, of both of which there are some."""
    assert expected.keys() == found.keys()
    joint = {(expected[item], found[item]) for item in expected}
    assert len(joint) == len(set(expected.values())) == len(set(found.values()))
    return len(joint), len(expected)


def check(rounds, graphs, test, **options):
    for number, expected in enumerate(rounds):
        result = wl.compare(test, graphs, rounds=number, **options)
        assert result.rounds == number
        assert_same_classes(expected, flat(result.colors))
        assert result.history == tuple(len(set(earlier.values())) for earlier in rounds[: number + 1])
    stable = wl.compare(test, graphs, **options)
    assert stable.stable
    assert stable.rounds == len(rounds) - 1
    classes, items = assert_same_classes(rounds[-1], flat(stable.colors))
    assert 1 < classes < items, "nothing to tell apart, or nothing to keep together"
    assert_same_histograms(rounds[-1], stable, graphs)


def assert_same_histograms(colors, result, graphs):
    histograms = [sorted(color for (g, _), color in colors.items() if g == number) for number in range(len(graphs))]
    must = must_not = 0
    for one, other in itertools.combinations(range(len(graphs)), 2):
        apart = histograms[one] != histograms[other]
        assert apart == (result.partition[one] != result.partition[other])
        must, must_not = must + apart, must_not + (not apart)
        assert not (apart and isomorphic(graphs[one], graphs[other]))
    assert must
    assert must_not


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("test", TESTS)
def test_tuples(test, setting):
    order = int(test.split("-")[-2])
    graphs = some_graphs(len(setting), 6 if order < 3 else 4, **SETTINGS[setting])
    check(tuple_rounds(test, graphs), graphs, test, directed=SETTINGS[setting].get("directed", False))


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("dim", [0, 1, 2, 3])
def test_simplices(dim, setting):
    graphs = some_graphs(len(setting), 6, **SETTINGS[setting])
    check(simplex_rounds(dim, graphs), graphs, "SWL", dim=dim, directed=SETTINGS[setting].get("directed", False))


@pytest.mark.parametrize("test", [*TESTS, "SWL"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_renumbering_nodes_moves_colours_and_does_not_change_them(test, setting):
    options = {"dim": 2} if test == "SWL" else {}
    graph = some_graphs(7, 6 if "3" not in test else 4, **SETTINGS[setting])[-2]
    order = np.random.default_rng(0).permutation(graph.num_nodes)
    directed = SETTINGS[setting].get("directed", False)
    before = wl.colors(test, graph, directed=directed, **options)
    after = wl.colors(test, permute(graph, order), directed=directed, **options)
    if test == "SWL":
        assert {tuple(sorted(order[list(simplex)].tolist())): color for simplex, color in before.items()} == after
    else:
        assert np.array_equal(after[np.ix_(*[order] * before.ndim)], before)


@pytest.mark.parametrize("test", ["1-WL", "3-FWL", "delta-2-WL", "delta-2-LWL+", "SWL"])
def test_small_words_and_pieces_change_nothing(test, monkeypatch):
    """Packing that runs over, tables that are computed again, and fingerprints that collide are rare: here they are not."""
    options = {"dim": 2} if test == "SWL" else {}
    graphs = some_graphs(3, 5, types=2)
    expected = flat(wl.compare(test, graphs, **options).colors)
    honest, asked = rank._fingerprint, []

    def colliding(rows, salt):
        asked.append(salt)
        prints = honest(rows, salt)
        return np.zeros_like(prints) if salt == 0 else prints % 2 if salt == 1 else prints

    for name, value in (("WORD", 40), ("PIECE", 16), ("KEPT", 32), ("_fingerprint", colliding)):
        monkeypatch.setattr(rank, name, value)
    assert_same_classes(expected, flat(wl.compare(test, graphs, **options).colors))
    assert max(asked) >= 2
