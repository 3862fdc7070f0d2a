"""Preparation: the same as the transforms, once, whatever the number of processes; killed or damaged, it is made again."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch
from torch_geometric.transforms import Compose

import tuplet
from tuplet.datasets import load, parallel, prepare
from tuplet.datasets import preparation as module
from tuplet.datasets.cache import Cache
from tuplet.datasets.packed import PackedGraphs
from tuplet.datasets.parallel import in_parts
from tuplet.encodings import RWSE, Precompute
from tuplet.errors import InputError, OptionError
from tuplet.tokens import ConnectedTuples, RandomTuples
from tuplet.topology import CliqueComplex


@pytest.fixture
def task():
    return load("srg")


@pytest.fixture
def computed(monkeypatch):
    """How many parts were computed."""
    parts = []
    work = module.work

    def counted(options, part):
        parts.append(len(part["num_nodes"]))
        return work(options, part)

    monkeypatch.setattr(module, "work", counted)
    return parts


def entries(root):
    return sorted(path for path in (root / "prepared").iterdir()) if (root / "prepared").exists() else []


def same(one, other):
    return all(
        set(a.keys()) == set(b.keys())
        and all(torch.equal(a[key], b[key]) for key in a.keys() if isinstance(a[key], torch.Tensor))  # noqa: SIM118
        for a, b in zip(one.graphs, other.graphs, strict=True)
    )


def test_it_is_what_the_transforms_give(task, tmp_path):
    ready = prepare(
        task,
        encodings=["RWSE:6:8", "SPE:4:4", "EdgeRWSE:4:4"],
        complex_dim=2,
        tuples=RandomTuples(3, 40),
        root=tmp_path,
    )
    for number in (0, 33, 89):
        wanted = CliqueComplex(2)(task.graphs[number])
        wanted = Precompute(["RWSE:6:8", "SPE:4:4", "EdgeRWSE:4:4"])(wanted)
        wanted = RandomTuples(3, 40)(wanted)
        found = ready.graphs[number]
        assert set(found.keys()) == set(wanted.keys())
        for key in wanted.keys():  # noqa: SIM118
            one, other = found[key], wanted[key]
            if not isinstance(other, torch.Tensor):
                assert one == other, key
            elif other.is_floating_point():
                assert torch.allclose(one.abs(), other.abs(), atol=1e-4), key
            else:
                assert torch.equal(one, other), key
        assert found["pe_rwse_6"].dtype == torch.get_default_dtype()
    batch = Batch.from_data_list([ready.graphs[0], ready.graphs[40]])
    model = tuplet.build("AS0:1^SN", dim=8, depth=1, heads=4, encodings=["RWSE:6:8"], **task.model_options())
    assert model(batch).shape == (2, 6)
    sampled = prepare(task, tuples=ConnectedTuples(2), root=tmp_path)
    assert sampled.graphs[0].num_tuples == len(sampled.graphs[0].tuples)


def test_computed_once(task, tmp_path, computed):
    first = prepare(task, encodings=["RWSE:6:8"], root=tmp_path)
    second = prepare(task, encodings=[RWSE(6, 8)], root=tmp_path)
    assert computed == [90]
    assert same(first, second)
    prepare(task, encodings=["RWSE:6:20"], root=tmp_path)  # a width is learned: what is stored is the same
    assert computed == [90]
    prepare(task, encodings=["RWSE:7:8"], root=tmp_path)
    prepare(task, complex_dim=1, root=tmp_path)
    prepare(load("srg", seed=1), encodings=["RWSE:6:8"], root=tmp_path)
    assert computed == [90] * 4
    prepare(task, encodings=["RWSE:6:8"], root=tmp_path, force_reload=True)
    assert computed == [90] * 5
    assert len(entries(tmp_path)) == 4


def test_versions_and_precision_are_part_of_the_key(task, tmp_path, computed, monkeypatch):
    prepare(task, encodings=["RWSE:6:8"], root=tmp_path)
    monkeypatch.setattr(tuplet, "__version__", "99")
    prepare(task, encodings=["RWSE:6:8"], root=tmp_path)
    torch.set_default_dtype(torch.float64)
    try:
        wide = prepare(task, encodings=["RWSE:6:8"], root=tmp_path)
    finally:
        torch.set_default_dtype(torch.float32)
    assert wide.graphs[0]["pe_rwse_6"].dtype == torch.float64
    assert computed == [90] * 3


def test_parts_are_bounded_and_told(task, tmp_path, computed, monkeypatch):
    monkeypatch.setattr(module, "GRAPHS", 40)
    monkeypatch.setattr(module, "NODES", 500)
    steps = []
    whole = prepare(
        task, encodings=["RWSE:6:8"], root=tmp_path, progress=lambda done, total: steps.append((done, total))
    )
    assert max(computed) <= 31
    assert sum(computed) == 90
    assert [done for done, _ in steps] == torch.tensor(computed).cumsum(0).tolist()
    assert steps[-1] == (90, 90)
    monkeypatch.undo()
    assert same(whole, prepare(task, encodings=["RWSE:6:8"], root=tmp_path / "other"))


def test_other_processes_give_the_same_bits_and_errors(task, monkeypatch):
    """What a worker cannot do is met again here, so that its own error is raised and not that of a process."""
    monkeypatch.setattr(module, "GRAPHS", 20)
    monkeypatch.setattr(parallel, "ALONE", 0.0)
    task.graphs[85].edge_index[0, 0] = 99
    options = module._options(task, ["RWSE:6:8", "LapPE:4:4"], 2, ConnectedTuples(2))
    parts = list(module._parts(task.graphs))
    results = in_parts("tuplet.datasets.preparation:work", options, iter(parts), processes=2)
    for part in parts[:-1]:
        found, wanted = next(results), module.work(options, part)
        assert found.keys() == wanted.keys()
        assert all(np.array_equal(found[name], wanted[name]) for name in wanted)
    with pytest.raises(InputError, match=r"edge_index: expected node numbers 0\.\.27"):
        next(results)


def test_little_work_starts_no_processes(task, monkeypatch):
    def refuse(*_):
        raise AssertionError("a process is started")

    monkeypatch.setattr(module, "GRAPHS", 20)
    monkeypatch.setattr(parallel, "_Workers", refuse)
    options, parts = module._options(task, ["RWSE:6:8"], None, None), list(module._parts(task.graphs))
    results = list(in_parts("tuplet.datasets.preparation:work", options, iter(parts), processes=2))
    assert len(results) == len(parts) > 1
    monkeypatch.setattr(parallel, "ALONE", 0.0)
    with pytest.raises(AssertionError, match="a process is started"):
        list(in_parts("tuplet.datasets.preparation:work", options, iter(parts), processes=2))


@pytest.mark.parametrize("file", ["0.bin", "1.bin", "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_entry_is_made_again(task, tmp_path, computed, file, damage):
    first = prepare(task, encodings=["RWSE:6:8"], root=tmp_path)
    wanted = [first.graphs[number]["pe_rwse_6"] for number in range(90)]
    (entry,) = entries(tmp_path)
    path = entry / file
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content if damage == "flip" else content[:-1])
    with pytest.warns(UserWarning, match=r"is damaged .*; it is thrown away and made again"):
        again = prepare(task, encodings=["RWSE:6:8"], root=tmp_path)
    assert computed == [90, 90]
    assert all(torch.equal(again.graphs[number]["pe_rwse_6"], wanted[number]) for number in range(90))


KILLED = """
import os, signal
import tuplet.datasets.preparation as module
from tuplet.datasets import load, prepare
module.GRAPHS = 20
def die(done, total):
    if done >= 40:
        os.kill(os.getpid(), signal.SIGKILL)
