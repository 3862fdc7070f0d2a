"""Positional and structural encodings of nodes, ordered pairs and simplices."""

from tuplet.encodings.base import Encoding, Level
from tuplet.encodings.basisnet import BasisNet
from tuplet.encodings.canonical import MAP, Census
from tuplet.encodings.catalogue import CATALOGUE, KNOWN, Row, parse
from tuplet.encodings.degree import DEG
from tuplet.encodings.distances import RD, SPD
from tuplet.encodings.hodge_spectrum import Hodge1Lap
from tuplet.encodings.lappe import LapPE
from tuplet.encodings.precompute import Precompute, computing_bytes, statistics
from tuplet.encodings.signnet import SignNet
from tuplet.encodings.simplex_walks import EdgeRWSE, HodgeRW
from tuplet.encodings.spe import SPE
from tuplet.encodings.spectrum import Spectral
from tuplet.encodings.walks import RRWP, RWSE

__all__ = [
    "CATALOGUE",
    "DEG",
    "KNOWN",
    "MAP",
    "RD",
    "RRWP",
    "RWSE",
    "SPD",
    "SPE",
    "BasisNet",
    "Census",
    "EdgeRWSE",
    "Encoding",
    "Hodge1Lap",
    "HodgeRW",
    "LapPE",
    "Level",
    "Precompute",
    "Row",
    "SignNet",
    "Spectral",
    "computing_bytes",
    "parse",
    "statistics",
]
