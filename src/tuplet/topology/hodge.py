"""Boundary matrices, Hodge Laplacians and the Dirac operator (appendix "Background of Algebraic Topology Theories").

All are integer scipy matrices over the simplices of a complex (of a whole batch: then block diagonal by graph, up to the
order of rows). Orientation is that of increasing node numbers, so signs change when nodes are renamed.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from tuplet.errors import OptionError
from tuplet.topology.complex import Complex


def boundary(complex_: Complex, k: int) -> sparse.csr_array:
    """B_k (S_{k-1}, S_k), the matrix of the boundary operator: (-1)^j where the row is the column's face without its j-th node.

    B_0 has no rows, and B_k no columns beyond the complex's dimension.
    """
    counts = complex_.counts
    if k < 0:
        raise OptionError(f"k: expected a dimension of at least 0; came {k}")
    rows = counts[k - 1] if 0 < k <= complex_.dim + 1 else 0
    if not 0 < k <= complex_.dim:
        return sparse.csr_array((rows, counts[k] if k <= complex_.dim else 0), dtype=np.int64)
    faces = complex_.faces[k].cpu().numpy()
    signs = np.broadcast_to((-1) ** np.arange(k + 1), faces.shape)
    columns = np.broadcast_to(np.arange(counts[k])[:, None], faces.shape)
    entries = (signs.reshape(-1), (faces.reshape(-1), columns.reshape(-1)))
    return sparse.csr_array(entries, shape=(rows, counts[k]), dtype=np.int64)


def hodge_laplacian(complex_: Complex, k: int) -> sparse.csr_array:
    """L_k = B_kᵀ B_k + B_{k+1} B_{k+1}ᵀ; L_0 = D - A. What lies above the complex's dimension counts as empty."""
    down, up = boundary(complex_, k), boundary(complex_, k + 1)
    return sparse.csr_array(down.T @ down + up @ up.T)


def block_laplacian(complex_: Complex, dim: int | None = None) -> sparse.csr_array:
    """L, with the blocks L_0, .., L_K on its diagonal (K = ``dim``, by default the complex's)."""
    top = _top(complex_, dim)
    return sparse.csr_array(sparse.block_diag([hodge_laplacian(complex_, k) for k in range(top + 1)], format="csr"))


def dirac(complex_: Complex, dim: int | None = None) -> sparse.csr_array:
    """D = δ + δ*: B_k above and B_kᵀ below the diagonal. D² = L when nothing lies above ``dim``."""
    return _blocks(complex_, dim, diagonal=False)


def inter_order_laplacian(complex_: Complex, dim: int | None = None) -> sparse.csr_array:
    """The augmented Laplacian 𝓛_{0:K}: L_k on the diagonal, B_{k+1} and B_{k+1}ᵀ beside it.

    With ``dim`` below the complex's dimension the last block L_K still sees the simplices of dimension K + 1.
    """
    return _blocks(complex_, dim, diagonal=True)


def _top(complex_: Complex, dim: int | None) -> int:
    top = complex_.dim if dim is None else dim
    complex_.expect_dimension(top)
    return top


def _blocks(complex_: Complex, dim: int | None, diagonal: bool) -> sparse.csr_array:
    top = _top(complex_, dim)
    grid: list[list[sparse.csr_array | None]] = [[None] * (top + 1) for _ in range(top + 1)]
    for k in range(top + 1):
        count = complex_.counts[k]
        grid[k][k] = hodge_laplacian(complex_, k) if diagonal else sparse.csr_array((count, count), dtype=np.int64)
        if k:
            grid[k - 1][k] = boundary(complex_, k)
            grid[k][k - 1] = sparse.csr_array(boundary(complex_, k).T)
    return sparse.csr_array(sparse.block_array(grid, format="csr"))


def betti_numbers(complex_: Complex) -> tuple[int, ...]:
    """β_0, .., β_K over the real numbers: dimension of ker B_k less the rank of B_{k+1}.

    The last one counts as if nothing lay above the complex's dimension. Ranks are those of dense matrices: for complexes
    of some thousands of simplices.
    """
    matrices = [boundary(complex_, k).toarray().astype(float) for k in range(complex_.dim + 2)]
    ranks = [int(np.linalg.matrix_rank(matrix)) if matrix.size else 0 for matrix in matrices]
    return tuple(complex_.counts[k] - ranks[k] - ranks[k + 1] for k in range(complex_.dim + 1))