prepare(load("srg"), encodings=["RWSE:6:8"], root={root!r}, progress=die)
"""


def test_killed_it_leaves_nothing_half_written(task, tmp_path):
    script = KILLED.format(root=str(tmp_path))
    environment = {**os.environ, "PYTHONPATH": str(Path(tuplet.__file__).parents[1])}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, timeout=120)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    left = entries(tmp_path)
    assert len(left) == 1
    assert left[0].name.startswith(".")
    assert left[0].name.endswith(".tmp")
    assert not (left[0] / "manifest.json").exists()
    ready = prepare(task, encodings=["RWSE:6:8"], root=tmp_path)
    wanted = Precompute(["RWSE:6:8"]).many(list(task.graphs))
    assert all(torch.equal(ready.graphs[number]["pe_rwse_6"], wanted[number]["pe_rwse_6"]) for number in range(90))
    (entry,) = entries(tmp_path)  # the leavings are swept away
    assert not entry.name.startswith(".")
    assert json.loads((entry / "manifest.json").read_text())


def test_leavings_of_the_living_stay(tmp_path, task):
    folder = tmp_path / "prepared"
    mine = folder / f".key.{socket.gethostname()}.{os.getpid()}.abc.tmp"
    elsewhere = folder / ".key.other-host.1.abc.tmp"
    for path in (mine, elsewhere):
        path.mkdir(parents=True)
    prepare(task, complex_dim=1, root=tmp_path)
    assert mine.exists()
    assert elsewhere.exists()
    os.utime(elsewhere, (0, 0))
    prepare(task, complex_dim=2, root=tmp_path)
    assert not elsewhere.exists()


def test_a_failing_part_leaves_nothing(tmp_path):
    def parts(folder):
        yield PackedGraphs.from_graphs(load("srg").graphs[:3])
        raise RuntimeError("no more")

    cache = Cache(tmp_path, "key")
    with pytest.raises(RuntimeError, match="no more"):
        cache.write(parts)
    assert list(tmp_path.iterdir()) == []
    assert cache.read() is None


def test_a_second_writer_of_the_same_entry_is_content(tmp_path):
    graphs = PackedGraphs.from_graphs(load("srg").graphs[:3])

    def parts(folder):
        Cache(tmp_path, "key").write(lambda folder: [graphs])
        yield graphs

    Cache(tmp_path, "key").write(parts)
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
    assert len(Cache(tmp_path, "key").read()) == 3


def test_a_root_that_cannot_be_written(task, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        InputError, match=r"root: expected a folder with room that can be written; came .* Name another with root="
    ):
        prepare(task, complex_dim=1, root=tmp_path / "file")


def test_disk_full(task, tmp_path, monkeypatch):
    def full(self, part):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tuplet.datasets.cache._Writer.append", full)
    with pytest.raises(InputError, match="No space left on device"):
        prepare(task, complex_dim=1, root=tmp_path)
    assert entries(tmp_path) == []


def test_as_a_pre_transform(tmp_path, computed):
    transform = Compose([CliqueComplex(2), Precompute(["RWSE:6:8"])])
    task = load("srg", root=tmp_path, pre_transform=transform)
    again = load("srg", root=tmp_path, pre_transform=transform, transform=lambda data: data)
    assert computed == [90]
    assert same(task, again)
    assert {"simplex_index_2", "pe_rwse_6"} <= set(task.graphs[0].keys())
    assert "pe_rwse_6" in prepare(again, complex_dim=1, root=tmp_path).graphs[0]  # more can be added


def test_graphs_with_a_complex_of_their_own_keep_it(tmp_path):
    explicit = load("srg", pre_transform=lambda data: CliqueComplex(1)(data))
    ready = prepare(explicit, complex_dim=3, encodings=["EdgeRWSE:4:4"], root=tmp_path)
    assert "simplex_index_2" not in ready.graphs[0]
    assert any(key.startswith("pe_") for key in ready.graphs[0].keys())  # noqa: SIM118


def test_directed_node_task(packed, tmp_path):
    task = load("webkb-texas", data=packed)
    ready = prepare(task, encodings=["RWSE:4:4"], complex_dim=2, root=tmp_path)
    assert ready.graphs[0]["pe_rwse_4"].shape == (183, 4)
    assert ready.graphs[0]["simplex_index_1"].shape[1] == 279
    assert ready.size == 183


def test_nothing_asked_is_nothing_done(task, tmp_path):
    assert prepare(task, root=tmp_path) is task
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"encodings": "RWSE:6:8"}, "encodings: expected a list"),
        ({"encodings": ["Nothing"]}, "encoding: expected one of"),
        ({"complex_dim": 0}, "complex_dim: expected an int of at least 1"),
        ({"tuples": "connected"}, "tuples: expected ConnectedTuples or RandomTuples"),
        ({"complex_dim": 1, "processes": 0}, "processes: expected an int of at least 1"),
    ],
)
def test_bad_options(task, tmp_path, options, sentence):
    with pytest.raises(OptionError, match=sentence):
        prepare(task, root=tmp_path, **options)


def test_default_root(task, monkeypatch, tmp_path):
    monkeypatch.delenv("TUPLET_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    prepare(task, complex_dim=1)
    assert len(entries(Path(tmp_path) / "tuplet")) == 1
