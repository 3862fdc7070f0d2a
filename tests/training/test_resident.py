"""Batches of fixed shapes from a data set on the device: they train a model as the graphs themselves do."""

from dataclasses import replace

import networkx as nx
import pytest
import torch
from training_cases import links, sizes

pytest.importorskip("triton")

import tuplet
from tuplet.encodings import LapPE
from tuplet.errors import TooLargeError
from tuplet.graphs.door import as_data
from tuplet.kernels import Lists
from tuplet.tokens.features import FIRST_EDGE
from tuplet.training import TrainOptions
from tuplet.training import loop as loop_module
from tuplet.training import resident as resident_module
from tuplet.training.keeper import Keeper
from tuplet.training.loop import Loop
from tuplet.training.objective import Objective
from tuplet.training.parallel import make_fabric
from tuplet.training.recorded import Recorder, _portions
from tuplet.training.resident import Resident
from tuplet.training.runs import make_model
from tuplet.training.segments import Segments

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
RWSE, EDGES, HODGE = "RWSE:3:4", "EdgeRWSE:4:3", "HodgeRW:3:4"
CASES = [
    ("A2^LN+VT", {}),
    ("A2^LN+VT", {"softmax": "joint", "first_norm": True}),
    ("A2^LN+VT", {"pool_over": "nodes", "pool": "add"}),
    ("A2^LN+VT", {"softmax": "joint", "edge_relation": True, "relation": "reweight"}),
    ("A2^Ngbh+", {"directed": True, "edge_relation": True}),
    ("A1,2^Ngbh", {"softmax": "joint"}),
    ("A1^Ngbh+", {"directed": True, "degree": True}),
    ("A1,2^Ngbh", {"encodings": [RWSE, EDGES], "first_norm": True}),
    ("A2^LN", {"encodings": [HODGE, "RRWP:3:4"]}),
    ("A2^LN", {"encodings": ["SPD:2:4", "RD:4", "DEG:3:4"], "degree": True}),
    ("A2^LN", {"encodings": [LapPE(3, 4, flip=False), RWSE]}),
    ("AS0:1^SN", {"encodings": [LapPE(3, 4, model="mlp", flip=False)]}),
    ("AS0:1^SN", {}),
    ("AS0:1^SN+VS", {"encodings": [EDGES, "RRWP:3:4"], "first_norm": True}),
    ("AS0:2^SN", {"softmax": "groups", "heads": 4, "pool_over": "nodes", "degree": True}),
    ("AS0:2^SN", {"directed": True, "degree": True}),
    ("AS0:1^VS", {"encodings": [HODGE]}),
    ("AS1^SN", {"truncate": True}),
    ("AS1^SN", {"softmax": "groups", "heads": 4, "pool": "max"}),
    ("AS0:1", {}),
    ("AS0:2+bias", {"laplacian": "block"}),
    ("A2^LN+VT", {"task": "edge", "encodings": [LapPE(3, 4, flip=False)]}),
    ("A2^Ngbh+", {"task": "edge", "directed": True}),
    ("A1", {"task": "edge"}),
    ("AS0:1^SN", {"task": "edge"}),
    ("AS0:2^SN+VS", {"task": "edge", "directed": True}),
]
MEMBERS = [3, 4, 6, 5]


def labelled(graph):
    data = as_data(graph)
    u, v = data.edge_index
    data.x, data.edge_attr = torch.arange(data.num_nodes) % 3, (u + v) % 2
    ends = torch.cartesian_prod(*[torch.arange(data.num_nodes)] * 2).t()
    data.edge_label_index = ends[:, (ends[0] + 2 * ends[1]) % 3 > 0]  # of one node none
    return data


def graphs(directed=False):
    """Random ones, one node, no edges, a clique; some edges go one way only for a directed model."""
    random = [nx.gnm_random_graph(3 + i, 2 + 2 * i, seed=i) for i in range(4)]
    every = [*random, nx.empty_graph(1), nx.empty_graph(4), nx.complete_graph(4)]
    if directed:
        every = [graph.to_directed() for graph in every]
        for graph in every:
            graph.remove_edges_from([(u, v) for u, v in graph.edges if u > v and (u + v) % 3])
    return [labelled(graph) for graph in every]


def build(name, **options):
    small = {"dim": 8, "heads": 2, "depth": 2, "node_types": 3, "edge_types": 2, "encodings": [RWSE]}
    if "V" in name:
        small["virtual"] = 2
    return tuplet.build(name, **small | {"backend": "triton"} | options)


