"""Tables from result files: text, CSV, Markdown, the page and its pictures; and the commands that make them."""

import csv
import io
import re
import subprocess
import sys
import warnings
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tuplet.cli import main
from tuplet.errors import MissingExtraError
from tuplet.experiments import page as page_module
from tuplet.experiments.comparison import HEADER, Line
from tuplet.experiments.jobs import Job, select
from tuplet.experiments.outcomes import Outcome, Places
from tuplet.experiments.page import to_html
from tuplet.experiments.plots import bars, curves, growth
from tuplet.experiments.render import report_on, to_csv, to_markdown
from tuplet.experiments.table import TABLES, read_table

ABOUT = {"device": "cpu", "git": {"commit": "0123456789", "changed": False}}


def pretend(places, key, **how):
    """Results of all jobs of a table, near the paper's numbers."""
    for job in select(read_table(key), **how):
        _, row, column = job.described()
        published = row.paper.get(column.key)
        value = (published.mean if published else 1.0) / column.scale * (1 + 0.01 * job.seed)
        values = {"test": value, "fits": True, "epochs": 8, "planned": 8, "parameters": 5, "seconds_per_epoch": 1.5}
        curve = {"epoch": [2, 8], "train_loss": [1.0, 0.5], "val": [2 * value, value]}
        if job.described()[0].kind == "growth":
            values |= {"time": 2.0, "memory": 1.0}
            curve = {"n": [8, 16], "seconds": [0.1, 0.4], "bytes": [100, 200]}
        Outcome(job, True, values, curve, job.options().plain(), {**ABOUT, "command": job.command}).write(places)


@pytest.fixture
def places(tmp_path):
    return Places(tmp_path / "results", tmp_path / "work")


def test_every_row_of_every_table_is_in_every_form(places):
    reports = report_on(places.results)
    listed = list(csv.DictReader(io.StringIO(to_csv(reports))))
    markdown, html = to_markdown(reports), to_html(reports)
    for key in TABLES:
        table = read_table(key)
        assert f'id="{key}"' in html
        assert f"`tuplet reproduce {key}`" in markdown
        for row in table.rows:
            assert {line["column"] for line in listed if line["table"] == key and line["model"] == row.name} >= set(
                row.paper
            )
            assert f"| {row.name} |" in markdown
            assert f">{row.name}</td>" in html


def test_numbers_verdicts_and_origins_are_shown(places):
    pretend(places, "edge-csl", rows=["gin", "a2-ln"], columns=["csl"])
    (report,) = report_on(places.results, ["edge-csl"])
    lines = [line for line in csv.DictReader(io.StringIO(to_csv([report]))) if line["runs"]]
    assert [(line["model"], line["softmax"], line["runs"]) for line in lines] == [
        ("GIN", "", "5"),
        ("A2^LN", "groups", "5"),
        ("A2^LN", "joint", "5"),
    ]
    assert lines[0]["ours"] == "10.20 ± 0.16"
    assert lines[0]["verdict"] == "better by 0.20, no deviation"
    html = to_html([report])
    assert "10.20 ± 0.16" in html
    assert 'class="better"' in html
    assert html.count("tuplet reproduce edge-csl --rows a2-ln --columns csl") == 10
    assert "012345678" in html
    assert html.count("<svg") == 2  # bars and curves


def test_the_tables_that_are_kept_are_those_of_the_results_that_are_kept():
    results = Path(__file__).parents[2] / "results"
    with warnings.catch_warnings(action="error"):
        reports = report_on(results)
    assert (results / "report.md").read_text(encoding="utf-8") == to_markdown(reports), "run `tuplet report`"
    kept = len(list(results.rglob("*.json")))
    assert sum(len(report.outcomes) for report in reports) == kept, "every result is read"


def test_results_of_other_settings_are_no_further_runs_of_the_same(places):
    chosen = {"rows": ["gin"], "columns": ["csl"], "seeds": (0, 1, 2)}
    pretend(places, "edge-csl", **chosen)
    changed = places.result(select(read_table("edge-csl"), **chosen)[1])
    changed.write_text(changed.read_text().replace('"lr": 0.001', '"lr": 0.002'))
    (report,) = report_on(places.results, ["edge-csl"])
    lines = [line for line in csv.DictReader(io.StringIO(to_csv([report]))) if line["runs"]]
    assert [(line["ours"], line["runs"]) for line in lines] == [("10.10 ± 0.14", "2"), ("10.10", "1, lr = 0.002")]
    assert lines[1]["verdict"] == "other settings; better by 0.10, no deviation"
    html = to_html([report])
    assert "ours (other settings)" in html
    assert html.count('class="better"') == 2


