"""Functions in C, compiled once by the machine's C compiler when they are first wanted; they share torch's threads.

Where there is no compiler, or ``TUPLET_NATIVE=0`` is set, ``load`` gives None and operators of torch do the same, in more passes.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tuplet._cache import default_root

FOLDER = Path(__file__).parent
REALS = {torch.float32: "float", torch.float64: "double"}
FLAGS = ["-O2", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
ARCHITECTURES = {"AVX512": "-march=x86-64-v4", "AVX2": "-march=x86-64-v3"}


class Library:
    """The compiled functions for one type of numbers."""

    def __init__(self, path: Path) -> None:
        self._functions = ctypes.CDLL(str(path))

    def run(self, name: str, *given: Tensor | int | float | None) -> None:
        """Call a function with the number of threads and what is given; tensors are contiguous, and integers in them int32."""
        self._functions[name](ctypes.c_int64(torch.get_num_threads()), *map(_passed, given))


def load(x: Tensor) -> Library | None:
    """The functions for such tensors, if there are any."""
    if x.device.type != "cpu" or x.dtype not in REALS or os.environ.get("TUPLET_NATIVE") == "0":
        return None
    return _load(REALS[x.dtype])


@cache
def _load(real: str) -> Library | None:
    flags = [*FLAGS, f"-DREAL={real}"]
    if (architecture := ARCHITECTURES.get(torch.backends.cpu.get_cpu_capability())) is not None:
        flags.append(architecture)
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return None
    sources = sorted(FOLDER.glob("*.c"))
    text = b"".join(path.read_bytes() for path in [*sorted(FOLDER.glob("*.h")), *sources])
    key = hashlib.blake2b(repr((compiler, flags)).encode() + text, digest_size=8).hexdigest()
    path = default_root() / "native" / f"{key}.so"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:  # complete or not there, for others too
                made = Path(folder) / path.name
                command = [compiler, *flags, *map(str, sources), "-o", str(made), "-lm"]
                subprocess.run(command, check=True, capture_output=True)
                made.replace(path)
        return Library(path)
    except (OSError, subprocess.CalledProcessError):
        return None


def _passed(value: Tensor | int | float | None) -> Any:
    if isinstance(value, Tensor):
        return ctypes.c_void_p(value.data_ptr())
    if value is None:
        return None
    return ctypes.c_double(value) if isinstance(value, float) else ctypes.c_int64(value)
