"""Jobs: their names, their order, and what a command selects."""

import pytest

from tuplet.errors import OptionError
from tuplet.experiments.jobs import Job, select
from tuplet.experiments.table import TABLES, read_table


def test_a_name_tells_all_jobs_apart():
    for table in map(read_table, TABLES):
        jobs = [*select(table), *(select(table, epochs=3) if table.kind == "train" else [])]
        assert len({job.name for job in jobs}) == len(jobs)
    assert Job("zinc", "a2-ln", "mae", 2, "joint", 10).name == "zinc/a2-ln/mae-joint-seed-2-epochs-10"
    assert Job("zinc", "gps", "mae", 0).name == "zinc/gps/mae-seed-0"


def test_both_forms_run_where_they_differ():
    table = read_table("zinc")
    forms = {row.slug: row.forms for row in table.rows if row.model}
    assert forms["a2-ln"] == forms["a2-ngbh-plus"] == forms["as01-sn-vs"] == ("groups", "joint")
    assert forms["gps"] == forms["a2-performer"] == forms["a2-vt"] == ("",)
    assert read_table("cross-sampled").row("a1-2-ngbh").forms == ("groups", "joint")
    one = select(table, ["a2-ln", "gps"], seeds=(0,), softmax="joint")
    assert [(job.row, job.form) for job in one] == [("a2-ln", "joint"), ("gps", "")]


def test_the_first_seed_of_every_row_comes_first():
    jobs = select(read_table("zinc"))
    assert [job.seed for job in jobs] == sorted(job.seed for job in jobs)
    assert {job.seed for job in jobs} == set(range(5))
    assert {job.seed for job in select(read_table("zinc-pe"))} == set(range(4))


def test_a_seed_says_which_split():
    assert [job.options().folds for job in select(read_table("edge-csl"), ["gin"], ["csl"])] == [
        (fold,) for fold in range(5)
    ]
    assert {job.fold for job in select(read_table("webkb"), columns=["texas"])} == set(range(10))
    assert Job("edge-csl", "gin", "csl", 7).fold == 2
    assert Job("zinc", "gps", "mae", 7).fold == 0


def test_columns_that_share_a_run_make_one_job():
    jobs = select(read_table("time"), ["gps"])
    assert [job.run for job in jobs] == ["epochs"]
    assert jobs == select(read_table("time"), ["gps"], ["seconds", "parameters"])
    assert "largest" not in {job.run for job in select(read_table("scalability"))}
    assert {job.run for job in select(read_table("scalability"), columns=["largest"])} == {"largest"}


def test_the_command_of_a_job_selects_that_job():
    from tuplet.cli import _parser
    from tuplet.training.values import numbers

    for job in (Job("zinc", "a2-ln", "mae", 2, "joint", 10), Job("time", "gps", "epochs", 0)):
        said = _parser("reproduce").parse_args(job.command.split()[1:])
        chosen = select(
            read_table(said.table), said.rows, said.columns, numbers("seeds", said.seeds), said.softmax, said.epochs
        )
        assert chosen == [job]


def test_shortened_runs_keep_the_share_of_warm_up():
    assert Job("zinc", "gps", "mae", 0, epochs=10).options().warmup == 0
    assert Job("zinc", "gps", "mae", 0, epochs=100).options().warmup == 2
    assert Job("zinc", "gps", "mae", 0, epochs=10).planned()["epochs"] == 2000


def test_as_many_epochs_as_are_planned_make_the_planned_job():
    assert select(read_table("time"), ["gps"], epochs=4) == select(read_table("time"), ["gps"])
    assert [job.epochs for job in select(read_table("time"), ["gps", "a2-ln-vt"], seeds=(0,), epochs=12)] == [
        12,
        None,
        None,
    ]


def test_epochs_that_mean_nothing_are_refused():
    for epochs in (0, -3):
        with pytest.raises(OptionError, match=f"--epochs: expected a positive number; came {epochs}"):
            select(read_table("zinc"), epochs=epochs)
    for key in ("scalability", "complexity"):
        with pytest.raises(
            OptionError, match=f"--epochs: expected nothing, since the jobs of {key} train nothing; came 2"
        ):
            select(read_table(key), epochs=2)


def test_columns_and_the_jobs_behind_them_are_named_in_any_case():
    for columns in (["epochs"], ["Epochs"], ["SECONDS"]):
        assert select(read_table("time"), ["gps"], columns) == select(read_table("time"), ["gps"])
    with pytest.raises(OptionError, match=r"--columns: expected one of .*; came 'second'\. Did you mean 'seconds'"):
        select(read_table("time"), columns=["second"])


def test_rows_without_settings_are_refused():
    with pytest.raises(OptionError, match="CIN is shown from the paper"):
        select(read_table("zinc"), ["CIN"])
    with pytest.raises(OptionError, match="--softmax: expected one of groups, joint, both; came 'none'"):
        select(read_table("zinc"), softmax="none")