def test_a_copy_of_a_result_is_no_further_run(places):
    pretend(places, "edge-csl", rows=["gin"], columns=["csl"], seeds=(0,))
    path = places.result(Job("edge-csl", "gin", "csl", 0))
    copy = path.with_name("csl-seed-0 (copy).json")
    copy.write_bytes(path.read_bytes())
    expected = r"left out\. .*\(copy\)\.json: expected the result of the job that it is called after; came that of edge-csl/gin/"
    with pytest.warns(UserWarning, match=expected):
        (report,) = report_on(places.results, ["edge-csl"])
    assert [outcome.job.seed for outcome in report.outcomes] == [0]


@pytest.mark.parametrize("content", ["[]", '{"table": "comp', '{"table": "complexity"}', "null"])
def test_a_damaged_result_hides_no_other(content, places, capsys):
    pretend(places, "complexity", columns=["cpu"])
    damaged = places.result(Job("complexity", "a3", "cpu", 0))
    damaged.write_text(content)
    assert main(["report", "complexity", "--results", str(places.results)]) == 0
    told = capsys.readouterr()
    assert f"a result is left out. {damaged}: expected the result of a job; came something else" in told.err
    assert "1 tables from 21 results" in told.out


def test_a_result_whose_row_or_column_is_gone_hides_no_other(places, capsys):
    pretend(places, "complexity", rows=["a2"], columns=["cpu"])
    for gone in (Job("complexity", "a9", "cpu", 0), Job("complexity", "a2", "tpu", 0)):
        Outcome(gone, True, {"time": 1.0}, {"n": [1, 2], "seconds": [1, 2], "bytes": [1, 2]}).write(places)
    assert main(["report", "complexity", "--results", str(places.results)]) == 0
    told = capsys.readouterr()
    assert told.err.count("expected a row and a column that the table has") == 2
    assert "1 tables from 1 results" in told.out


def test_facts_of_several_devices_are_not_mixed():
    row, column = read_table("edge-csl").row("gin"), read_table("edge-csl").column("csl")
    devices = [("NVIDIA H200", 1.0), ("cpu", 9.0), ("NVIDIA H200", 3.0), ("NVIDIA H200", 4.0)]
    outcomes = [
        Outcome(
            Job("edge-csl", "gin", "csl", seed),
            True,
            {"test": 0.1, "seconds_per_epoch": seconds},
            about={"device": device},
        )
        for seed, (device, seconds) in enumerate(devices)
    ]
    cells = dict(zip(HEADER, Line(row, column, outcomes=tuple(outcomes)).cells(), strict=True))
    assert (cells["s/epoch"], cells["device"]) == ("3", "H200, cpu")


