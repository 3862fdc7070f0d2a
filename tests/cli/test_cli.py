"""The command line: listing, and errors in one sentence."""

import json
from dataclasses import replace

import pytest

from tuplet import __version__
from tuplet.cli import main
from tuplet.cli.table import align
from tuplet.encodings import KNOWN
from tuplet.models import parse
from tuplet.models.catalogue import CATALOGUE
from tuplet.theory import Result, check_named


def test_list_models_prints_every_row(capsys):
    assert main(["list", "models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for kind, line in zip(CATALOGUE, lines[2:], strict=False):
        assert line.split()[0] == kind.name
        for cell in (kind.tokens, kind.pattern, kind.kernel, kind.cost, kind.power, kind.paper):
            assert cell in line


def test_catalogue_names_are_names():
    names = [kind.name for kind in CATALOGUE]
    assert len(set(names)) == len(names)
    for kind in CATALOGUE:
        choices = parse(kind.name)
        assert str(choices) == kind.name
        assert kind.kernel == {"performer": "FAVOR+", "linear": "elu + 1", "relu": "ReLU"}.get(
            choices.kernel, "softmax"
        )
        assert ("virtual" in kind.pattern) == choices.virtual
        assert ("dense" in kind.pattern) == (not choices.patterns)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "VERB"),
        (["dance"], "dance"),
        (["list", "planets"], "planets"),
        (["demo", "--seed", "many"], "--seed"),
        (["wl", "5-LW", "Ch", "Cs"], "5-LW"),
        (["wl", "SWL", "Ch", "Cs"], "dim"),
        (["wl", "1-WL", "nowhere.g6"], "nowhere.g6"),
        (["wl", "1-WL", "Ch", "Cs", "Cl"], "one file or two graphs"),
        (["expressivity", "B7"], "B7"),
        (["expressivity", "A1", "--set", "degree"], "key=value"),
        (["expressivity", "A1", "--set", "degre=true"], "degree"),
        (["theory", "riemann"], "riemann"),
        (["theory", "rook", "--jobs", "0"], "--jobs"),
    ],
)
def test_errors_are_one_sentence(capsys, arguments, words):
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("tuplet: ")
    assert words in printed.err
    assert "Traceback" not in printed.err


def test_wl_compares_two_graphs(capsys):
    assert main(["wl", "1-WL", "Ch", "Cs"]) == 0
    assert "1-WL separates the two graphs" in capsys.readouterr().out
    assert main(["wl", "2-WL", "EhEG", "EwCW"]) == 0  # C6 and two triangles
    printed = capsys.readouterr().out
    assert "2-WL does not separate the two graphs" in printed
    assert "stable after" in printed
    assert main(["wl", "SWL", "EhEG", "EwCW", "--dim", "2"]) == 0
    assert "SWL separates" in capsys.readouterr().out


def test_wl_sorts_a_file_into_classes(capsys, tmp_path):
    path = tmp_path / "graphs.g6"
    path.write_text("Ch\nCs\nEhEG\nEwCW\nCh\n")
    assert main(["wl", "1-WL", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1-WL: 5 graph(s) in 3 class(es)"
    assert [line.split(maxsplit=2)[1:] for line in lines[3:6]] == [["2", "0, 4"], ["1", "1"], ["2", "2, 3"]]
    assert main(["wl", "1-WL", str(path), "Ch"]) == 2
    assert "5 in" in capsys.readouterr().err


def test_wl_stops_after_a_number_of_rounds(capsys):
    assert main(["wl", "1-WL", "Ch", "Cs", "--rounds", "0"]) == 0
    printed = capsys.readouterr().out
    assert "does not separate" in printed
    assert "stopped after 0 round(s)" in printed


def test_wl_reads_directions_and_labels(capsys, tmp_path):
    into, out = tmp_path / "into.txt", tmp_path / "out.txt"
    into.write_text("b a\nc a\n")
    out.write_text("a b\na c\n")
    assert main(["wl", "1-WL", str(into), str(out)]) == 0
    assert "does not separate" in capsys.readouterr().out
    assert main(["wl", "1-WL", str(into), str(out), "--directed"]) == 0
    assert "1-WL separates" in capsys.readouterr().out
    end, middle = tmp_path / "end.txt", tmp_path / "middle.txt"
    end.write_text("a b\na c\na = 0\nb = 1\nc = 0\n")
    middle.write_text("a b\na c\na = 1\nb = 0\nc = 0\n")
    assert main(["wl", "1-WL", str(end), str(middle)]) == 0
    assert "1-WL separates" in capsys.readouterr().out
    assert main(["wl", "1-WL", str(end), str(out)]) == 2
    assert "x: expected in every graph" in capsys.readouterr().err


def test_expressivity_prints_the_table_and_the_threshold(capsys, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("Ch\tCs\ttrees\nEhEG\tEwCW\tregular\n")
    assert main(["expressivity", "A2^LN", str(path), "--draws", "2"]) == 0
    printed = capsys.readouterr().out
    assert "delta-2-LWL separates" in printed
    assert [line.split() for line in printed.splitlines()[2:4]] == [
        ["trees", "1", "1", "1"],
        ["regular", "1", "1", "1"],
    ]
    assert "Contradictions with theory: none" in printed
    assert main(["expressivity", "A1^LN", str(path), "--set", "degree=true", "--draws", "1"]) == 0
    assert main(["expressivity", "A2+index", str(path), "--draws", "1"]) == 0
    assert "no test" in capsys.readouterr().out
    assert main(["expressivity", "GIN", str(path), "--draws", "1"]) == 0
    assert "1-WL is an upper bound, and theory says that random weights reach it" in capsys.readouterr().out
    assert main(["expressivity", "GAT", str(path), "--draws", "1"]) == 0
    assert "1-WL is an upper bound; GAT misses 1 pair(s)" in capsys.readouterr().out


def test_theory_prints_a_table_or_json(capsys):
    assert main(["theory", "index-relu", "match-m", "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "2 of 2 checks passed" in printed
    assert "Theorem 3.3" in printed
    assert main(["theory", "index-relu", "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert report["name"] == "index-relu"
    assert report["passed"] is True
    assert report["must"] > 0


def test_theory_fails_when_a_check_does(capsys, monkeypatch):
    broken = replace(check_named("rook"), run=lambda mutation: Result(1, 1, 1.0, ("it broke",)))
    monkeypatch.setattr("tuplet.cli.theory.check_named", lambda name: broken)
    assert main(["theory", "rook"]) == 1
    printed = capsys.readouterr().out
    assert "CHECK FAILED" in printed
    assert "it broke" in printed


def test_list_encodings(capsys):
    assert main(["list", "encodings"]) == 0
    printed = capsys.readouterr().out
    for name in KNOWN:
        assert f"\n{name}" in printed


def test_list_tests(capsys):
    assert main(["list", "tests"]) == 0
    assert "delta-k-LWL+" in capsys.readouterr().out


def test_demo_refuses_a_folder_that_cannot_be(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file" / "demo")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--out: cannot make the folder" in line


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert __version__ in capsys.readouterr().out


def test_align():
    text = align(("name", "n"), [("a", "1"), ("long", "10")], right=[1])
    assert text.splitlines() == ["name   n", "----  --", "a      1", "long  10"]


@pytest.mark.parametrize("setting", ["relation=none", "norm=none"])
def test_a_word_that_an_option_knows_is_that_word(setting):
    from tuplet.cli.graphs import options_of

    name, word = setting.split("=")
    assert options_of([setting, "dim=16", "softmax=none"]) == {name: word, "dim": 16, "softmax": None}
