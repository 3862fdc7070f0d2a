"""The zoo of models, and the measuring functions of the benchmarks, for all tests here."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "benchmarks")]
