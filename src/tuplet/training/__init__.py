"""The training loop, metrics and progress bar."""

from tuplet.training.loop import History, TrainOptions, fit, learning_rate
from tuplet.training.metrics import accuracy, evaluate, predict
from tuplet.training.progress import progress_bar

__all__ = ["History", "TrainOptions", "accuracy", "evaluate", "fit", "learning_rate", "predict", "progress_bar"]
