"""Complexes that come with the data: a transform that computes them once, and what a batch brings along."""

from __future__ import annotations

from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from tuplet.errors import InputError
from tuplet.graphs import GraphBatch
from tuplet.topology.cliques import LIMIT, checked_dimension, clique_complex
from tuplet.topology.complex import FIELD, Complex


class CliqueComplex(BaseTransform):
    """Write the clique complex of a graph into ``simplex_index_1`` .. ``simplex_index_K``, once, as a ``pre_transform``.

    PyG's own collation shifts and joins these fields, so complexes of different sizes batch together. A model that finds
    them in a batch does not enumerate cliques again; AS_{k1:k2} reads dimensions up to k2 + 1.

    Args:
        dim: K.
        limit: most simplices of one graph.
    """

    def __init__(self, dim: int, limit: int = LIMIT) -> None:
        self.dim = checked_dimension(dim)
        self.limit = limit

    def forward(self, data: Data) -> Data:
        if not isinstance(data, Data) or isinstance(data, Batch):
            raise InputError("data", "one graph as torch_geometric Data", type(data).__name__)
        plain = Data(edge_index=data.edge_index, num_nodes=data.num_nodes)  # features have no say in a complex
        return clique_complex(plain, self.dim, self.limit).attach(data)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dim})"


def complex_of(graph: GraphBatch, dim: int, limit: int = LIMIT) -> Complex:
    """The complex that came with the batch, up to dimension ``dim``; the clique complex if none came.

    A complex that came must hold every edge of the graph, so that nothing of the graph is lost.
    """
    if graph.simplices is None:
        return clique_complex(graph, dim, limit)
    if len(graph.simplices) < dim:
        raise InputError(
            FIELD.format(len(graph.simplices) + 1),
            f"simplices up to dimension {dim}",
            f"a complex up to dimension {len(graph.simplices)}",
            f"Prepare it with CliqueComplex({dim}); an explicit complex without larger simplices says so with "
            f"complex.attach(data, dim={dim}).",
        )
    given = Complex.assemble(graph.simplices[:dim], graph.ptr, closed=graph.checked)
    if dim and graph.num_edges and not graph.checked:
        missing = given.find(graph.edge_ends) < 0
        if bool(missing.any()):
            edge = int(missing.nonzero()[0])
            u, v = int(graph.row[edge]), int(graph.col[edge])
            owner = int(graph.graph_of_node[u])
            first = int(graph.ptr[owner])
            raise InputError(
                FIELD.format(1),
                "every edge of the graph among the 1-simplices",
                f"the edge ({u - first}, {v - first}) of graph {owner} in edge_index only",
            )
    return given
