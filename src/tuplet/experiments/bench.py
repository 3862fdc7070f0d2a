"""How fast training steps are: time, graphs a second, memory, and the time over what arithmetic and memory allow."""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import tuplet
from tuplet.datasets.task import Task
from tuplet.errors import OptionError
from tuplet.models import Transformer
from tuplet.models.baselines import Baseline
from tuplet.native import set_aside
from tuplet.training.batches import Members, prepare
from tuplet.training.inputs import ready
from tuplet.training.loop import ready_loop
from tuplet.training.options import TrainOptions
from tuplet.training.parallel import MATMUL, make_fabric, matmul_precision
from tuplet.training.presets import preset
from tuplet.training.progress import forget_peak, process_peak
from tuplet.training.runs import make_model

MODELS = (
    "A2^LN", "A2^LN+VT", "A2^Ngbh", "A2^Ngbh+", "A2^VT", "A2-Performer", "A2", "A1,2^Ngbh", "AS0:1^SN", "AS0:1^SN+VS",
    "AS0:1+bias", "GPS",
)  # fmt: skip
"""What is measured if nothing else is asked for: the models of the paper's table of times, and a familiar baseline."""
YARDSTICK = Path(tuplet.__file__).parents[2] / "benchmarks" / "yardstick.py"
"""A plain A2^LN by gathering and scattering, in a checkout of the repository."""


@dataclass(frozen=True)
class Measured:
    """One row.

    Args:
        model: its name.
        precision: of the step.
        milliseconds: of a training step, batching included: the median.
        batching: milliseconds of it in which a batch is read and its tokens are prepared; NaN where that is recorded too.
        products: milliseconds of the same step's matrix products alone.
        graphs: learned from in a second.
        megabytes: most memory in use; of the process on a CPU, of the device on a GPU.
        parameters: weights of the model.
        recorded: whether steps were replayed as CUDA graphs.
        flops: operations of a step (``Cost.flops``); NaN for the yardstick.
        traffic: bytes that it has to move at least (``Cost.least_traffic``).
        floor: milliseconds that the device takes for the slower of the two, at the rates of a large matrix product in this
            precision and of a copy, measured in the same process.
        launches: kernels and copies of a step on a GPU; 0 on a CPU.
    """

    model: str
    precision: str
    milliseconds: float
    batching: float
    products: float
    graphs: float
    megabytes: float
    parameters: int
    recorded: bool
    flops: float
    traffic: float
    floor: float
    launches: int

    @property
    def over_floor(self) -> float:
        """Time of a step over the floor."""
        return self.milliseconds / self.floor

    @property
    def ratio(self) -> float:
        """Time of a step over that of its matrix products."""
        return self.milliseconds / self.products if self.products else float("nan")


def bench(
    task: Task,
    models: Sequence[str] = MODELS,
    *,
    steps: int = 10,
    precision: str | None = None,
    depth: int | None = None,
) -> Iterator[Measured]:
    """Measure training steps of the models with their settings for ZINC, one after another.

    Args:
        task: with graphs to learn from, as ZINC has them.
        models: names; "yardstick" is a plain gather-and-scatter A2^LN, where there is a checkout.
        steps: how many are timed, after as many to warm up.
        precision: of training; by default that of the preset.
        depth: layers, instead of the preset's.
    """
    for name in models:
        options = _options(name, precision, depth)
        model = _make(name, task, options)
        yield _measure(model, name, ready(task, model), options, steps)


def _options(name: str, precision: str | None, depth: int | None) -> TrainOptions:
    like = "A2^LN" if name == "yardstick" else name
    options = TrainOptions.of({**preset("zinc", like), "model": name, "seeds": [0]})
    more = {} if depth is None else {"depth": depth}
    chosen = replace(options, model_options={**options.model_options, **more})
    return chosen if precision is None else replace(chosen, precision=precision)  # type: ignore[arg-type]


def _make(name: str, task: Task, options: TrainOptions) -> nn.Module:
    if name != "yardstick":
        return make_model(task, options)
    if not YARDSTICK.is_file():
        raise OptionError(f"yardstick: expected {YARDSTICK.name} in benchmarks/ of a checkout; there is none")
    spec = spec_from_file_location("yardstick", YARDSTICK)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    model: nn.Module = module.build(**task.model_options(), **options.model_options)
    return model


