"""``tuplet train``, ``tuplet evaluate`` and ``tuplet predict``: from data to a trained model and to numbers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tuplet.cli.graphs import options_of
from tuplet.errors import OptionError


def add_train(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``tuplet train``: what to learn from, then one for each option of the training."""
    from tuplet.training.settings import add_arguments

    _add_data(parser, "a data set (tuplet list datasets), a table of SMILES, or a file of graphs")
    parser.add_argument("--out", required=True, help="run folder")
    parser.add_argument(
        "--resume", action="store_true", help="go on where a run in the folder was stopped, with its options"
    )
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
    parser.add_argument(
        "--part",
        choices=["train", "val", "test"],
        help="test if not given; all rows of another file than the run's own, unless --split is given",
    )
    parser.add_argument("--fold", type=int, help="number of the split; the one the model was trained on if not given")
    parser.add_argument("--batch-size", type=int, default=32, help="graphs at once (%(default)s)")


def add_predict(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="run folder or model folder")
    parser.add_argument("file", help="a table with a column of SMILES, or a file of graphs")
    parser.add_argument("-o", "--out", required=True, help="the table to write")
    parser.add_argument("--smiles", help="name of the column; as in the training's file if not given")
    parser.add_argument("--batch-size", type=int, default=32, help="graphs at once (%(default)s)")
    parser.add_argument("--device", default="cpu", help="where the model runs (%(default)s)")


def _add_data(parser: argparse.ArgumentParser, text: str, optional: bool = False) -> None:
    parser.add_argument("source", nargs="?" if optional else None, metavar="DATA", help=text)
    parser.add_argument("--data", help="folder of packed data sets ($TUPLET_DATA)")
    parser.add_argument("--root", help="where fetched and prepared data are kept ($TUPLET_CACHE)")
    parser.add_argument("--smiles", help="column of SMILES in a table")
    parser.add_argument("--targets", help="columns of targets in a table, separated by commas")
    parser.add_argument("--split", help="of own data: random, stratified, scaffold or column:NAME")
    parser.add_argument("--invalid", choices=["skip", "refuse"], help="what to do with rows that cannot be used")
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
    with _reading(source) as progress:
        return load(source, data=arguments.data, root=arguments.root, progress=progress, **options)


@contextmanager
def _reading(source: str) -> Iterator[Callable[[int, int], None]]:
    """Told molecules done and in all, it shows on the standard error how far the reading of many is."""
    from tuplet.datasets.preparation import MANY
    from tuplet.training.progress import Report, progress_bar

    report: Report | None = None
    with ExitStack() as stack:

        def progress(done: int, total: int) -> None:
            nonlocal report
            if report is None and total >= MANY:
                report = stack.enter_context(progress_bar(f"reading {source}", sys.stderr))
            if report is not None:
                report(done, total, f"{done} of {total} molecules")

        yield progress


