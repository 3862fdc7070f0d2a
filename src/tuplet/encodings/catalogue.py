"""Every encoding there is, as rows (what ``tuplet list encodings`` prints), and the short forms that name them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from tuplet.encodings.base import Encoding, Level
from tuplet.encodings.basisnet import BasisNet
from tuplet.encodings.canonical import MAP
from tuplet.encodings.degree import DEG
from tuplet.encodings.distances import RD, SPD
from tuplet.encodings.hodge_spectrum import Hodge1Lap
from tuplet.encodings.lappe import LapPE
from tuplet.encodings.signnet import SignNet
from tuplet.encodings.simplex_walks import EdgeRWSE, HodgeRW
from tuplet.encodings.spe import SPE
from tuplet.encodings.walks import RRWP, RWSE
from tuplet.errors import OptionError

KNOWN: dict[str, type[Encoding]] = {
    kind.__name__: kind
    for kind in (DEG, RWSE, LapPE, SignNet, BasisNet, SPE, MAP, RRWP, SPD, RD, EdgeRWSE, Hodge1Lap, HodgeRW)
}


@dataclass(frozen=True)
class Row:
    """One row.

    Args:
        short: a short form that ``parse`` takes, with the default sizes.
        level: what gets a vector: a node, an ordered pair of nodes, a simplex.
        what: the raw statistic.
        invariant: whether it depends on the graph alone, and under which condition.
        paper: where it comes from.
    """

    short: str
    level: Level
    what: str
    invariant: str
    paper: str


_ABOUT: dict[type[Encoding], tuple[str, str, str]] = {
    DEG: ("degree", "yes", "Ying et al. 2021"),
    RWSE: ("return probabilities of S steps", "yes", "Dwivedi et al. 2022"),
    LapPE: ("first K eigenvectors and values", "no: signs, bases", "Dwivedi and Bresson 2020"),
    SignNet: ("functions of ±v", "if eigenvalues are simple", "Lim et al. 2023"),
    BasisNet: ("functions of projectors V Vᵀ", "unless whole=cut", "Lim et al. 2023"),
    SPE: ("V diag(ψ(λ)) Vᵀ, GIN over rows", "unless whole=cut", "Huang et al. 2024"),
    MAP: ("canonical eigenvectors", "unless whole=cut or uncanonical=flip", "Ma et al. 2023"),
    RRWP: ("I, P, P², .. of ordered pairs", "yes", "Ma et al. 2023 (GRIT)"),
    SPD: ("shortest-path distance", "yes", "Ying et al. 2021"),
    RD: ("resistance distance", "yes", "Zhang et al. 2023"),
    EdgeRWSE: ("return probabilities on edges", "yes", "Zhou et al. 2023"),
    Hodge1Lap: ("projectors of L_1 on edges", "yes", "Zhou et al. 2023"),
    HodgeRW: ("return probabilities on 𝓛_{0:K}", "yes", "Zhou et al. 2023"),
}

CATALOGUE = tuple(Row(str(kind()), kind.level, *_ABOUT[kind]) for kind in KNOWN.values())


def parse(text: str) -> Encoding:
    """An encoding from its short form ``name[:raw size[:width]][:option=value]..``; what is left out has its default.

    >>> parse("RWSE:20:28")
    RWSE(steps=20, width=28, norm=True)
    >>> parse("SignNet:all:28").vectors
    'all'
    >>> parse("HodgeRW:16:16:dim=2:rings=5/6").rings
    (5, 6)
    """
    name, *parts = text.strip().split(":")
    kind = KNOWN.get(name)
    if kind is None:
        raise OptionError(f"encoding: expected one of {', '.join(KNOWN)}, as in {CATALOGUE[1].short!r}; came {text!r}")
    options = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    by_place = list(options)[: kind.positional]
    given: dict[str, Any] = {}
    for place, part in enumerate(parts):
        option, named, value = part.partition("=")
        if not named:
            if place >= len(by_place):
                raise OptionError(f"encoding: expected {':'.join([name, *by_place])}[:option=value]..; came {text!r}")
            option, value = by_place[place], part
        if option not in options:
            raise OptionError(f"{name}: expected one of the options {', '.join(options)}; came {option!r} in {text!r}")
        if option in given:
            raise OptionError(f"{name}: expected {option} once; came {text!r}")
        given[option] = _value(value, options[option].default)
    return kind(**given)


def _value(text: str, default: Any) -> Any:
    """Text as a value of the kind of the default; what has no such form stays text, for the encoding to refuse."""
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text.lower(), text)
    if isinstance(default, tuple):
        return tuple(_value(part, 0) for part in text.split("/")) if text else ()
    if isinstance(default, int) and text.lstrip("-").isdecimal():
        return int(text)
    return text
