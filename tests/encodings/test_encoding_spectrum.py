"""Eigenvectors: against scipy, at the edges, and which eigenspaces are taken."""

import networkx as nx
import numpy as np
import pytest
import scipy.linalg
import torch
from encoding_cases import GRAPHS, SIMPLE
from scipy.sparse.csgraph import laplacian

from tuplet.datasets import csl
from tuplet.encodings import SPE, BasisNet, LapPE
from tuplet.encodings.basisnet import membership
from tuplet.encodings.spectrum import eigenspaces, laplacian_matrix, nontrivial, settle, spaces_by_dimension
from tuplet.graphs import read


def adjacency_of(graph):
    adjacency = nx.to_numpy_array(graph)
    np.fill_diagonal(adjacency, 0)
    return adjacency


def by_scipy(graph, kind):
    return scipy.linalg.eigh(laplacian(adjacency_of(graph), normed=kind == "sym"))


def columns(encoding, graph):
    """Eigenvectors (n, K) and eigenvalues (K,) of one graph, padding cut off."""
    stored = encoding.compute(read(graph), torch.float64)[encoding.fields[0]].reshape(len(graph), -1, 2)
    values = stored[0, :, 1]
    assert torch.equal(stored[..., 1], values.expand(len(graph), -1))
    assert (stored[:, values == 0] == 0).all()
    assert (values[(values > 0).sum() :] == 0).all()
    return stored[:, values > 0, 0].numpy(), values[values > 0].numpy()


@pytest.mark.parametrize("kind", ["sym", "comb"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_all_eigenpairs_of_nonzero_eigenvalue(graph, kind):
    vectors, values = columns(LapPE("all", laplacian=kind), GRAPHS[graph])
    expected, _ = by_scipy(GRAPHS[graph], kind)
    n, components = len(GRAPHS[graph]), nx.number_connected_components(GRAPHS[graph])
    assert len(values) == n - components
    assert np.abs(values - expected[components:]).max(initial=0) <= 1e-10
    matrix = laplacian(adjacency_of(GRAPHS[graph]), normed=kind == "sym")
    assert np.abs(matrix @ vectors - vectors * values).max(initial=0) <= 1e-10
    assert np.abs(vectors.T @ vectors - np.eye(len(values))).max(initial=0) <= 1e-10


@pytest.mark.parametrize("kind", ["sym", "comb"])
@pytest.mark.parametrize("graph", SIMPLE)
def test_simple_eigenvectors_are_those_of_scipy_up_to_sign(graph, kind):
    vectors, values = columns(LapPE(4, laplacian=kind), SIMPLE[graph])
    expected_values, expected = by_scipy(SIMPLE[graph], kind)
    assert np.abs(values - expected_values[1:5]).max() <= 1e-10
    assert np.abs(np.abs(vectors) - np.abs(expected[:, 1:5])).max() <= 1e-10


@pytest.mark.parametrize("whole, count", [("cut", 3), ("drop", 2), ("keep", 4)])
def test_an_eigenspace_is_taken_whole_or_not_at_all_or_cut(whole, count):
    """The cycle C8 has eigenvalues of multiplicity 2, 2, 2, 1."""
    assert len(columns(LapPE(3, whole=whole), nx.cycle_graph(8))[1]) == count
    for options in ("cut", "drop", "keep"):
        assert len(columns(LapPE(4, whole=options), nx.cycle_graph(8))[1]) == 4


def test_a_space_larger_than_k_is_dropped_or_kept_whole():
    star = nx.star_graph(9)
    assert len(columns(SPE(4, whole="drop"), star)[1]) == 0
    assert len(columns(SPE(4, whole="keep"), star)[1]) == 8


def test_equal_eigenvalues_are_stored_as_the_same_number_in_every_precision():
    batch = read(csl()[::15])
    for dtype in (torch.float32, torch.float64):
        values = LapPE("all").compute(batch, dtype)["pe_lap_sym_all"].reshape(10, 41, 41, 2)[:, 0, :, 1]
        multiplicities = membership(values).sum(1)
        assert (multiplicities[multiplicities > 0] >= 2).all()  # a circulant graph of odd order
        assert (multiplicities.sum(1) == 40).all()


def test_eigenvalues_that_are_near_but_not_equal_stay_apart():
    values = torch.tensor([[0.0, 1e-12, 0.5, 0.5 + 1e-12, 0.5 + 1e-6, 2.0]], dtype=torch.float64)
    space, cleaned = eigenspaces(values)
    assert space.tolist() == [[0, 0, 1, 1, 2, 3]]
    assert cleaned[0, 0] == cleaned[0, 1] == 0
    assert cleaned[0, 2] == cleaned[0, 3] != cleaned[0, 4]


@pytest.mark.parametrize("graph", GRAPHS)
def test_signs_and_bases_do_not_depend_on_the_solver(graph):
    values, vectors = nontrivial(
        *torch.linalg.eigh(laplacian_matrix(torch.from_numpy(adjacency_of(GRAPHS[graph]))[None], "sym"))
    )
    turned = vectors.clone()
    generator = torch.Generator().manual_seed(0)
    for block, columns in spaces_by_dimension(values):
        d = columns.shape[1]
        turn, _ = torch.linalg.qr(torch.randn(len(block), d, d, generator=generator, dtype=torch.float64))
        turned[block, :, columns] = (vectors[block, :, columns].transpose(1, 2) @ turn).transpose(1, 2)
    first, second = settle(values, vectors), settle(values, turned)
    assert torch.allclose(first, second, atol=1e-12)
    assert torch.allclose(first @ first.mT, vectors @ vectors.mT, atol=1e-12)
    assert torch.allclose(first.mT @ first, vectors.mT @ vectors, atol=1e-12)


def test_laplacian_encodings_of_a_directed_graph_are_those_of_its_undirected_form():
    directed = nx.DiGraph([(0, 1), (2, 1), (2, 3), (3, 2), (3, 0), (1, 4)])
    expected = LapPE("all").compute(read(directed.to_undirected()), torch.float64)["pe_lap_sym_all"]
    came = LapPE("all").compute(read(directed, directed=True), torch.float64)["pe_lap_sym_all"]
    assert torch.equal(came, expected)


def test_encodings_with_the_same_statistics_have_the_same_field():
    assert SPE(8).fields == BasisNet(8, 5).fields == LapPE(8, whole="drop").fields
    fields = [
        SPE(8).fields,
        SPE(9).fields,
        SPE("all").fields,
        SPE(8, whole="keep").fields,
        SPE(8, laplacian="comb").fields,
    ]
    assert len(set(fields)) == len(fields)