def source_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was trained on, so that ``tuplet evaluate RUN`` finds it again."""
    path = Path(arguments.source)
    named = {"name": str(path.resolve()) if path.is_file() else arguments.source}
    said = {name: getattr(arguments, name) for name in ("smiles", "targets", "split", "invalid", "task_option")}
    said |= {
        name: getattr(arguments, name) and str(Path(getattr(arguments, name)).resolve()) for name in ("data", "labels")
    }
    return {**named, **{name: value for name, value in said.items() if value}}


def run_train(arguments: argparse.Namespace) -> int:
    from tuplet.training import train
    from tuplet.training.parallel import first_of_all

    options = _options(arguments)
    task = load_task(arguments.source, arguments)
    how: dict[str, Any] = {"resume": arguments.resume, "source": source_of(arguments), "root": arguments.root}
    summary = train(task, options, arguments.out, **how)
    if first_of_all():
        print(f"{summary}\nrun folder: {arguments.out}")
    return 0


def _options(arguments: argparse.Namespace) -> Any:
    """The options that the arguments name; a run that goes on has those that it began with, unless a file or variant is named."""
    from tuplet.datasets.catalogue import row_of
    from tuplet.training.presets import resolve
    from tuplet.training.runs import OPTIONS
    from tuplet.training.settings import given

    said = given(arguments)
    if arguments.encoding:
        said["model_options"] = {"encodings": arguments.encoding}
    begun = Path(arguments.out) / OPTIONS
    if arguments.resume and arguments.config is None and arguments.variant is None and begun.is_file():
        return resolve(None, config=begun, given=said, settings=arguments.set)
    row = row_of(arguments.source)
    name = arguments.source if row is None else row.name
    return resolve(name, variant=arguments.variant, config=arguments.config, given=said, settings=arguments.set)


def run_evaluate(arguments: argparse.Namespace) -> int:
    from tuplet.training import load

    trained = load(arguments.run_folder)
    whole = _complete(arguments, trained)
    task = load_task(arguments.source, arguments)
    part = arguments.part or ("train" if whole else "test")
    if _is_own(arguments, trained.config.get("source", {})) and not trained.learned_from(task):
        raise OptionError(
            f"DATA: expected the graphs, targets and splits that the run learned from; {arguments.source} has changed since, or is "
            f"read in another way, so its {part} part may hold some that the model has seen. A file of another name is evaluated as a "
            "whole"
        )
    how: dict[str, Any] = {"fold": arguments.fold, "batch_size": arguments.batch_size, "root": arguments.root}
    score = trained.evaluate(task, part, **how)
    split = trained.config.get("fold", 0) if arguments.fold is None else arguments.fold
    where = f"{task.name}, split {split}" if len(task.splits) > 1 else task.name
    rows = f"{score['rows']:.0f} rows"
    if score["known"] < score["rows"]:
        rows += f", {score['known']:.0f} with a target"
    shown = "all" if whole else part
    print(f"{shown} {task.metric} of {trained.config['model']['name']} on {where}, {rows}: {score[task.metric]:.6g}")
    print(f"{shown} loss ({task.loss}): {score['loss']:.6g}")
    return 0


def _complete(arguments: argparse.Namespace, trained: Any) -> bool:
    """Fill in what the run remembers of its data; whether another file is to be evaluated as a whole.

    Of another file than its own the run knows the columns, the kind and the classes of the targets, and no split.
    """
    remembered = trained.config.get("source", {})
    if arguments.source is None and "name" not in remembered:
        raise OptionError(
            f"DATA: {arguments.run_folder} does not say what it was trained on; name a data set or a file"
        )
    own = arguments.source is None or _is_named(arguments.source, remembered)
    arguments.source = remembered["name"] if own else arguments.source
    file = not own and Path(arguments.source).is_file()
    for name in remembered.keys() - {"name"} if own else ("smiles", "targets", "invalid") if file else ():
        gone = name == "data" and not Path(remembered["data"]).is_dir()
        if getattr(arguments, name) in (None, []) and not gone:
            setattr(arguments, name, remembered.get(name))
    if not file:
        return False
    said = {word.partition("=")[0] for word in arguments.task_option}
    whole = arguments.part is None and arguments.split is None and "fractions" not in said
    more = ["fractions=(1, 0, 0)"] if whole else []
    more += [] if "kind" in said else [f"kind={trained.task.kind}"]
    named = trained.task.kind == "classification" and trained.task.targets and "classes" not in said
    more += [f"classes={list(trained.task.targets)!r}"] if named else []
    arguments.task_option = [*arguments.task_option, *more]
    return whole


def _is_named(source: str, remembered: Mapping[str, Any]) -> bool:
    return remembered.get("name") in (source, str(Path(source).resolve()))


def _is_own(arguments: argparse.Namespace, remembered: Mapping[str, Any]) -> bool:
    """Whether the data are the run's, read as the run read them."""
    said = source_of(arguments)
    read = ("name", "smiles", "targets", "split", "invalid", "labels", "task_option")
    return all(said.get(name) == remembered.get(name) for name in read)


def run_predict(arguments: argparse.Namespace) -> int:
    from tuplet.training import predict_file, progress_bar

    if Path(arguments.out).resolve() == Path(arguments.file).resolve():
        raise OptionError(f"--out: expected another file than the one that is read; came {arguments.out}")
    with progress_bar("predicting") as report:
        graphs, failed = predict_file(
            arguments.run_folder,
            arguments.file,
            arguments.out,
            smiles=arguments.smiles,
            batch_size=arguments.batch_size,
            device=arguments.device,
            progress=report,
        )
    print(f"{graphs - failed} of {graphs} predicted, {failed} with an error text: {arguments.out}")
    return 0
