"""The ``tuplet`` command. What a verb needs is imported by the verb, so that ``tuplet --help`` is quick."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

from tuplet import __version__
from tuplet.errors import OptionError, TupletError


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors of tuplet, printed like all others."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code: 0 if all is well, 2 for an error that the user can mend, 1 for one of ours."""
    debug = False
    try:
        words = list(sys.argv[1:] if argv is None else argv)
        debug = "--debug" in words
        words = [word for word in words if word != "--debug"]
        arguments = _parser(words[0] if words else "").parse_args(words)
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: print(f"tuplet: {message}", file=sys.stderr)
            code: int = arguments.run(arguments)
        return code
    except TupletError as error:
        if debug:
            raise
        print(f"tuplet: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if debug:
            raise
        print(f"tuplet: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if debug:
            raise
        print(f"tuplet: unexpected {type(error).__name__}: {error} (--debug shows where it came from)", file=sys.stderr)
        return 1


def _parser(wanted: str) -> argparse.ArgumentParser:
    """All verbs; those whose arguments take imports to make have them only where they are ``wanted``."""
    parser = _Parser(
        prog="tuplet", description="Higher-order graph transformers: attention over k-tuples of nodes and simplices."
    )
    parser.add_argument("--version", action="version", version=f"tuplet {__version__}")
    parser.add_argument("--debug", action="store_true", help="show where an error came from")
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    demo = verbs.add_parser("demo", help="train A2^LN and A2 on circular skip links and draw what they see")
    demo.add_argument("--out", default="runs/demo", help="folder for the picture and the summary (%(default)s)")
    demo.add_argument("--seed", type=int, default=0, help="of data, weights and training (%(default)s)")
    demo.set_defaults(run=_demo)

    tests = verbs.add_parser(
        "wl",
        help="run an exact Weisfeiler-Leman test on graphs",
        epilog="A file holds a graph6 string a line, or is an edge list: a line 'u v' is an edge, 'u' a node without edges, "
        "'u = 2' the label of a node (a whole number; of all nodes, or of none).",
    )
    tests.add_argument("test", help="1-WL, 2-WL, 2-FWL, delta-2-LWL, SWL, .. (tuplet list tests)")
    tests.add_argument("graphs", nargs="+", help="two graphs (files or graph6 strings), or one file of many")
    tests.add_argument("--dim", type=int, help="highest dimension of the simplices, SWL only")
    tests.add_argument("--rounds", type=int, help="most rounds; as many as it takes if not given")
    tests.add_argument(
        "--directed", action="store_true", help="a line 'u v' of an edge list is an edge from u to v only"
    )
    tests.set_defaults(run=_wl)

    power = verbs.add_parser("expressivity", help="which graphs does a model with random weights tell apart?")
    power.add_argument("model", help="a model name, such as A2^LN, or a baseline, such as GIN")
    power.add_argument(
        "pairs", nargs="?", help="file of graph6 pairs and categories, tab separated; else the built-in bank"
    )
    power.add_argument("--draws", type=int, default=3, help="of weights (%(default)s)")
    power.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="an option of the model, repeatable"
    )
    power.set_defaults(run=_expressivity)

    theory = verbs.add_parser("theory", help="check every statement of the paper")
    theory.add_argument("checks", nargs="*", help="names of checks; all if none is given")
    theory.add_argument("--json", action="store_true", help="print JSON instead of a table")
    theory.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes (%(default)s)")
    theory.set_defaults(run=_theory)

    training = verbs.add_parser("train", help="train a model on a data set or a file")
    training.set_defaults(run=_train)
    evaluating = verbs.add_parser("evaluate", help="the metric of a trained model on a data set or a file")
    evaluating.set_defaults(run=_evaluate)
    predicting = verbs.add_parser("predict", help="predict for a table of SMILES or a file of graphs")
    predicting.set_defaults(run=_predict)
    if wanted in ("train", "evaluate", "predict"):
        from tuplet.cli.train import add_evaluate, add_predict, add_train

        add_train(training)
        add_evaluate(evaluating)
        add_predict(predicting)

    speed = verbs.add_parser("bench", help="how fast training steps of the models are here")
    speed.add_argument(
        "models", nargs="*", help="names, or yardstick; those of the paper's table of times if none is given"
    )
    speed.add_argument("--all", action="store_true", help="every model of `tuplet list models`, which takes a while")
    speed.add_argument("--data", help="folder with ZINC in packed form; random graphs like it if not given")
    speed.add_argument("--steps", type=int, default=10, help="timed steps (%(default)s)")
    speed.add_argument("--precision", choices=["fp32", "tf32", "bf16"], help="of the steps; the preset's if not given")
    speed.add_argument("--depth", type=int, help="layers; the preset's if not given")
    speed.add_argument("--json", action="store_true", help="print JSON instead of a table")
    speed.set_defaults(run=_bench)

    reproducing = verbs.add_parser("reproduce", help="run a table of the paper and show it beside the paper")
    reproducing.set_defaults(run=_reproduce)
    if wanted == "reproduce":
        from tuplet.cli.reproduce import add_reproduce

        add_reproduce(reproducing)

    page = verbs.add_parser("report", help="make tables and a page from the results of reproduce")
    page.add_argument("tables", nargs="*", metavar="TABLE", help="names of tables; all if none is given")
    page.add_argument("--results", default="results", help="folder of the results (%(default)s)")
    page.add_argument(
        "--out", help="the page; .txt, .md and .csv come beside it (report.html in the folder of the results)"
    )
    page.set_defaults(run=_report)

    lists = verbs.add_parser("list", help="list what there is")
    lists.add_argument("what", choices=["models", "datasets", "encodings", "presets", "tables", "tests"])
    lists.set_defaults(run=_list)
    return parser


def _demo(arguments: argparse.Namespace) -> int:
    from tuplet.cli.demo import demo

    return demo(arguments.out, arguments.seed)


def _wl(arguments: argparse.Namespace) -> int:
    from tuplet.cli.graphs import run_wl

    return run_wl(arguments.test, arguments.graphs, arguments.dim, arguments.rounds, arguments.directed)


def _expressivity(arguments: argparse.Namespace) -> int:
    from tuplet.cli.graphs import run_expressivity

    return run_expressivity(arguments.model, arguments.pairs, arguments.draws, arguments.set)


def _theory(arguments: argparse.Namespace) -> int:
    from tuplet.cli.theory import run_theory

    return run_theory(arguments.checks, arguments.json, arguments.jobs)


def _bench(arguments: argparse.Namespace) -> int:
    from tuplet.cli.bench import every_model, run_bench

    names = [*arguments.models, *every_model()] if arguments.all else arguments.models
    options = arguments.steps, arguments.precision, arguments.depth
    return run_bench(names, arguments.data, *options, arguments.json)


def _train(arguments: argparse.Namespace) -> int:
    from tuplet.cli.train import run_train

    return run_train(arguments)


def _evaluate(arguments: argparse.Namespace) -> int:
    from tuplet.cli.train import run_evaluate

    return run_evaluate(arguments)


def _predict(arguments: argparse.Namespace) -> int:
    from tuplet.cli.train import run_predict

    return run_predict(arguments)


def _reproduce(arguments: argparse.Namespace) -> int:
    from tuplet.cli.reproduce import run_reproduce

    return run_reproduce(arguments)


def _report(arguments: argparse.Namespace) -> int:
    from tuplet.cli.reproduce import run_report

    return run_report(arguments.tables, arguments.results, arguments.out)


def _list(arguments: argparse.Namespace) -> int:
    from tuplet.cli.lists import LISTS

    print(LISTS[arguments.what]())
    return 0
