"""Encodings inside a model: from raw statistics to what nodes, pairs and simplices are given at the start.

One rule carries them to tokens of any kind. A node's encodings join its features, so a tuple has those of all its entries,
in order. Encodings of ordered pairs join a tuple once for each ordered pair of its places, a place with itself included (so
order 1 has them too). Encodings of simplices join their simplices; tuples have those of nodes and edges through their
entries and the edges among them. To join is to be concatenated before a linear map, which is a sum of linear maps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuplet.encodings import Encoding
from tuplet.errors import OptionError
from tuplet.graphs import GraphBatch
from tuplet.kernels import RowLinear


@dataclass(frozen=True)
class Encoded:
    """Encodings of one batch.

    Args:
        nodes: (N, d), or None without encodings of nodes.
        pairs: (sum of n², width) of all ordered pairs of nodes, or None.
        simplices: for each dimension that has some (S_k, d).
    """

    nodes: Tensor | None
    pairs: Tensor | None
    simplices: dict[int, Tensor]


def pair_width(encodings: tuple[Encoding, ...]) -> int:
    """Width of all encodings of pairs together."""
    return sum(encoding.width for encoding in encodings if encoding.level == "pair")


def simplex_dims(encoding: Encoding) -> tuple[int, ...]:
    """Dimensions whose simplices an encoding describes."""
    top = getattr(encoding, "dim", None)
    return (1,) if top is None else tuple(range(top + 1))


def refuse_lost(encodings: tuple[Encoding, ...], highest: int) -> None:
    """Refuse encodings of simplices that no token of the model could carry; ``highest`` is the largest dimension it can."""
    for encoding in encodings:
        if encoding.level == "simplex" and max(simplex_dims(encoding)) > highest:
            carried = "nodes only" if highest == 0 else f"dimensions up to {highest}"
            raise OptionError(
                f"encodings: {encoding} describes simplices of dimension {max(simplex_dims(encoding))}; the model's tokens "
                f"carry {carried}"
            )


class EncodingTable(nn.Module):
    """The encoders of a model's encodings, and linear maps of what they say to the model's width.

    Args:
        encodings: what is encoded.
        dim: d.
    """

    def __init__(self, encodings: tuple[Encoding, ...], dim: int) -> None:
        super().__init__()
        self.encodings = encodings
        self.encoders = nn.ModuleList(encoding.encoder() for encoding in encodings)
        widths = {level: sum(e.width for e in encodings if e.level == level) for level in ("node", "pair", "simplex")}
        self.node = RowLinear(widths["node"], dim, bias=False) if widths["node"] else None
        self.maps = nn.ModuleList(
            nn.ModuleList(nn.Linear(e.width, dim, bias=False) for _ in simplex_dims(e))
            if e.level == "simplex"
            else nn.ModuleList()
            for e in encodings
        )

    def forward(self, graph: GraphBatch) -> Encoded:
        raw = graph.statistics or {}
        nodes: list[Tensor] = []
        pairs: list[Tensor] = []
        simplices: dict[int, Tensor] = {}
        for encoding, encoder, maps in zip(self.encodings, self.encoders, self.maps, strict=True):
            found = encoder(raw, graph)
            if encoding.level == "node":
                nodes.append(found)
            elif encoding.level == "pair":
                pairs.append(found)
            else:
                for k, linear in zip(simplex_dims(encoding), maps, strict=True):  # type: ignore[call-overload]
                    mapped = linear(found[k])
                    simplices[k] = mapped if k not in simplices else simplices[k] + mapped
        return Encoded(
            None if self.node is None else self.node(torch.cat(nodes, dim=1)),
            torch.cat(pairs, dim=1) if pairs else None,
            simplices,
        )
