"""The command line: listing, and errors in one sentence."""

import pytest

from tuplet import __version__
from tuplet.cli import main
from tuplet.cli.table import align
from tuplet.models import parse
from tuplet.models.catalogue import CATALOGUE


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
        assert ("virtual" in kind.pattern) == ("VT" in choices.patterns)
        assert ("dense" in kind.pattern) == (not choices.patterns)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "VERB"),
        (["dance"], "dance"),
        (["list", "planets"], "planets"),
        (["demo", "--seed", "many"], "--seed"),
    ],
)
def test_errors_are_one_sentence(capsys, arguments, words):
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("tuplet: ")
    assert words in line


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
