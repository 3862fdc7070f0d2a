"""``tuplet train``, ``tuplet evaluate`` and ``tuplet predict``: from data to a trained model and to numbers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tuplet.cli.graphs import options_of
from tuplet.errors import OptionError


def add_train(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``tuplet train``: what to learn from, then one for each option of the training."""
    from tuplet.training.settings import add_arguments

    _add_data(parser, "a data set (tuplet list datasets), a table of SMILES, or a file of graphs")
    parser.add_argument("--out", required=True, help="run folder")
    parser.add_argument("--resume", action="store_true", help="go on where a run in the folder was stopped")
    parser.add_argument("--variant", help="of the data set's preset, such as RWSE")
    parser.add_argument("--config", help="YAML file of options")
    parser.add_argument(
        "--encoding", action="append", default=[], metavar="SHORT", help="such as RWSE:20:28; repeatable"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="an option of training or model, repeatable"
    )
    add_arguments(parser)


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="run folder or model folder")
    _add_data(parser, "as for train; the data set of the run if not given", optional=True)
    parser.add_argument("--part", default="test", choices=["train", "val", "test"], help="(%(default)s)")
    parser.add_argument("--fold", type=int, help="number of the split; the one the model was trained on if not given")
    parser.add_argument("--batch-size", type=int, default=32, help="graphs at once (%(default)s)")


def add_predict(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="run folder or model folder")
    parser.add_argument("file", help="a table with a column of SMILES, or a file of graphs")
    parser.add_argument("-o", "--out", required=True, help="the table to write")
    parser.add_argument("--smiles", default="smiles", help="name of the column (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="graphs at once (%(default)s)")
    parser.add_argument("--device", default="cpu", help="where the model runs (%(default)s)")


def _add_data(parser: argparse.ArgumentParser, text: str, optional: bool = False) -> None:
    parser.add_argument("source", nargs="?" if optional else None, metavar="DATA", help=text)
    parser.add_argument("--data", help="folder of packed data sets ($TUPLET_DATA)")
    parser.add_argument("--root", help="where fetched and prepared data are kept ($TUPLET_CACHE)")
    parser.add_argument("--smiles", help="column of SMILES in a table")
    parser.add_argument("--targets", help="columns of targets in a table, separated by commas")
    parser.add_argument("--split", help="of own data: random, stratified, scaffold or column:NAME")
    parser.add_argument("--invalid", choices=["skip", "refuse"], help="what to do with SMILES that cannot be read")
    parser.add_argument("--labels", help="file of labels, a line a graph, beside a file of graphs")
    parser.add_argument(
        "--task-option", action="append", default=[], metavar="KEY=VALUE", help="another option of the data set"
    )


def load_task(source: str, arguments: argparse.Namespace) -> Any:
    """The data that the arguments name."""
    from tuplet.datasets import load

    options: dict[str, Any] = options_of(arguments.task_option, "--task-option")
    for name in ("smiles", "split", "invalid", "labels"):
        if getattr(arguments, name) is not None:
            options[name] = getattr(arguments, name)
    if arguments.targets is not None:
        options["targets"] = [target.strip() for target in arguments.targets.split(",")]
    return load(source, data=arguments.data, root=arguments.root, **options)


def source_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was trained on, so that ``tuplet evaluate RUN`` finds it again."""
    path = Path(arguments.source)
    named = {"name": str(path.resolve()) if path.is_file() else arguments.source}
    said = {
        name: getattr(arguments, name) for name in ("smiles", "targets", "split", "invalid", "labels", "task_option")
    }
    return {**named, **{name: value for name, value in said.items() if value}}


def run_train(arguments: argparse.Namespace) -> int:
    from tuplet.datasets import CATALOGUE
    from tuplet.training import resolve, train
    from tuplet.training.settings import given

    named = arguments.source in {row.name for row in CATALOGUE}
    said = given(arguments)
    if arguments.encoding:
        said["model_options"] = {"encodings": arguments.encoding}
    options = resolve(
        arguments.source if named else None,
        variant=arguments.variant,
        config=arguments.config,
        given=said,
        settings=arguments.set,
    )
    task = load_task(arguments.source, arguments)
    print(train(task, options, arguments.out, resume=arguments.resume, source=source_of(arguments)))
    print(f"run folder: {arguments.out}")
    return 0


def run_evaluate(arguments: argparse.Namespace) -> int:
    from tuplet.training import load

    trained = load(arguments.run_folder)
    source = arguments.source or trained.config.get("source", {}).get("name")
    if not source:
        raise OptionError(
            f"DATA: {arguments.run_folder} does not say what it was trained on; name a data set or a file"
        )
    if arguments.source is None:
        for name, value in trained.config["source"].items():
            if name != "name" and getattr(arguments, name) in (None, []):
                setattr(arguments, name, value)
    task = load_task(source, arguments)
    score = trained.evaluate(task, arguments.part, fold=arguments.fold, batch_size=arguments.batch_size)
    where = (
        ""
        if len(task.splits) == 1
        else f", split {trained.config.get('fold', 0) if arguments.fold is None else arguments.fold}"
    )
    print(
        f"{arguments.part} {task.metric} of {trained.config['model']['name']} on {task.name}{where}: {score[task.metric]:.6g}"
    )
    print(f"{arguments.part} loss ({task.loss}): {score['loss']:.6g}")
    return 0


def run_predict(arguments: argparse.Namespace) -> int:
    from tuplet.training import predict_file

    if Path(arguments.out).resolve() == Path(arguments.file).resolve():
        raise OptionError(f"--out: expected another file than the one that is read; came {arguments.out}")
    graphs, failed = predict_file(
        arguments.run_folder,
        arguments.file,
        arguments.out,
        smiles=arguments.smiles,
        batch_size=arguments.batch_size,
        device=arguments.device,
    )
    print(f"{graphs - failed} of {graphs} predicted, {failed} with an error text: {arguments.out}")
    return 0
