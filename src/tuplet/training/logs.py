"""What is written while a run goes on: ``metrics.csv`` for everyone, event files for TensorBoard."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuplet._extras import require
from tuplet.errors import MissingExtraError
from tuplet.training.files import cannot_write, table_text, write
from tuplet.training.state import History
from tuplet.training.summary import Result

COLUMNS = ("seed", "fold", "epoch", "lr", "train_loss", "val_loss", "val_metric", "seconds")


def rows(seed: int, fold: int, history: History, first: int = 0) -> list[tuple[Any, ...]]:
    """One row an epoch, from the epoch ``first`` on; epochs are counted from 1."""
    columns = (history.lr, history.train_loss, history.val_loss, history.val_metric, history.seconds)
    return [
        (seed, fold, epoch + 1, *("" if math.isnan(column[epoch]) else repr(column[epoch]) for column in columns))
        for epoch in range(first, history.epochs)
    ]


class Log:
    """Told the history after each epoch of one run, it writes what is new.

    The file is written anew when a run begins or goes on, from what is known to be true; then a row an epoch is appended.

    Args:
        path: of the CSV file, which holds all runs.
        finished: results of the runs before.
        seed, fold: of this run.
        events: folder for TensorBoard; None for none.
    """

    def __init__(self, path: Path, finished: Sequence[Result], seed: int, fold: int, events: Path | None) -> None:
        self.path, self.finished, self.seed, self.fold = path, finished, seed, fold
        self.events, self.board, self.written = events, None, -1

    def __call__(self, history: History) -> None:
        if self.written < 0:
            before = [row for result in self.finished for row in rows(result.seed, result.fold, result.history)]
            write(self.path, table_text([COLUMNS, *before, *rows(self.seed, self.fold, history)]))
            self.board = self._open(history.epochs)
        else:
            try:
                with open(self.path, "ab") as file:
                    file.write(table_text(rows(self.seed, self.fold, history, self.written)))
            except OSError as error:
                raise cannot_write(self.path, error) from error
            self._draw(history)
        self.written = history.epochs

    def close(self) -> None:
        if self.board is not None:
            self.board.close()

    def _open(self, epochs: int) -> Any:
        """A writer of event files; epochs after those that are known are forgotten. None without tensorboard."""
        if self.events is None:
            return None
        try:
            library = require("torch.utils.tensorboard", "train")
        except MissingExtraError as error:
            warnings.warn(f"no logs for TensorBoard: {error}", stacklevel=4)
            return None
        return library.SummaryWriter(str(self.events), purge_step=epochs + 1)

    def _draw(self, history: History) -> None:
        if self.board is None:
            return
        for epoch in range(self.written, history.epochs):
            for name in ("lr", "train_loss", "val_loss", "val_metric"):
                value = getattr(history, name)[epoch]
                if not math.isnan(value):
                    self.board.add_scalar(name.replace("_", "/"), value, epoch + 1)
        self.board.flush()
