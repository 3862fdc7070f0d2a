"""Which graphs are learned from together: shuffled batches by number of graphs or of tokens, and shares of processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from tuplet.datasets.packed import Checked, PackedGraphs, WithFields, batch_of
from tuplet.errors import InputError
from tuplet.graphs.door import is_read
from tuplet.models import Transformer
from tuplet.models.baselines.config import ON_PAIRS
from tuplet.training.options import TrainOptions

PORTION = 128
"""Graphs that are checked at once."""
HELD_TOKENS = 1_000_000
"""Batches of at most so many tokens in all stay prepared from one evaluation to the next."""

Members = list[int]
"""Places of the graphs of one batch in the list of all graphs."""


def token_counts(model: nn.Module, graphs: Sequence[Data]) -> list[int]:
    """How many tokens each graph is for ``model``: tuples, simplices, or nodes where a model has no tokens of its own.

    A formula for tuples; for simplices, and for connected tuples, what a transform has stored with the graph, or else counted.
    """
    config = getattr(model, "config", None)
    choices = getattr(config, "choices", None)
    if choices is None:
        order = 2 if getattr(config, "name", None) in ON_PAIRS else 1
        return [int(graph.num_nodes or 0) ** order for graph in graphs]
    return [_tokens(model, choices, graph) for graph in graphs]


def _tokens(model: Any, choices: Any, graph: Data) -> int:
    n = int(graph.num_nodes or 0)
    if choices.dims is None and choices.sample != "connected":
        counts = [n**order for order in choices.orders]
        return sum(min(count, choices.budget) if choices.sample else count for count in counts)
    if choices.dims is None and "tuples" in graph:
        return len(graph.tuples)
    fields = [f"simplex_index_{k}" for k in range(1, choices.dims[1] + 1)] if choices.dims is not None else []
    if choices.dims is not None and all(field in graph for field in fields):
        return n * (choices.dims[0] == 0) + sum(graph[f].shape[1] for f in fields[max(0, choices.dims[0] - 1) :])
    return int(model.cost(graph).tokens)


def cut(members: Sequence[int], options: TrainOptions, tokens: Sequence[int] | None) -> list[Members]:
    """``members`` in batches, in order: ``batch_size`` graphs each, or as many as ``batch_tokens`` allows."""
    if options.batch_tokens is None or tokens is None:
        size = options.batch_size
        return [list(members[start : start + size]) for start in range(0, len(members), size)]
    batches: list[Members] = []
    held = 0
    for member in members:
        if not batches or held + tokens[member] > options.batch_tokens:
            batches.append([])
            held = 0
        batches[-1].append(member)
        held += tokens[member]
    return batches


def shuffled(
    members: Tensor, options: TrainOptions, tokens: Sequence[int] | None, seed: int, epoch: int
) -> list[list[Members]]:
    """The steps of an epoch, each a list of batches. They depend on seed and epoch only, so any epoch can be begun anew."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % (1 << 63))
    order = members[torch.randperm(len(members), generator=generator)].tolist()
    batches = cut(order, options, tokens)
    return [batches[start : start + options.accumulate] for start in range(0, len(batches), options.accumulate)]


def share(members: Members, rank: int, world: int) -> tuple[Members, bool]:
    """What process ``rank`` of ``world`` takes of a batch, and whether it counts.

    A process without a graph of its own runs the first one too, uncounted: all processes must do the same steps.
    """
    own = members[rank::world]
    return (own, True) if own else (members[:1], False)


def packed_for(model: nn.Module, graphs: Sequence[Data]) -> Sequence[Data]:
    """Graphs of which batches are made in a few steps a field: what a model of ours reads of them, packed, where they are alike."""
    if not isinstance(model, Transformer) or isinstance(graphs, PackedGraphs | WithFields):
        return graphs
    names = {tuple(sorted(name for name in graph.keys() if is_read(name))) for graph in graphs}  # noqa: SIM118
    try:
        return PackedGraphs.from_graphs(graphs, names.pop()) if len(names) == 1 else graphs
    except InputError:
        return graphs


def checked_for(model: nn.Module, graphs: Sequence[Data], members: Sequence[int]) -> Sequence[Data]:
    """The same graphs, ``members`` checked now and not again in every batch, where a model of ours is given packed ones."""
    if not isinstance(model, Transformer) or not isinstance(batch_of(graphs, [0]), Data) or isinstance(graphs, Checked):
        return graphs
    for first in range(0, len(members), PORTION):
        model.check(batch_of(graphs, members[first : first + PORTION]))
    return Checked(graphs)


def prepare(model: nn.Module, graphs: Sequence[Data], members: Sequence[int]) -> Any:
    """What ``model`` runs of some of the graphs: a PyG batch, or where a model has such a step what its ``prepare`` makes of
    them, which come as one ``Data`` that ``tuplet.graphs.read`` takes, or as a list."""
    if not hasattr(model, "prepare"):
        return Batch.from_data_list([graphs[member] for member in members])
    return model.prepare(batch_of(graphs, members))  # type: ignore[operator]


class Held:
    """Batches in a fixed order, prepared once where they are small, and again each time where they are not."""

    def __init__(self, model: nn.Module, graphs: Sequence[Data], batches: Sequence[Members], tokens: int) -> None:
        self.model, self.graphs, self.batches = model, graphs, batches
        self.kept: list[Any] | None = [] if tokens <= HELD_TOKENS else None

    def __iter__(self) -> Iterator[tuple[Members, Any]]:
        """Each batch's members, and what the model runs of it."""
        for number, members in enumerate(self.batches):
            if self.kept is not None and number < len(self.kept):
                yield members, self.kept[number]
                continue
            ready = prepare(self.model, self.graphs, members)
            if self.kept is not None:
                self.kept.append(ready)
            yield members, ready
