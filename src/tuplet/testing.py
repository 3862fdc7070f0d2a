"""Checks that every model must pass, for use in one's own tests: symmetry, batching, agreement with the definition.

>>> import tuplet, tuplet.testing
>>> model = tuplet.build("A2^LN", dim=8, depth=2, heads=2).double().eval()
>>> tuplet.testing.assert_permutation_equivariant(model, "DDW")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from tuplet._extras import require
from tuplet.graphs import GraphBatch
from tuplet.graphs.door import as_data
from tuplet.models import Transformer

TOLERANCE = 1e-10
"""Relative error that rounding in float64 may cause."""


def relative_error(value: Tensor, expected: Tensor) -> float:
    """Largest difference over the largest expected magnitude (over 1e-3 where that is smaller)."""
    if value.shape != expected.shape:
        raise AssertionError(f"shape {tuple(value.shape)} instead of {tuple(expected.shape)}")
    if expected.numel() == 0:
        return 0.0
    error = float((value - expected).abs().max() / expected.abs().max().clamp_min(1e-3))
    return float("inf") if error != error else error


def permute(graph: Data, permutation: Tensor) -> Data:
    """The same graph with node i renamed to ``permutation[i]``: features, edges, queried pairs, tuples and simplices go along.

    Raw statistics of encodings do not: they are left out, to be computed anew.
    """
    copy = graph.clone()
    copy.num_nodes = graph.num_nodes
    for field in graph.keys():  # noqa: SIM118
        if field.startswith("pe_"):
            del copy[field]  # statistics of the renamed graph are computed anew
        if field in ("edge_index", "edge_label_index", "tuples") or field.startswith("simplex_index_"):
            copy[field] = permutation[graph[field]]
    if graph.x is not None:
        copy.x = torch.empty_like(graph.x)
        copy.x[permutation] = graph.x
    return copy


def with_sample(model: Transformer, graph: Data) -> Data:
    """The graph with the sampled tuples that the model would draw for it, so that copies share one sample."""
    choices = getattr(model.config, "choices", None)
    if choices is None or choices.sample is None or graph.get("tuples") is not None:
        return graph
    sample: GraphBatch = model.read(graph)
    copy = graph.clone()
    copy.tuples = sample.tuples
    return copy


def assert_permutation_equivariant(model: Transformer, graph: Any, tolerance: float = TOLERANCE, seed: int = 0) -> None:
    """Renaming the nodes leaves graph and queried-pair outputs alone and renames node outputs."""
    data = with_sample(model, as_data(graph))
    permutation = torch.randperm(int(data.num_nodes or 0), generator=torch.Generator().manual_seed(seed))
    permutation = permutation.to(data.edge_index.device)
    with torch.no_grad():
        expected, renamed = model(data), model(permute(data, permutation))
    if model.config.task == "node":
        renamed = renamed[permutation.to(renamed.device)]
    error = relative_error(renamed, expected)
    if not error <= tolerance:
        raise AssertionError(f"{model.config.name}: renaming nodes moves outputs by {error:.1e} > {tolerance:.0e}")


def assert_batch_invariant(model: Transformer, graphs: Sequence[Any], tolerance: float = TOLERANCE) -> None:
    """Each graph gives the same output alone as in the batch, and the same twice (evaluation mode)."""
    data = [with_sample(model, as_data(graph)) for graph in graphs]
    with torch.no_grad():
        together = model(Batch.from_data_list(data))
        alone = torch.cat([model(graph) for graph in data])
    error = relative_error(together, alone)
    if not error <= tolerance:
        raise AssertionError(
            f"{model.config.name}: the batch around a graph moves its output by {error:.1e} > {tolerance:.0e}"
        )


def reference_twin(model: Transformer) -> Transformer:
    """A copy of the model, weights and mode included, on the ``reference`` backend."""
    twin = Transformer(replace(model.config, backend="reference"))
    twin.load_state_dict(model.state_dict())
    return twin.to(next(model.parameters())).train(model.training)


def assert_matches_reference(model: Transformer, graphs: Any, tolerance: float = TOLERANCE) -> None:
    """Outputs and the gradients of all parameters agree with the ``reference`` backend."""
    outputs, gradients = [], []
    for each in (model, reference_twin(model)):
        each.zero_grad()
        output = each(graphs)
        weights = torch.cos(torch.arange(output.numel(), dtype=output.dtype, device=output.device)).reshape(
            output.shape
        )
        (output * weights).sum().backward()
        outputs.append(output.detach())
        gradients.append({name: parameter.grad for name, parameter in each.named_parameters()})
    error = relative_error(*outputs)
    if not error <= tolerance:
        raise AssertionError(f"{model.config.name}: outputs differ from reference by {error:.1e} > {tolerance:.0e}")
    scale = max((float(grad.abs().max()) for grad in gradients[1].values() if grad is not None), default=1.0)
    for name, expected in gradients[1].items():
        grad = gradients[0][name]
        if (grad is None) != (expected is None):
            raise AssertionError(f"{model.config.name}: {name} has a gradient in one backend only")
        if grad is not None and expected is not None:
            # a gradient that is zero but for rounding is measured by the size of the others
            error = float((grad - expected).abs().max()) / max(float(expected.abs().max()), 1e-3 * scale)
            if not error <= tolerance:
                raise AssertionError(
                    f"{model.config.name}: gradient of {name} differs by {error:.1e} > {tolerance:.0e}"
                )


def graphs(max_nodes: int = 6, node_types: int = 0, edge_types: int = 0, queries: int = 0) -> Any:
    """Hypothesis strategy: graphs of 1 to ``max_nodes`` nodes, from no edges to complete, isolated nodes and loops included.

    Args:
        max_nodes: most nodes.
        node_types, edge_types: categorical features with that many values, none for 0.
        queries: number of queried pairs in ``edge_label_index``.
    """
    st = require("hypothesis.strategies", "dev")

    @st.composite
    def draw_graph(draw: Any) -> Data:
        n = draw(st.integers(1, max_nodes))
        pairs = [(u, v) for u in range(n) for v in range(u, n)]
        kind = draw(st.sampled_from(["some", "some", "some", "none", "complete"]))
        chosen = {"none": [], "complete": [pair for pair in pairs if pair[0] != pair[1]]}.get(kind)
        if chosen is None:
            chosen = [pair for pair in pairs if draw(st.booleans()) and (pair[0] != pair[1] or draw(st.booleans()))]
        edges = [edge for u, v in chosen for edge in ([(u, v), (v, u)] if u != v else [(u, v)])]
        data = Data(edge_index=torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t().contiguous(), num_nodes=n)
        if node_types:
            data.x = torch.tensor([draw(st.integers(0, node_types - 1)) for _ in range(n)])
        if edge_types:
            kinds = {pair: draw(st.integers(0, edge_types - 1)) for pair in chosen}
            data.edge_attr = torch.tensor([kinds[min(e), max(e)] for e in edges], dtype=torch.long)
        if queries:
            ends = [[draw(st.integers(0, n - 1)) for _ in range(queries)] for _ in range(2)]
            data.edge_label_index = torch.tensor(ends)
        return data

    return draw_graph()
