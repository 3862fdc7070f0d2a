"""The ``tuplet`` command. What a verb needs is imported by the verb, so that ``tuplet --help`` is quick."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from tuplet import __version__
from tuplet.errors import OptionError, TupletError


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors of tuplet, printed like all others."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code: 0 if all is well, 2 for an error that the user can mend."""
    try:
        arguments = _parser().parse_args(argv)
        code: int = arguments.run(arguments)
        return code
    except TupletError as error:
        print(f"tuplet: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="tuplet", description="Higher-order graph transformers: attention over k-tuples of nodes.")
    parser.add_argument("--version", action="version", version=f"tuplet {__version__}")
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    demo = verbs.add_parser("demo", help="train A2^LN and A2 on circular skip links and draw what they see")
    demo.add_argument("--out", default="runs/demo", help="folder for the picture and the summary (%(default)s)")
    demo.add_argument("--seed", type=int, default=0, help="of data, weights and training (%(default)s)")
    demo.set_defaults(run=_demo)

    lists = verbs.add_parser("list", help="list what there is")
    lists.add_argument("what", choices=["models"])
    lists.set_defaults(run=_list)
    return parser


def _demo(arguments: argparse.Namespace) -> int:
    from tuplet.cli.demo import demo

    return demo(arguments.out, arguments.seed)


def _list(arguments: argparse.Namespace) -> int:
    from tuplet.cli.table import align
    from tuplet.models.catalogue import CATALOGUE

    header = ("name", "tokens", "pattern", "kernel", "cost of a layer", "expressive power", "in the paper")
    rows = [
        (kind.name, kind.tokens, kind.pattern, kind.kernel, kind.cost, kind.power, kind.paper) for kind in CATALOGUE
    ]
    print(align(header, rows))
    print("\nOther orders are named alike: A1, A3^LN, A1,3. n nodes, k order, d width, D mean degree, N tuples drawn.")
    return 0