def _measure(model: nn.Module, name: str, task: Task, options: TrainOptions, steps: int) -> Measured:
    fabric = make_fabric(options)
    gpu = fabric.device.type == "cuda"
    forget_peak(fabric.device)
    loop = ready_loop(model, task, options, fabric)
    batches = in_batches(task.splits[0]["train"].tolist(), options.batch_size, steps)
    for batch in batches:
        loop.step([batch])
    most = (
        torch.cuda.max_memory_allocated() if gpu else process_peak() or math.nan
    ) / 2**20  # before other measurements
    times, batching, products = [], [], []
    bare = _products(model, task, batches[0], options)
    for batch in batches:  # in turn: a machine that is slow for a while is slow for all of them
        times.append(_timed(lambda batch=batch: loop.step([batch]), gpu))  # type: ignore[misc]
        products.append(_timed(bare, gpu))
        batching.append(_timed(lambda batch=batch: prepare(model, loop.graphs, batch), gpu))  # type: ignore[misc]
    milliseconds = 1e3 * statistics.median(times)
    flops, traffic = _work(model, task, batches[0], options.precision)
    rate, copies = _rates(fabric.device, options.precision)
    return Measured(
        name,
        options.precision,
        milliseconds,
        math.nan if loop.recorder is not None else 1e3 * statistics.median(batching),
        1e3 * statistics.median(products),
        1e3 * options.batch_size / milliseconds,
        most,
        sum(parameter.numel() for parameter in model.parameters()),
        loop.recorder is not None,
        flops,
        traffic,
        1e3 * max(flops / rate, traffic / copies),
        _launches(lambda: loop.step([batches[0]])) if gpu else 0,
    )


def in_batches(members: Members, size: int, steps: int) -> list[Members]:
    """As many batches as there are steps, one after another and from the beginning again."""
    return [[members[(step * size + place) % len(members)] for place in range(size)] for step in range(steps)]


def _timed(call: Callable[[], object], gpu: bool) -> float:
    if gpu:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    if gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - begin


class _Products(TorchDispatchMode):
    """Collects the operands' shapes of the matrix products of linear maps; batched ones are attention's."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[torch.Size, torch.Size, torch.dtype]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        if name in ("mm", "addmm"):
            left, right = [arg for arg in args if isinstance(arg, Tensor)][-2:]
            self.found.append((left.shape, right.shape, left.dtype))
        return function(*args, **(kwargs or {}))


def _products(model: nn.Module, task: Task, members: Members, options: TrainOptions) -> Callable[[], object]:
    """The matrix products of one step by themselves: those of the linear maps, forward and backward.

    They are collected from a step on a CPU, where each is an operation of its own; kernels do the same work.
    """
    device = next(model.parameters()).device
    twin = copy.deepcopy(model).cpu().train()
    with _Products() as products, set_aside():
        twin(prepare(twin, task.graphs, members)).sum().backward()
    kinds = Counter(products.found)
    pairs = [
        (torch.randn(left, dtype=dtype, device=device), torch.randn(right, dtype=dtype, device=device), count)
        for (left, right, dtype), count in kinds.items()
    ]

    def run() -> None:
        with matmul_precision(MATMUL[options.precision]):
            for a, b, count in pairs:
                for _ in range(count):
                    a @ b

    run()
    if device.type != "cuda":
        return run
    graph = torch.cuda.CUDAGraph()  # or launches are what is measured
    with torch.cuda.graph(graph):
        run()

    def replay() -> object:
        graph.replay()
        return pairs  # which the graph reads, so they have to stay

    return replay


def _work(model: nn.Module, task: Task, members: Members, precision: str) -> tuple[float, float]:
    """Operations and bytes of a step; NaN for the yardstick, which does not say."""
    if not isinstance(model, Transformer | Baseline):
        return math.nan, math.nan
    if precision == "bf16":  # in which vectors are half as long
        model = copy.deepcopy(model).bfloat16()
    cost = model.cost([task.graphs[member] for member in members])
    return float(cost.flops), float(cost.least_traffic)


@cache
def _rates(device: torch.device, precision: str) -> tuple[float, float]:
    """Operations a second of a large matrix product, and bytes a second, read and written, of a copy."""
    gpu = device.type == "cuda"
    size, numbers = (8192, 2**28) if gpu else (1024, 2**24)
    dtype = {"bf16": torch.bfloat16, "fp64": torch.float64}.get(precision, torch.float32)
    a, b = (torch.randn(size, size, dtype=dtype, device=device) for _ in range(2))
    source, target = (torch.zeros(numbers, device=device) for _ in range(2))
    with matmul_precision(MATMUL[precision]):
        product, copying = (
            min(_timed(call, gpu) for _ in range(5)) for call in (lambda: a @ b, lambda: target.copy_(source))
        )
    return 2 * size**3 / product, 8 * numbers / copying


def _launches(step: Callable[[], object]) -> int:
    """Kernels and copies that a step makes the device run."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    return sum(event.count for event in seen.key_averages() if event.device_time_total > 0)
