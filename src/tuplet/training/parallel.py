"""Processes and devices, by Lightning Fabric: one process by default, several on one machine, or those that torchrun began."""

from __future__ import annotations

import atexit
import logging
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

import tuplet.errors
from tuplet._extras import require
from tuplet.errors import InputError, MissingExtraError, OptionError, TupletError
from tuplet.training import files
from tuplet.training.options import TrainOptions

for _room in ("lightning_fabric", "lightning.fabric", "lightning.pytorch"):  # that processes begin is no news
    for _name in ("distributed", "rank_zero"):
        logging.getLogger(f"{_room}.utilities.{_name}").setLevel(logging.WARNING)

WORKSPACES = {"CUBLAS_WORKSPACE_CONFIG": ":2048:1:16:8", "CUBLASLT_WORKSPACE_SIZE": "2048"}
"""What libraries of matrix products may keep for each stream, unless it is set: 2 MiB. Torch would give them 32 on a large card, which
is more than a layer keeps of a batch of molecules, and a recorded step has several streams."""
MATMUL = {"fp32": "highest", "fp64": "highest", "tf32": "high", "bf16": "high"}


def fabric_library() -> ModuleType:
    """Lightning's Fabric, from the package of that name or from the whole of Lightning."""
    try:
        return require("lightning_fabric", "train")
    except MissingExtraError as error:
        try:
            return require("lightning.fabric", "train")
        except MissingExtraError:
            raise error from None


def make_fabric(options: TrainOptions) -> Any:
    """Lightning's Fabric for the options' devices and precision; not launched yet.

    fp64 is not left to Fabric, which would round outputs to the default type: the model itself is converted.
    """
    library = fabric_library()
    if options.accelerator == "cuda" and not torch.cuda.is_available():
        raise OptionError("accelerator: expected 'auto' or 'cpu', since torch finds no CUDA device here; came 'cuda'")
    gpu = options.accelerator != "cpu" and torch.cuda.is_available()
    if gpu:
        for variable, size in WORKSPACES.items():
            os.environ.setdefault(variable, size)
    most = torch.cuda.device_count() if gpu else max(2, os.cpu_count() or 1)
    if options.devices > most and not started_by_torchrun():
        what = "GPUs" if gpu else "processes that its cores can run"
        raise OptionError(f"devices: expected at most {most}, the {what} here; came {options.devices}")
    kwargs: dict[str, Any] = {
        "accelerator": "cuda" if gpu else "cpu",
        "precision": "bf16-mixed" if options.precision == "bf16" else "32-true",
    }
    if started_by_torchrun():
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        nodes = max(1, int(os.environ.get("WORLD_SIZE", "1")) // local)
        return library.Fabric(**kwargs, devices=local, num_nodes=nodes, strategy="ddp")
    if options.devices > 1:
        return library.Fabric(**kwargs, devices=options.devices, strategy="ddp_spawn")
    return library.Fabric(**kwargs, devices=1)


def started_by_torchrun() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_torchelastic_launched()


def first_of_all() -> bool:
    """Whether this process is the one that speaks for all, before any are launched."""
    return not started_by_torchrun() or int(os.environ.get("RANK", "0")) == 0


def launch(fabric: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(fabric, *arguments)`` in every process; the result of the first.

    Spawned processes get the arguments as one block of bytes: many small tensors would each need a file descriptor.
    An error of tuplet in one of them is raised here as it was there.
    """
    if started_by_torchrun():
        result = fabric.launch(function, *arguments)
        fabric.barrier()
        atexit.register(_leave)
        return result
    if fabric.strategy.launcher is None:
        return fabric.launch(function, *arguments)
    with tempfile.TemporaryDirectory() as folder:
        errors = Path(folder) / "error.json"
        payload = pickle.dumps((function, arguments))
        try:
            return pickle.loads(fabric.launch(_child, payload, str(errors)))
        except Exception as error:
            if errors.exists():
                raise _revive(errors) from None
            raise error


def _child(fabric: Any, payload: bytes, errors: str) -> bytes:
    function, arguments = pickle.loads(payload)  # our own parent's words, never a file's
    try:
        result = pickle.dumps(function(fabric, *arguments))
        fabric.barrier()
        _leave()
        return result
    except TupletError as error:
        files.write(Path(errors), files.seal({"kind": type(error).__name__, "text": str(error)}))
        raise


def _leave() -> None:
    """End the connection between processes; one that is cut off by the end of a process aborts it."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _revive(path: Path) -> TupletError:
    told = files.unseal(path, "an error")
    kind = getattr(tuplet.errors, told["kind"], OptionError)
    error: TupletError = InputError("", "", "") if kind is InputError else kind()
    error.args = (told["text"],)
    return error


@torch.no_grad()
def sum_gradients(fabric: Any, model: nn.Module, extra: Tensor) -> Tensor:
    """Sum the gradients of all processes in place, as one message in a fixed order; returns the sums of ``extra`` (m,).

    DistributedDataParallel would mix its messages with those of the norms in an order that depends on the data.
    """
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    flat = fabric.all_reduce(torch.cat([gradient.reshape(-1) for gradient in gradients]), reduce_op="sum")
    for gradient, summed in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(summed.view_as(gradient))
    sums: Tensor = fabric.all_reduce(extra, reduce_op="sum")
    return sums


def every_row(fabric: Any, row: Tensor) -> Tensor:
    """(processes, m): the row (m,) of small integers that each process has."""
    table = torch.zeros(fabric.world_size, len(row), dtype=torch.int32, device=fabric.device)
    table[fabric.global_rank] = row.to(table)
    if fabric.world_size > 1:
        table = fabric.all_reduce(table, reduce_op="sum")
    return table.to(row.dtype)


@contextmanager
def matmul_precision(name: str) -> Iterator[None]:
    """How float32 matrices are multiplied, for a while."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
