"""Simplicial complexes, boundary operators, Hodge Laplacians."""

from tuplet.topology.cliques import clique_complex
from tuplet.topology.complex import Complex
from tuplet.topology.hodge import (
    betti_numbers,
    block_laplacian,
    boundary,
    dirac,
    hodge_laplacian,
    inter_order_laplacian,
)
from tuplet.topology.prepared import CliqueComplex, complex_of

__all__ = [
    "CliqueComplex",
    "Complex",
    "betti_numbers",
    "block_laplacian",
    "boundary",
    "clique_complex",
    "complex_of",
    "dirac",
    "hodge_laplacian",
    "inter_order_laplacian",
]