def rows_of(model, data, members):
    """How many outputs a batch has."""
    return len(members) if model.config.task == "graph" else sum(data[m].edge_label_index.shape[1] for m in members)


def trained(model, state, batch, rows):
    """Outputs, gradients and buffers of a training step from a given state."""
    model.load_state_dict(state)
    model.train().zero_grad()
    outputs = model(batch)[:rows]
    (outputs * torch.linspace(-1, 2, rows, device=DEVICE)[:, None]).sum().backward()
    parameters = dict(model.named_parameters())
    gradients = {key: torch.zeros_like(p) if p.grad is None else p.grad for key, p in parameters.items()}
    # the plain batch norm counts batches, which nothing reads
    buffers = {key: value.clone() for key, value in model.named_buffers() if "num_batches" not in key}
    return {"outputs": outputs.detach(), **gradients, **buffers}


@pytest.mark.filterwarnings("ignore:.*have no token")
@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_batch_with_padding_trains_as_its_graphs_do(name, options):
    model, data = build(name, **options).to(DEVICE), graphs(options.get("directed", False))
    assert Resident.fits(model, data)
    resident = Resident(model, data)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    padded = resident.prepared(torch.tensor(MEMBERS, device=DEVICE), resident.room(MEMBERS))
    rows = rows_of(model, data, MEMBERS)
    found = trained(model, state, padded, rows)
    expected = trained(model, state, [data[member] for member in MEMBERS], rows)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, atol=2e-5, rtol=1e-4, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.filterwarnings("ignore:.*have no token")
@pytest.mark.parametrize("name", ["AS0:1^SN", "AS0:2^SN", "AS1^SN"])
@pytest.mark.parametrize("directed", [False, True])
def test_lists_are_kept_that_a_sort_would_give(name, directed):
    model, data = build(name, directed=directed).to(DEVICE), graphs(directed)
    resident = Resident(model, data)
    tokens = resident.prepared(torch.tensor(MEMBERS, device=DEVICE), resident.room(MEMBERS)).queries
    graph, counts = tokens.graph, tokens.complex.counts
    live = [owner < graph.num_graphs - 1 for owner in tokens.complex.graph_of]
    pairs = [(tokens.edge_lists, [FIRST_EDGE + graph.num_edges] * 2, live[1])]
    pairs += [(lists, [counts[k - 1]] * (k + 1), live[k]) for k, lists in enumerate(tokens.face_lists, start=1)]
    for lists, many, there in pairs:
        for own, count in zip(lists, many, strict=True):
            wanted = Lists.sort(own.rows, count, own.special)
            assert all(part.is_contiguous() for part in (own.rows, own.order, own.begin, own.end))
            for row in range(count):
                found, right = (one.order[one.begin[row] : one.end[row]].tolist() for one in (own, wanted))
                assert found == [token for token in right if there[token]]
    assert torch.equal(tokens.by_graph, torch.argsort(tokens.graph_of_token, stable=True))


@pytest.mark.skipif(DEVICE.type == "cuda", reason="a recording says the same")
@pytest.mark.parametrize(("name", "options"), CASES)
def test_nothing_is_read_from_or_sent_by_the_host(name, options, monkeypatch):
    """Tensors without data have no numbers to read and refuse shapes that depend on them; what sends numbers is forbidden."""
    model, data = build(name, **options), graphs(options.get("directed", False))
    resident = Resident(model, data)
    room = resident.room(MEMBERS)
    for level in resident.levels.values():
        level.counts, level.first = level.counts.to("meta"), level.first.to("meta")
        level.columns = {key: rows.to("meta") for key, rows in level.columns.items()}
    model.to("meta")
    ids = torch.tensor(MEMBERS).to("meta")

    def refuse(*_, **__):
        raise AssertionError("numbers from the host")

    def set_item(tensor, index, value, original=torch.Tensor.__setitem__):
        assert not isinstance(index, torch.Tensor) or isinstance(value, torch.Tensor), "a number from the host"
        original(tensor, index, value)

    for owner, attribute in ((torch, "tensor"), (torch, "as_tensor"), (torch.Tensor, "new_tensor")):
        monkeypatch.setattr(owner, attribute, refuse)
    monkeypatch.setattr(torch.Tensor, "__setitem__", set_item)
    prepared = resident.prepared(ids, room)
    _, x, y, e = model.embed(prepared)
    x, _, _ = model.run_layers(x, y, e, prepared, model.config.depth)
    assert x.device.type == "meta"
    x.sum().backward()
    assert resident.targets(ids, room).device.type == "meta"


@pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:.*have no token")
@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_recorded_batch_is_replayed_for_other_graphs(name, options):
    model, data = build(name, **options).to(DEVICE).eval(), graphs(options.get("directed", False))
    resident = Resident(model, data)
    others = [2, 0, 4, 6]
    room = max(resident.room(MEMBERS), resident.room(others), key=lambda room: (room.kept, room.tuples, room.simplices))
    ids = torch.tensor(MEMBERS, device=DEVICE)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        model(resident.prepared(ids, room))
    torch.cuda.current_stream().wait_stream(side)
    recording = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(recording):
        outputs = model(resident.prepared(ids, room))
    for members in (MEMBERS, others):
        ids.copy_(torch.tensor(members))
        recording.replay()
        with torch.no_grad():
            expected = model([data[member] for member in members])
        torch.testing.assert_close(outputs[: len(expected)], expected, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("A2", {"task": "node"}),
        ("A3", {"task": "edge"}),
        ("AS1^SN", {"task": "edge"}),
        ("A2+basis", {}),
        ("A2(connected)", {}),
        ("AS0:1+bias", {"phi": "identity"}),
        ("A2^LN", {"encodings": [LapPE("all")]}),
        ("AS0:1^SN", {"backend": "torch"}),
    ],
)
def test_what_does_not_fit_is_known_beforehand(name, options):
    assert not Resident.fits(build(name, **options).to(DEVICE), graphs())


def test_targets_of_a_batch_are_found_among_all():
    """Those of the graphs in their order, and the missing one for padding."""
    model, data = build("A2^LN", task="edge").to(DEVICE), graphs()
    resident = Resident(model, data)
    counts = [graph.edge_label_index.shape[1] for graph in data]
    first = torch.tensor([0, *counts]).cumsum(0).tolist()
    expected = [row for member in MEMBERS for row in range(first[member], first[member + 1])]
    room = resident.room(MEMBERS)
    found = resident.targets(torch.tensor(MEMBERS, device=DEVICE), room).tolist()
    assert found == expected + [first[-1]] * (room.queries - len(expected))


@pytest.mark.parametrize("classes", [False, True])
def test_padding_has_no_loss(classes):
    task = links(9)
    if classes:
        for graph in task.graphs:
            graph.edge_label = graph.edge_label[:, 0].long()
        task = replace(task, kind="classification", outputs=2, loss="cross_entropy")
    model = tuplet.build("AS0:1^SN", dim=8, heads=2, backend="triton", **task.model_options()).to(DEVICE).eval()
    resident, objective, ids = (
        Resident(model, task.graphs),
        Objective(task, DEVICE),
        torch.tensor(MEMBERS, device=DEVICE),
    )
    room = resident.room(MEMBERS)
    rows = resident.targets(ids, room)
    found = objective.loss(model(resident.prepared(ids, room)), rows)
    expected = objective.loss(model([task.graphs[member] for member in MEMBERS]), objective.rows(MEMBERS))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert objective.count(rows.cpu()) == objective.count(objective.rows(MEMBERS))


@pytest.mark.parametrize(("make", "softmax"), [(links, "groups"), (sizes, "groups"), (sizes, "joint")])
def test_what_is_recorded_is_a_step_of_the_plain_loop(make, softmax, monkeypatch):
    """The function that a recording runs, run once: weights, running statistics and the sum of losses after it.

    By plain descent: Adam makes full steps of gradients that are zero but for rounding.
    """
    monkeypatch.setattr(loop_module, "make_recorder", lambda *arguments: None)
    monkeypatch.setattr(loop_module, "make_optimiser", lambda model, *_: torch.optim.SGD(model.parameters(), 0.1))
    task, settings = make(9), {"dim": 8, "heads": 2, "depth": 2, "virtual": 2, "backend": "triton", "softmax": softmax}
    options = TrainOptions(model="A2^LN+VT", model_options=settings, clip=0.1)
    fabric, states = make_fabric(options), []
    for recorded in (True, False):
        torch.manual_seed(0)
        model = make_model(task, options)
        loop = Loop(model, Objective(task, fabric.device), options, 0, 0, fabric, Keeper(), None, None)
        loop.begin()
        if recorded:
            recorder = object.__new__(Recorder)
            resident, steps = Resident(model, task.graphs), [part.step for part in _portions(loop.state.optimiser)]
            known = {"resident": resident, "objective": loop.objective, "options": options, "fabric": fabric}
            known |= {
                "state": loop.state,
                "model": model,
                "updates": steps,
                "valid": loop.objective.valid.to(fabric.device),
            }
            vars(recorder).update(known)
            recorder._learn(recorder._together(torch.tensor(MEMBERS, device=fabric.device), resident.room(MEMBERS)))
        else:
            loop.step([MEMBERS])
        states.append({key: value for key, value in model.state_dict().items() if "num_batches" not in key})
        states[-1]["loss"] = loop.state.loss
    for key, value in states[1].items():
        torch.testing.assert_close(
            states[0][key], value, atol=2e-5, rtol=1e-4, msg=lambda text, key=key: f"{key}: {text}"
        )


