"""Have Triton read every kernel of some models' training steps as it would for a GPU, without one and without running any.

The interpreter, in which kernels are tested without a GPU, lets through what the compiler does not: a name that changes its type in a
loop, say. Run as a script, since whether kernels are interpreted is settled when they are imported. Prints their names.
"""

import importlib
import os
import pkgutil
import sys

import networkx as nx
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ir, make_backend
from triton.runtime import driver, jit

import tuplet
from tuplet.graphs.door import as_data
from tuplet.models import dense_cpu

MODELS = [
    ("A2^LN+VT", {}),
    ("A2^LN+VT", {"softmax": "joint"}),
    ("A2^Ngbh++VT", {"softmax": "joint"}),
    ("A1,2^Ngbh", {}),
    ("AS0:1^SN+VS", {}),
    ("A2-Performer", {}),
    ("A2", {"norm": "layer"}),
    ("A2^Ngbh+", {"dim": 128, "relation": "reweight"}),
]
NAMES: set[str] = set()


class Driver:
    """Of a GPU that is not there."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=None):
        return 0


def read(src, target, options):
    """The first stage of compiling."""
    backend = make_backend(target)
    parsed, context = backend.parse_options(options), ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    src.make_ir(target, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context)
    NAMES.add(src.fn.__name__)


def main():
    driver.set_active(Driver())
    triton.compiler.compile = read
    run = jit.JITFunction.run
    jit.JITFunction.run = lambda self, *args, warmup, **options: run(self, *args, warmup=True, **options)
    for _, name, _ in pkgutil.walk_packages(tuplet.__path__, "tuplet."):
        if any(room in name for room in (".kernels", ".attention", ".models")):
            importlib.import_module(name)
    for module in [module for name, module in sys.modules.items() if name.startswith("tuplet")]:
        if hasattr(module, "has_kernels"):
            module.has_kernels = lambda x: x.dtype != torch.float64
    dense_cpu.fits = lambda *tensors: False
    os.environ["TRITON_INTERPRET"] = "1"  # kernels are imported; this lets models choose them
    graphs = [as_data(nx.path_graph(4)), as_data(nx.cycle_graph(3))]
    for precision in ("high", "highest"):
        torch.set_float32_matmul_precision(precision)
        for name, options in MODELS:
            model = tuplet.build(name, **{"dim": 16, "heads": 2, "depth": 2, "backend": "triton", **options}).train()
            model(graphs).sum().backward()
    print(*sorted(NAMES), sep="\n")


if __name__ == "__main__":
    main()
