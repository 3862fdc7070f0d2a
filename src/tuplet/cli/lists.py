"""``tuplet list``: tables of what there is."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import fill

from tuplet.cli.table import align


def models() -> str:
    from tuplet.models.catalogue import CATALOGUE

    header = ("name", "tokens", "pattern", "kernel", "cost of a layer", "expressive power", "in the paper")
    rows = [
        (kind.name, kind.tokens, kind.pattern, kind.kernel, kind.cost, kind.power, kind.paper) for kind in CATALOGUE
    ]
    return (
        f"{align(header, rows)}\n\nOther orders and dimensions are named alike: A1, A3^LN, A1,3, AS0:3^SN.\nn nodes, k order, d width, "
        "D mean degree, N tuples drawn, S simplices, D_S neighbours of a simplex."
    )


def encodings() -> str:
    from tuplet.encodings import CATALOGUE

    header = ("short form", "of", "what", "invariant", "published in")
    rows = [(row.short, row.level, row.what, row.invariant, row.paper) for row in CATALOGUE]
    return (
        f"{align(header, rows)}\n\nA short form is a name, its sizes, and other options: SPE:37:37:functions=16.\nIn Python they "
        "are objects: tuplet.encodings.RWSE(20, 28)."
    )


def datasets() -> str:
    from tuplet.datasets import CATALOGUE

    header = ("name", "size", "task", "metric", "split", "licence", "where it comes from")
    rows = [(row.name, row.size, row.task, row.metric, row.split, row.licence, row.source) for row in CATALOGUE]
    options = [(row.name, row.options) for row in CATALOGUE if row.options]
    return f"{align(header, rows)}\n\n{align(('name', 'options (--task-option KEY=VALUE)'), options)}"


def presets() -> str:
    from tuplet.training.presets import notes
    from tuplet.training.presets import presets as known

    rows = [(dataset, model, variant or "-") for dataset, model, variant in known()]
    table = align(("data set", "model", "variant"), rows)
    return "\n\n".join([table, "* stands for every other model.", *(fill(note, 120) for note in notes())])


def tables() -> str:
    from tuplet.experiments.jobs import select
    from tuplet.experiments.table import TABLES, read_table

    rows = []
    for table in map(read_table, TABLES):
        columns = ", ".join(column.key for column in table.columns)
        rows.append((table.key, table.paper, table.title, str(len(table.rows)), str(len(select(table))), columns))
    header = ("name", "paper", "what", "rows", "jobs", "columns")
    return f"{align(header, rows, right=(3, 4))}\n\ntuplet reproduce NAME --list shows the jobs."


def tests() -> str:
    header = ("name", "colours", "a round sees, beside a token's own colour")
    rows = [
        ("1-WL", "nodes", "the colours of the neighbours (colour refinement; 1-FWL is the same)"),
        ("k-WL", "k-tuples", "for each place j the colours of the tuples that differ there"),
        ("k-FWL", "k-tuples", "for each node u the k colours of the tuples with u put at each place"),
        ("delta-k-WL", "k-tuples", "as k-WL, each tuple with whether the two nodes exchanged are adjacent"),
        ("delta-k-LWL", "k-tuples", "for each place j the colours of the tuples with a neighbour put there"),
        ("delta-k-LWL+", "k-tuples", "as delta-k-LWL, each colour with how often it occurs in the whole neighbourhood"),
        ("SWL", "simplices", "boundary, coboundary, lower and upper adjacent simplices; needs --dim"),
    ]
    return f"{align(header, rows)}\n\nk is any number: 2-WL, 3-FWL, delta-2-LWL+."


LISTS: dict[str, Callable[[], str]] = {
    "models": models,
    "datasets": datasets,
    "encodings": encodings,
    "presets": presets,
    "tables": tables,
    "tests": tests,
}