def test_loops_do_not_fit():
    model = build("AS0:1^SN").to(DEVICE)
    loop = labelled(nx.Graph([(0, 1), (1, 1)]))
    assert Resident.fits(model, graphs())
    assert not Resident.fits(model, [*graphs(), loop])


def test_graphs_are_read_in_portions(monkeypatch):
    model = build("AS0:1^SN", encodings=[RWSE, EDGES]).to(DEVICE)
    whole = Resident(model, graphs())
    monkeypatch.setattr(resident_module, "PORTION", 4)
    parts = Resident(model, graphs())
    assert parts.levels.keys() == whole.levels.keys()
    for level, segments in whole.levels.items():
        other = parts.levels[level]
        assert torch.equal(other.counts, segments.counts)
        assert other.columns.keys() == segments.columns.keys()
        for column, rows in segments.columns.items():
            torch.testing.assert_close(other.columns[column], rows)


def test_a_data_set_that_takes_too_much_memory_is_refused(monkeypatch):
    monkeypatch.setattr(resident_module, "available_bytes", lambda device: 1000)
    with pytest.raises(TooLargeError, match="data set of about"):
        Resident(build("AS0:1^SN").to(DEVICE), graphs())


@pytest.mark.parametrize("name", ["A2^LN", "AS0:1^SN"])
def test_few_rooms_hold_every_batch(name):
    sizes = torch.randint(10, 30, (200,), generator=torch.Generator().manual_seed(1)).tolist()
    resident = Resident(build(name).to(DEVICE), [labelled(nx.cycle_graph(n)) for n in sizes])
    rooms = set()
    for seed in range(40):
        members = torch.randperm(200, generator=torch.Generator().manual_seed(seed))[:64].tolist()
        room = resident.room(members)
        rooms.add(room)
        nodes = sum(sizes[member] for member in members)
        tokens = sum(sizes[member] ** 2 for member in members) if name == "A2^LN" else nodes
        assert room.tuples[1] > nodes
        assert room.edges > 2 * nodes
        assert tokens < room.tuples[2 if name == "A2^LN" else 1] < 1.07 * tokens
    assert len(rooms) <= 10


def test_rare_batches_have_few_rooms():
    """The last batch of an epoch, of fewer graphs than others, has an eighth of an average one more at most, and so has a small one; a
    large one has a sixteenth."""
    sizes = torch.randint(5, 40, (400,), generator=torch.Generator().manual_seed(1)).tolist()
    model, data = build("A1^LN").to(DEVICE), [labelled(nx.cycle_graph(n)) for n in sizes]
    rare, usual = Resident(model, data, 65), Resident(model, data, 64)
    average = 64 * sum(sizes) / len(sizes)
    rooms = {rare: set(), usual: set()}
    for seed in range(300):
        members = torch.randperm(400, generator=torch.Generator().manual_seed(seed))[:64].tolist()
        nodes = sum(sizes[member] for member in members)
        for resident, seen in rooms.items():
            room = resident.room(members).tuples[1]
            part = 1 / 8 if resident is rare or nodes < average else 1 / 16
            assert nodes < room <= nodes + part * average + resident_module.TILE + 2
            seen.add(room)
    assert len(rooms[rare]) <= 5
    assert len(rooms[rare]) < len(rooms[usual]) <= 15


def test_integers_are_kept_in_few_bits_where_they_fit():
    counts, few = torch.tensor([2, 1], device=DEVICE), torch.arange(6, device=DEVICE).view(3, 2)
    for most, kept in ((2**15 - 1, torch.int16), (2**15, torch.int32), (2**40, torch.int64)):
        given = {"few": few, "many": torch.tensor([1, most, -3], device=DEVICE)}
        segments = Segments.join([Segments(counts, given), Segments(counts, given)])
        assert segments.columns["torch.int64"].dtype == kept
        taken = segments.take(torch.tensor([2, 1], device=DEVICE), 4)
        for name, rows in given.items():
            assert taken.columns[name].dtype == torch.int64
            assert taken.columns[name].tolist() == [*rows.tolist(), (rows[0] * 0).tolist()]
