"""MAP: canonical where its theory promises it, and the other cases found and counted."""

from itertools import permutations

import networkx as nx
import numpy as np
import pytest
import torch
from encoding_cases import GRAPHS, rename
from networkx.generators.atlas import graph_atlas_g

from tuplet.encodings import MAP
from tuplet.encodings.canonical import canonical_basis
from tuplet.graphs import read

PLANES = [nx.from_graph6_bytes(code) for code in (b"FjsGG", b"FyaAg", b"FxaGg")]
"""Seven nodes, and a plane of eigenvectors with a canonical basis; with fewer nodes there is none."""
ATLAS = [graph for graph in graph_atlas_g() if 1 <= len(graph) <= 6] + PLANES
ENCODING = MAP("all", uncanonical="flip")


def spaces(graph):
    """For each eigenspace of one graph: canonical vectors (n, d) and whether they are canonical."""
    stored = ENCODING.compute(read(graph), torch.float64)[ENCODING.fields[0]].reshape(len(graph), -1, 3)
    values, flags = stored[0, :, 1], stored[0, :, 2]
    assert torch.equal(stored[..., 2], flags.expand(len(graph), -1))
    return [
        (stored[:, values == value, 0].numpy(), bool(flags[values == value].all()))
        for value in values[values > 0].unique()
    ]


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_generic_spaces_have_a_canonical_basis(d):
    """No two axes project to the same length: the assumptions of the paper hold."""
    generator = torch.Generator().manual_seed(d)
    basis, _ = torch.linalg.qr(torch.randn(20, 9, d, generator=generator, dtype=torch.float64))
    turn, _ = torch.linalg.qr(torch.randn(20, d, d, generator=generator, dtype=torch.float64))
    renamed = torch.randperm(9, generator=generator)
    expected, found = canonical_basis(basis)
    came, found_again = canonical_basis((basis @ turn)[:, renamed])
    assert bool(found.all())
    assert bool(found_again.all())
    assert torch.allclose(came, expected[:, renamed], atol=1e-10)
    assert torch.allclose(expected @ expected.mT, basis @ basis.mT, atol=1e-12)


def test_a_sign_is_canonical_exactly_when_no_renaming_reverses_the_vector():
    signs = failed = 0
    for graph in ATLAS:
        for vectors, canonical in spaces(graph):
            if vectors.shape[1] == 1:
                entries = np.sort(vectors[:, 0])
                symmetric = np.abs(entries + entries[::-1]).max() < 1e-8
                assert canonical == (not symmetric)
                signs, failed = signs + 1, failed + symmetric
    assert 0 < failed < signs / 2


def test_a_space_that_an_automorphism_turns_is_never_called_canonical():
    """Such a space has no canonical basis by any method."""
    bases = 0
    for graph in ATLAS:
        adjacency = nx.to_numpy_array(graph)
        kept = [list(p) for p in permutations(range(len(graph))) if (adjacency[np.ix_(p, p)] == adjacency).all()]
        for vectors, canonical in spaces(graph):
            turned = any(np.abs(vectors[p] - vectors).max() > 1e-6 for p in kept)
            assert not (turned and canonical)
            bases += canonical and vectors.shape[1] > 1
    assert bases == len(PLANES)


def test_canonical_vectors_follow_the_nodes():
    for seed, graph in enumerate([*ATLAS[::5], *PLANES]):
        original, renamed, permutation = rename(graph, seed)
        first, second = (
            ENCODING.compute(read(each), torch.float64)[ENCODING.fields[0]].reshape(len(graph), -1, 3)
            for each in (original, renamed)
        )
        second = second[permutation]
        assert torch.equal(first[..., 2], second[..., 2])
        canonical = first[..., 2] > 0
        assert (first[..., 0] - second[..., 0])[canonical].abs().max().item() <= 1e-10 if canonical.any() else True


def test_uncanonisable_cases_are_counted():
    """P5: two of four simple vectors are odd under the reflection. Star K_{1,5}: a space of dimension 4, and a sign."""
    encoding = MAP("all", laplacian="comb")
    cases = [
        (nx.path_graph(5), (4, 2, 0, 0)),
        (nx.star_graph(5), (1, 0, 1, 1)),
        (nx.empty_graph(4), (0, 0, 0, 0)),
        (GRAPHS["canonical planes"], (2, 0, 2, 0)),
    ]
    for graph, expected in cases:
        batch = read(graph)
        census = encoding.census(encoding.compute(batch), batch)
        assert (census.signs, census.uncanonical_signs, census.bases, census.uncanonical_bases) == expected
    batch = read([graph for graph, _ in cases])
    expected = "2 of 7 signs and 1 of 3 bases cannot be made canonical"
    assert str(encoding.census(encoding.compute(batch), batch)) == expected


def test_uncanonisable_vectors_are_masked_or_flipped_in_training():
    batch = read(nx.path_graph(2))  # its one vector is (1, -1) / sqrt 2
    dropping, flipping = MAP(4, 5).encoder(), MAP(4, 5, uncanonical="flip").encoder()
    flipping.load_state_dict(dropping.state_dict())
    raw = MAP(4).compute(batch)
    assert torch.allclose(*dropping(raw, batch), atol=1e-5)
    assert not torch.allclose(*flipping(raw, batch), atol=1e-3)
    assert len({tuple(flipping(raw, batch)[0].tolist()) for _ in range(20)}) == 2
    assert len({tuple(flipping.eval()(raw, batch)[0].tolist()) for _ in range(5)}) == 1
