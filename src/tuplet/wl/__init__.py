"""Exact Weisfeiler-Leman tests: what can and what cannot be told apart, without floating point."""

from tuplet.wl.api import colors, compare, distinguishes, partition
from tuplet.wl.name import WLTest, parse
from tuplet.wl.refine import Refinement

__all__ = ["Refinement", "WLTest", "colors", "compare", "distinguishes", "parse", "partition"]
