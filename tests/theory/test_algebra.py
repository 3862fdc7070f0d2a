"""The algebraic half of the theory room: every check passes, every deliberate fault turns it red, and the tools are right."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from tuplet.theory import growth, ign, ign_rounds, index, kernelised, match, spectrum
from tuplet.wl import compare


def test_rounds_are_those_of_the_library():
    """The literal k-WL of the k-IGN checks gives the partition of ``tuplet.wl``."""
    for k, n in ((2, 5), (3, 4)):
        adjacency = ign_rounds._graphs(n, 6, seed=k)
        graphs = [Data(edge_index=torch.from_numpy(np.stack(np.nonzero(a))), num_nodes=n) for a in adjacency]
        colours = ign_rounds.isomorphism_types(adjacency, k)
        for rounds in range(3):
            expected = np.concatenate([c.reshape(-1) for c in compare(f"{k}-WL", graphs, rounds=rounds).colors])
            both = index.same_pairs(colours.reshape(-1), expected)
            assert both == index.same_pairs(colours.reshape(-1)) == index.same_pairs(expected)
            colours = ign_rounds.wl_round(colours, k)


def test_same_pairs_counts_pairs():
    assert index.same_pairs(np.array([0, 0, 1, 1, 1])) == 4
    assert index.same_pairs(np.array([0, 0, 1, 1, 1]), np.array([0, 1, 0, 0, 1])) == 1


def test_bell_numbers_and_orbits():
    assert [ign.bell(places) for places in range(8)] == [1, 1, 2, 5, 15, 52, 203, 877]
    # on pairs of three nodes: equal or not
    assert ign.orbits(2, 3) == 2


def test_basis_by_definition():
    """B^μ is 1 exactly where the entries of (i, j) are equal as μ says."""
    tensors = ign.basis(1, 2, 3)
    for number, pattern in enumerate(ign.equality_patterns(3)):
        for entries in product(range(3), repeat=3):
            is_it = all(
                (entries[a] == entries[b]) == (pattern[a] == pattern[b]) for a, b in product(range(3), repeat=2)
            )
            assert tensors[number, entries[0] * 3 + entries[1], entries[2]] == float(is_it)


def test_contraction_has_gradients():
    layer = ign.EquivariantLinear.random(2, 2, 2, 3, torch.Generator().manual_seed(0))
    x = torch.randn(9, 2, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(
        *(torch.autograd.grad(way(x, 3).square().sum(), x)[0] for way in (layer.by_basis, layer.by_contraction))
    )


@pytest.mark.parametrize("expand", [match.expand_all, match.expand_few])
@pytest.mark.parametrize("m", [2, 3, 4, 5])
def test_cosine_of_a_sum_as_products(expand, m):
    angles = torch.rand(20, m, dtype=torch.float64) * 7
    total = sum(
        factor * torch.cos(angles + torch.tensor(phases, dtype=torch.float64)).prod(1) for factor, phases in expand(m)
    )
    torch.testing.assert_close(total, angles.sum(1).cos(), rtol=0, atol=1e-13)
    assert len(expand(m)) == (2 ** (m - 1) if expand is match.expand_all else m)


def test_brute_force_of_match():
    x = torch.tensor([[1], [4], [2], [5]])  # 1 + 4 = 0 mod 5, and 5 matches itself
    assert match.brute_force(x, 2, 5).tolist() == [True, True, False, True]
    # an edge of their own between 1 and 4 is missing
    assert match.brute_force(x, 2, 5, torch.eye(4, dtype=torch.bool)).tolist() == [False, False, False, True]


def test_arithmetic_counts_what_is_executed():
    a, b = torch.rand(3, 5), torch.rand(5, 7)
    with growth.Arithmetic() as work:
        a @ b
    assert work.count == 2 * 3 * 5 * 7
    with growth.Arithmetic() as work:
        (a + 1).exp().sum(1)  # three passes over 15 numbers
        a.t().reshape(5, 3)[:2]  # views
        a.index_select(0, torch.tensor([0, 0]))  # ten numbers taken
        torch.zeros(9, 5).index_add_(0, torch.tensor([1, 1, 2]), a)  # fifteen put in
        torch.arange(100) * 2  # integers
    assert work.count == 3 * 15 + 10 + 15


def test_excess_of_spectra():
    small, large = np.diag([1.0, 3.0]), np.diag([0.5, 2.0, 4.0])
    assert spectrum.excess(small, large) == pytest.approx(-0.5)
    assert spectrum.excess(small, large, left=False) == pytest.approx(1.0)
    assert spectrum.excess(small, large, fill=1.0) == pytest.approx(0.5)


def test_chains_grow_by_locally_maximal_simplices():
    for before, new in spectrum.chain(np.random.default_rng(0)):
        assert new not in before
        assert not any(set(new) < set(other) for other in before)
        assert all(tuple(node for node in new if node != gone) in before for gone in new if len(new) > 1)


def test_favor_features_of_the_check_are_those_of_the_library_up_to_epsilon():
    assert kernelised._favor_gap() < 1e-3


def test_features_of_one_index_have_no_width():
    tuples = index._all_tuples(1, 4)
    features = index.index_features(tuples, index.circle(4, 4), [0])
    assert features.shape == (4, 1, 0)
    torch.testing.assert_close(index._weights(features, 1.0, tuples), torch.full((1, 4, 4), 0.25, dtype=torch.float64))


def test_sharpness_is_what_the_proof_needs():
    """All other tuples together weigh less than e^-8 of the winner."""
    for n, m, modulus in ((8, 3, 50), (5, 4, 700)):
        gap = match.sharpness(n, m, modulus) * (1 - math.cos(2 * math.pi / modulus)) / 2
        assert n ** (m - 1) * math.exp(-gap) < math.exp(-8)
