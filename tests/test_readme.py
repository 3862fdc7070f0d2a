"""What the README says, run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tuplet.cli import _parser, main
from tuplet.experiments.outcomes import read_file
from tuplet.experiments.table import read_table
from tuplet.models.catalogue import CATALOGUE
from tuplet.models.name import GRAMMAR

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_python_blocks_run(number, capsys):
    torch._dynamo.reset()
    exec(compile(BLOCKS[number], f"README block {number}", "exec"), {})
    assert number or "torch.Size([3, 3])" in capsys.readouterr().out


def test_the_tour_is_short():
    assert sum(bool(line.strip()) for line in BLOCKS[0].splitlines()) <= 15


def test_the_table_of_models_is_the_catalogue():
    rows = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in README.splitlines()
        if line.startswith("| `A")
    ]
    kinds = [
        [kind.name, kind.tokens, kind.pattern, kind.kernel, kind.cost, kind.power, kind.paper] for kind in CATALOGUE
    ]
    assert rows == kinds


def test_the_table_of_growth_is_in_the_results():
    lines = [line.strip("| ").split(" | ") for line in README.splitlines() if line.startswith("| A")]
    rows = {row.model: row for row in read_table("complexity").rows}
    assert len(lines) == 14
    for model, *cells in lines:
        row = rows[model]
        files = [ROOT / "results" / "complexity" / row.slug / f"{run}-seed-0.json" for run in ("cpu", "cuda")]
        cpu, cuda = (read_file(path).values for path in files)
        time, memory = ([f"{values[key]:.2f}" for values in (cpu, cuda)] for key in ("time", "memory"))
        theory = row.paper["cpu-time"].text, str(row.expected["cpu-memory"])
        assert cells == [theory[0], *time, theory[1], *memory, f"{cpu['n']:,}", f"{cuda['n']:,}"]


def test_the_grammar_is_the_parsers():
    assert GRAMMAR in README


COMMANDS = re.findall(r"^    (tuplet .*?)(?:  +#.*)?$", README, flags=re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_tuplet_commands_run(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)[1:]
    if words[0] in ("train", "evaluate", "predict"):  # run in tests/cli/test_train_verbs.py, on small data
        assert _parser(words[0]).parse_args(words).run
        return
    if words == ["theory"]:
        words += ["rook"]  # all of them run in tests/theory
    assert main(words) == 0
    assert capsys.readouterr().out


def test_commands_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
    for script in re.findall(r"python (benchmarks/\S+\.py)", README):
        assert (ROOT / script).exists()
    listed = subprocess.run(
        [sys.executable, "-m", "tuplet", "list", "models"], capture_output=True, text=True, check=True
    )
    assert all(kind.name in listed.stdout for kind in CATALOGUE)


def test_importing_costs_little_more_than_torch_and_pyg():
    """No optional or slow module comes along: what tuplet adds is its own small files."""
    code = "import torch, torch_geometric, sys; before = set(sys.modules); import tuplet; print(*set(sys.modules) - before)"
    added = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    foreign = {name.split(".")[0] for name in added} - {"tuplet"} - set(sys.stdlib_module_names)
    assert not foreign & {"rich", "matplotlib", "hypothesis", "pandas", "lightning", "rdkit", "sklearn", "IPython"}
