"""Boundary operators and Laplacians: identities of homology, known spaces, an independent library."""

from itertools import combinations

import gudhi
import networkx as nx
import numpy as np
import pytest

from tuplet.errors import OptionError
from tuplet.topology import (
    Complex,
    betti_numbers,
    block_laplacian,
    boundary,
    clique_complex,
    dirac,
    hodge_laplacian,
    inter_order_laplacian,
)

GRAPHS = [nx.gnp_random_graph(12, density, seed=seed) for seed, density in enumerate((0.0, 0.3, 0.6, 0.9))]
TORUS = [
    tuple(sorted(3 * (x % 3) + y % 3 for x, y in triangle))
    for i in range(3)
    for j in range(3)
    for triangle in (((i, j), (i + 1, j), (i + 1, j + 1)), ((i, j), (i, j + 1), (i + 1, j + 1)))
]
PROJECTIVE_PLANE = [
    (0, 1, 4), (0, 1, 5), (0, 2, 3), (0, 2, 5), (0, 3, 4), (1, 2, 3), (1, 2, 4), (1, 3, 5), (2, 4, 5), (3, 4, 5),
]  # fmt: skip
SPACES = {
    "point": ([(0,)], (1,)),
    "circle": ([(0, 1), (1, 2), (0, 2)], (1, 1)),
    "sphere": (list(combinations(range(4), 3)), (1, 0, 1)),
    "3-sphere": (list(combinations(range(5), 4)), (1, 0, 0, 1)),
    "torus": (TORUS, (1, 2, 1)),
    "projective plane": (PROJECTIVE_PLANE, (1, 0, 0)),
    "two circles": ([(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)], (2, 2)),
    "ball": ([tuple(range(4))], (1, 0, 0, 0)),
}


@pytest.mark.parametrize("space", SPACES)
def test_betti_numbers_of_known_spaces(space):
    simplices, expected = SPACES[space]
    known = Complex.from_simplices(simplices, close=True)
    assert betti_numbers(known) == expected
    assert sum((-1) ** k * count for k, count in enumerate(known.counts)) == sum(
        (-1) ** k * betti for k, betti in enumerate(expected)
    )


@pytest.mark.parametrize("graph", GRAPHS)
def test_betti_numbers_are_those_of_gudhi(graph):
    """Over a field with 11 elements, since gudhi has no real numbers; up to one dimension below the top."""
    known = clique_complex(graph, 4)
    tree = gudhi.SimplexTree()
    for simplices in known.simplices:
        for simplex in simplices.tolist():
            tree.insert(simplex)
    tree.compute_persistence(homology_coeff_field=11, persistence_dim_max=True)
    theirs = tree.betti_numbers() + [0] * 5
    assert betti_numbers(known)[:4] == tuple(theirs[:4])


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_boundary_has_no_boundary(graph):
    known = clique_complex(graph, 5)
    for k in range(6):
        product = boundary(known, k) @ boundary(known, k + 1)
        assert product.shape == ((known.counts[k - 1] if k else 0), known.counts[k + 1] if k < 5 else 0)
        assert abs(product).sum() == 0


@pytest.mark.parametrize("graph", GRAPHS)
def test_boundaries_are_those_of_the_definition(graph):
    known = clique_complex(graph, 3)
    for k in (1, 2, 3):
        lower = {tuple(row): number for number, row in enumerate(known.simplices[k - 1].tolist())}
        expected = np.zeros((known.counts[k - 1], known.counts[k]), dtype=int)
        for column, simplex in enumerate(known.simplices[k].tolist()):
            for place in range(k + 1):
                expected[lower[tuple(simplex[:place] + simplex[place + 1 :])], column] = (-1) ** place
        assert (boundary(known, k).toarray() == expected).all()


@pytest.mark.parametrize("graph", GRAPHS)
def test_l0_is_the_graph_laplacian(graph):
    laplacian = nx.laplacian_matrix(graph, nodelist=range(len(graph))).toarray()
    assert (hodge_laplacian(clique_complex(graph, 1), 0).toarray() == laplacian).all()


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_block_laplacian_is_dirac_squared(graph):
    """For the whole complex; a truncated one lacks what L_K sees above."""
    whole = clique_complex(graph, len(graph) - 1)
    assert whole.counts[-1] == 0
    square = dirac(whole) @ dirac(whole)
    assert abs(square - block_laplacian(whole)).sum() == 0


def test_truncation_shows_in_the_last_block():
    known = clique_complex(nx.complete_graph(4), 2)
    square = dirac(known, 1) @ dirac(known, 1)
    assert abs(square - block_laplacian(known, 1)).sum() > 0
    assert abs(square - block_laplacian(known.truncate(1))).sum() == 0


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("dim", [0, 1, 2, 3])
def test_the_inter_order_laplacian_is_block_by_block_what_the_paper_says(graph, dim):
    known = clique_complex(graph, dim + 1)
    ends = np.cumsum([0, *known.counts[: dim + 1]])
    matrix = inter_order_laplacian(known, dim).toarray()
    assert matrix.shape == (ends[-1], ends[-1])
    for i in range(dim + 1):
        for j in range(dim + 1):
            block = matrix[ends[i] : ends[i + 1], ends[j] : ends[j + 1]]
            if i == j:
                expected = hodge_laplacian(known, i).toarray()
            elif j == i + 1:
                expected = boundary(known, j).toarray()
            elif i == j + 1:
                expected = boundary(known, i).toarray().T
            else:
                expected = np.zeros_like(block)
            assert (block == expected).all()


def test_upper_and_lower_adjacency_cancel_in_the_signed_laplacian():
    """Edges of one triangle are upper and lower adjacent, and L_1 is zero there: why the default relations carry no sign."""
    matrix = hodge_laplacian(clique_complex(nx.complete_graph(3), 2), 1).toarray()
    assert (matrix == 3 * np.eye(3)).all()


def test_dimensions_outside_the_complex():
    known = clique_complex(nx.path_graph(3), 1)
    assert boundary(known, 0).shape == (0, 3)
    assert boundary(known, 2).shape == (2, 0)
    assert boundary(known, 3).shape == (0, 0)
    with pytest.raises(OptionError, match="dimension of at least 0"):
        boundary(known, -1)
