"""Training, checkpoints, saved models, prediction."""

from tuplet.errors import RunError
from tuplet.training.estimators import GraphClassifier, GraphRegressor
from tuplet.training.evaluation import Score, evaluate
from tuplet.training.loop import fit
from tuplet.training.options import TrainOptions
from tuplet.training.predicted_table import predict_file
from tuplet.training.predictions import Predictions
from tuplet.training.presets import preset, presets, resolve
from tuplet.training.progress import progress_bar
from tuplet.training.runs import read_options, train
from tuplet.training.schedule import learning_rate
from tuplet.training.settings import add_arguments, given
from tuplet.training.state import History
from tuplet.training.summary import Result, Summary
from tuplet.training.trained import Trained, load

__all__ = [
    "GraphClassifier",
    "GraphRegressor",
    "History",
    "Predictions",
    "Result",
    "RunError",
    "Score",
    "Summary",
    "TrainOptions",
    "Trained",
    "add_arguments",
    "evaluate",
    "fit",
    "given",
    "learning_rate",
    "load",
    "predict_file",
    "preset",
    "presets",
    "progress_bar",
    "read_options",
    "resolve",
    "train",
]
