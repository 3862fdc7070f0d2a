"""The zoo of models, and the measuring functions of the benchmarks, for all tests here.

The folder of benchmarks itself stays off the path: a file in it is called like a module of Python's own.
"""

import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
spec = importlib.util.spec_from_file_location("measure", HERE.parent.parent / "benchmarks" / "measure.py")
sys.modules["measure"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["measure"])