class Strict(HTMLParser):
    """Every element is closed, and nothing is loaded from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.outside = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "br", "!doctype"):
            self.open.append(tag)
        self.outside += [value for name, value in attributes if name in ("src", "href") and not value.startswith("#")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(places):
    pretend(places, "webkb")
    pretend(places, "complexity", columns=["cpu"])
    pretend(places, "scalability")
    html = to_html(report_on(places.results))
    parser = Strict()
    parser.feed(html)
    assert parser.open == []
    assert parser.outside == []
    assert not re.search(r"url\((?!#)|@import|<script", html)


def test_the_page_does_without_matplotlib(places, monkeypatch):
    def missing(*_):
        raise MissingExtraError("matplotlib is not installed")

    pretend(places, "webkb", columns=["texas"])
    monkeypatch.setattr(page_module, "require", missing)
    html = to_html(report_on(places.results, ["webkb"]))
    assert "No pictures: matplotlib is not installed" in html
    assert "<svg" not in html
    assert "76.84 ± 1.66" in html


def test_pictures_are_the_same_every_time_and_none_without_results(places):
    (empty,) = report_on(places.results, ["webkb"])
    assert bars("Texas", empty.lines["texas"]) is curves("Texas", empty.lines["texas"]) is growth("CPU", []) is None
    pretend(places, "webkb", columns=["texas"], seeds=(0, 1))
    (report,) = report_on(places.results, ["webkb"])
    for draw in (bars, curves):
        picture = draw("Texas", report.lines["texas"])
        assert picture == draw("Texas", report.lines["texas"])
        assert "AS0:1-dense+attn.bias" in picture


def test_shortened_runs_are_marked_in_pictures(places):
    pretend(places, "webkb", columns=["texas"], rows=["as01-dense-bias"], seeds=(0,), epochs=3)
    (report,) = report_on(places.results, ["webkb"])
    assert "(shortened)" in bars("Texas", report.lines["texas"])
    assert "(shortened)" in curves("Texas", report.lines["texas"])


def test_numbers_in_pictures_are_whole():
    row, column = read_table("counting").row("a2-ln"), read_table("counting").column("triangle")
    done = Outcome(Job("counting", "a2-ln", "triangle", 0, "joint"), True, {"test": 0.0021})
    picture = bars("Triangle", [Line(row, column, "joint", outcomes=(done,))])
    assert {">0.002<", ">0.004<", ">0.016<"} <= set(re.findall(r">[\d.]+<", picture))
    assert not re.search(r'="[^"]*\d\.\d{3}', picture), "coordinates need no more than two digits"


def test_a_run_that_stopped_in_its_first_epoch_has_no_curve(places):
    chosen = {"rows": ["as01-dense-bias"], "columns": ["texas"]}
    pretend(places, "webkb", **chosen, seeds=(0,))
    (job,) = select(read_table("webkb"), **chosen, seeds=(1,))
    values = {"epochs": 0, "planned": 8}
    Outcome(job, False, values, {}, job.options().plain(), {**ABOUT, "command": job.command}).write(places)
    (report,) = report_on(places.results, ["webkb"])
    assert to_html([report]).count("<svg") == 2
    assert "1, 1 unfinished" in to_markdown([report])


def test_reproduce_runs_lists_skips_and_reports(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["reproduce", "edge-csl", "--rows", "GIN", "--columns", "csl", "--seeds", "0", "--epochs", "1"]
    assert main([*words, "--list"]) == 0
    assert "edge-csl/gin/csl-seed-0-epochs-1  to do" in capsys.readouterr().out
    assert main([*words, "--budget", "5"]) == 0
    out = capsys.readouterr().out
    assert "1 jobs, 0 done before" in out
    assert "[1 of 1] edge-csl/gin/csl-seed-0-epochs-1: 10.00" in out
    assert "1, 1 of 200 epochs" in out
    assert (tmp_path / "results" / "edge-csl" / "gin" / "csl-seed-0-epochs-1.json").is_file()
    assert main([*words, "--list"]) == 0
    assert "1 jobs, 1 done" in capsys.readouterr().out
    assert main(words) == 0
    assert "1 jobs, 1 done before" in capsys.readouterr().out
    assert main(["report"]) == 0
    for ending in ("html", "md", "csv", "txt"):
        assert "A2^LN+LapPE" in (tmp_path / "results" / f"report.{ending}").read_text()
    assert main(["report", "edge-csl", "--out", "page.html"]) == 0
    assert "Table 3" not in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    "words, expected",
    [
        (["reproduce", "edge-cls"], "Did you mean 'edge-csl'?"),
        (["reproduce", "zinc", "--rows", "A2^LNN"], "Did you mean 'a2^ln'?"),
        (["reproduce", "zinc", "--jobs", "0"], "--jobs, --budget: expected positive numbers"),
        (["reproduce", "zinc", "--budget", "nan"], "--jobs, --budget: expected positive numbers"),
        (["reproduce", "zinc", "--epochs", "0"], "--epochs: expected a positive number"),
        (["reproduce", "zinc", "--seeds", "x"], "--seeds: expected numbers such as 0-4"),
        (["report", "--results", "nowhere"], "--results: expected a folder of results"),
        (["report", "--results", ".", "--out", "page.pdf"], "--out: expected a file that ends in .html"),
    ],
)
def test_mistakes_are_named(words, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert expected in capsys.readouterr().err


def test_a_failed_job_is_told_and_ends_with_an_error_code(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TUPLET_DATA", raising=False)
    assert main(["reproduce", "zinc", "--rows", "gps", "--seeds", "0", "--root", "root"]) == 1
    assert "failed: zinc/gps/mae-seed-0: InputError" in capsys.readouterr().out


def test_list_tables(capsys):
    assert main(["list", "tables"]) == 0
    out = capsys.readouterr().out
    assert all(key in out for key in TABLES)


WITHOUT = """
import importlib, sys
LACKING, real = {"matplotlib", "rdkit", "jsonargparse", "rich", "tensorboard"}, importlib.import_module
def import_module(name, package=None):
    if name.split(".")[0] in LACKING:
        raise ImportError(name)
    return real(name, package)
importlib.import_module = import_module  # how tuplet imports what is optional
from tuplet.cli import main
assert not LACKING & set(sys.modules)
sys.exit(main("reproduce edge-csl --rows gin --columns csl --seeds 0 --epochs 1".split()))
"""


def test_reproduce_needs_no_pictures_no_rdkit_and_no_parser_of_others(tmp_path):
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10.00" in done.stdout
