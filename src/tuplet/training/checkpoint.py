"""Checkpoints: tensors as safetensors, the rest as JSON with checksums of both; the last good ones are kept."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from tuplet._extras import require
from tuplet.errors import RunError
from tuplet.training.files import TEMPORARY, digest, make_folder, seal, unseal, write

FORMAT = 1
_NAME = re.compile(r"checkpoint-(\d{8})\.json")


class Checkpoints:
    """A folder of numbered checkpoints.

    A checkpoint is two files. The tensors are written first, the JSON that names them and their checksum last: until it is
    there, the checkpoint does not exist, so a crash leaves the previous one as the newest.

    Args:
        folder: made if it is not there.
        keep: how many good ones are kept.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = make_folder("out", folder)
        self.keep = keep
        whole = {self._paths(number)[0] for number in self.numbers()}
        for path in [*self.folder.glob(f"*{TEMPORARY}"), *(set(self.folder.glob("*.safetensors")) - whole)]:
            with suppress(OSError):  # what a crash left behind
                path.unlink()

    def numbers(self) -> list[int]:
        """Numbers of all checkpoints, good or not, ascending."""
        return sorted(int(found[1]) for path in self.folder.iterdir() if (found := _NAME.fullmatch(path.name)))

    def save(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Write one more checkpoint, then forget the oldest."""
        numbers = self.numbers()
        number = numbers[-1] + 1 if numbers else 1
        tensor_path, facts_path = self._paths(number)
        content = to_bytes(tensors)
        write(tensor_path, content)
        description = {"format": FORMAT, "tensors": {"bytes": len(content), "sha256": digest(content)}, "facts": facts}
        write(facts_path, seal(description))
        for old in numbers[: max(0, len(numbers) + 1 - self.keep)]:
            for path in reversed(self._paths(old)):  # the JSON first: without it the tensors are no checkpoint
                with suppress(OSError):
                    path.unlink()

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest good checkpoint, or None if there is none at all. Damaged ones are passed over with a warning."""
        numbers = self.numbers()
        for number in reversed(numbers):
            try:
                return self._read(number)
            except RunError as error:
                warnings.warn(f"a checkpoint is damaged and the one before it is used. {error}", stacklevel=2)
        if numbers:
            raise RunError(
                f"{self.folder}: expected a good checkpoint; all {len(numbers)} are damaged. Remove them to begin again."
            )
        return None

    def _read(self, number: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensor_path, facts_path = self._paths(number)
        described = unseal(facts_path, "the facts of a checkpoint")
        if described.get("format") != FORMAT:
            raise RunError(f"{facts_path}: expected format {FORMAT}; came {described.get('format')!r}")
        return read_tensors(tensor_path, described["tensors"]["sha256"]), described["facts"]

    def _paths(self, number: int) -> tuple[Path, Path]:
        stem = f"checkpoint-{number:08d}"
        return self.folder / f"{stem}.safetensors", self.folder / f"{stem}.json"


def to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as the content of a safetensors file; each is copied, so that none shares its memory with another."""
    library = require("safetensors.torch", "train")
    content: bytes = library.save({name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()})
    return content


def read_tensors(path: Path, checksum: str) -> dict[str, Tensor]:
    """Tensors of a safetensors file whose content has this checksum; nothing in the file is executed."""
    library = require("safetensors.torch", "train")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path}: expected a file of tensors; came {error.strerror!r}") from error
    if digest(content) != checksum:
        raise RunError(
            f"{path}: expected the content that was saved; its checksum does not fit: it was altered or damaged"
        )
    try:
        tensors: dict[str, Tensor] = library.load(content)
    except require("safetensors", "train").SafetensorError as error:
        raise RunError(f"{path}: expected tensors in the safetensors format; came something else ({error})") from error
    return tensors
