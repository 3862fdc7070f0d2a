"""Every kind of model there is, as rows: what ``tuplet list models`` prints and the README repeats.

Costs and expressive powers are Table 1 of the paper, for one layer; what that table lacks comes from the place that the row names.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One row.

    Args:
        name: one name of this kind, at the order at which one would try it first.
        tokens: what attends.
        pattern: who sees whom.
        kernel: how weights are made.
        cost: operations of one layer; n nodes, k order, d width, D mean degree, N tuples drawn, S simplices, D_S their
            mean number of neighbours.
        power: which graphs it tells apart; "-" where the paper proves nothing.
        paper: where the paper has it.
    """

    name: str
    tokens: str
    pattern: str
    kernel: str
    cost: str
    power: str
    paper: str


ALL, CROSS, SIMPLICES = "all k-tuples", "k1- and k2-tuples", "simplices"
DENSE, NEIGHBOUR, LOCAL, VIRTUAL = "dense", "neighbour", "local neighbour", "virtual tuples"

CATALOGUE = (
    Kind("A2", ALL, DENSE, "softmax", "n^2k d", "< k-WL", "Theorem 3.2"),
    Kind("A2+index", ALL, DENSE, "softmax", "n^2k d", ">= k-WL (with -ReLU)", "Theorem 3.3"),
    Kind("A2+basis", ALL, "dense, by equality", "softmax", "n^2k d", "= k-WL", "Appendix B.2.2"),
    Kind("A2-Performer", ALL, DENSE, "FAVOR+", "n^k d^2", "< k-WL", "Theorem 4.1"),
    Kind("A2-Linear", ALL, DENSE, "elu + 1", "n^k d^2", "< k-WL", "Theorem 4.1"),
    Kind("A2-ReLU", ALL, DENSE, "ReLU", "n^2k d", "< k-WL", "Theorems 3.2, 3.3"),
    Kind("A2^Ngbh", ALL, NEIGHBOUR, "softmax", "n^(k+1) k d", "= k-WL", "Theorem 4.2"),
    Kind("A2^Ngbh+", ALL, f"{NEIGHBOUR}, adjacency", "softmax", "n^(k+1) k d", "= delta-k-WL", "Appendix B.2.2"),
    Kind("A2^LN", ALL, LOCAL, "softmax", "n^k k D d", ">= delta-k-LWL", "Theorem 4.3"),
    Kind("A2^VT", ALL, VIRTUAL, "softmax", "n^k d", "~ A2-Performer, A2-Linear", "Proposition 4.4"),
    Kind("A2^LN+VT", ALL, f"{LOCAL} + virtual", "softmax", "n^k k D d", ">= delta-k-LWL", "Table 3"),
    Kind("A2^Ngbh+VT", ALL, f"{NEIGHBOUR} + virtual", "softmax", "n^(k+1) k d", ">= k-WL", "Section 4.2"),
    Kind("A2^Ngbh++VT", ALL, "neighbour, adj. + virtual", "softmax", "n^(k+1) k d", ">= delta-k-WL", "Section 4.2"),
    Kind("A1,2", CROSS, "dense cross", "softmax", "n^(k1+k2) d", "-", "Definition 3.1"),
    Kind("A1,2^Ngbh", CROSS, "cross neighbour", "softmax", "n^max(k1,k2) d", "-", "Appendix E.1"),
    Kind("A3(connected)", "connected k-tuples", DENSE, "softmax", "n^2 D^(2k-2) d", "-", "Appendix E.1"),
    Kind("A3(connected)^LN", "connected k-tuples", LOCAL, "softmax", "n D^k k d", "-", "Section 4.3"),
    Kind("A3(random:4096)", "N random k-tuples", DENSE, "softmax", "N^2 d", "-", "Section 4.3"),
    Kind("AS1", "k-simplices", DENSE, "softmax", "S^2 d", "-", "Appendix C.2"),
    Kind("AS0:1", SIMPLICES, DENSE, "softmax", "S^2 d", "-", "Appendix C.2"),
    Kind("AS0:1+bias", SIMPLICES, "dense, by Laplacian", "softmax", "S^2 d", ">= MPSN", "Appendix C.2"),
    Kind("AS0:1+reweight", SIMPLICES, "dense, by Laplacian", "softmax", "S^2 d", ">= MPSN", "Appendix C.2"),
    Kind("AS0:1+scale", SIMPLICES, "dense, by Laplacian", "softmax", "S^2 d", "-", "Appendix E.1"),
    Kind("AS0:1-Performer", SIMPLICES, DENSE, "FAVOR+", "S d^2", "-", "Appendix C.4"),
    Kind("AS0:1-Linear", SIMPLICES, DENSE, "elu + 1", "S d^2", "-", "Appendix C.4"),
    Kind("AS0:1-ReLU^SN", SIMPLICES, "simplex neighbour", "ReLU", "S D_S d", "= MPSN", "Appendix C.4"),
    Kind("AS0:3^SN", SIMPLICES, "simplex neighbour", "softmax", "S D_S d", "= MPSN", "Appendix C.4"),
    Kind("AS0:1^SN", SIMPLICES, "simplex neighbour", "softmax", "S D_S d", "= MPSN", "Appendix C.4"),
    Kind("AS0:1^VS", SIMPLICES, "virtual simplices", "softmax", "S d", "~ AS0:1-Performer", "Appendix C.4"),
    Kind("AS0:1^SN+VS", SIMPLICES, "simplex neighbour + virtual", "softmax", "S D_S d", "-", "Table 3"),
)
