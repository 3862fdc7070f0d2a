"""Raw statistics with the data, and the short forms of encodings."""

import networkx as nx
import pytest
import torch
from encoding_cases import EVERY, GRAPHS, name
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.loader import DataLoader

import tuplet.encodings
from tuplet.encodings import (
    CATALOGUE,
    KNOWN,
    RWSE,
    SPE,
    BasisNet,
    HodgeRW,
    LapPE,
    Precompute,
    SignNet,
    parse,
    statistics,
)
from tuplet.errors import InputError, OptionError
from tuplet.graphs import read
from tuplet.graphs.door import as_data
from tuplet.topology import CliqueComplex


def data():
    return [as_data(graph) for graph in GRAPHS.values()]


def same(first: Data, second: Data) -> bool:
    return set(first.keys()) == set(second.keys()) and all(
        torch.equal(torch.as_tensor(first[key]), torch.as_tensor(second[key]))
        for key in first.keys()  # noqa: SIM118
    )


@pytest.mark.parametrize("encoding", EVERY, ids=name)
def test_statistics_of_graphs_collate_to_those_of_the_batch(encoding):
    graphs, transform = data(), Precompute([encoding])
    expected = encoding.compute(read(graphs))
    one_by_one = [transform(item) for item in graphs]
    at_once = transform.many(graphs)
    for form in (
        Batch.from_data_list(one_by_one),
        Batch.from_data_list(at_once),
        next(iter(DataLoader(at_once, batch_size=len(graphs)))),
    ):
        assert sum(field.startswith("pe_") for field in form.keys()) == len(encoding.fields)  # noqa: SIM118
        for field in encoding.fields:
            assert form[field].dtype == expected[field].dtype
            assert torch.allclose(form[field], expected[field], atol=1e-6)
        assert form.num_nodes == sum(map(len, GRAPHS.values()))
        encoding.check(form.to_dict(), read(form))
    assert all(same(a, b) for a, b in zip(form.to_data_list(), at_once, strict=True))


def test_the_input_is_left_alone():
    for item in data():
        before = item.clone()
        after = Precompute([RWSE(3), SPE(4), HodgeRW(3)])(item)
        assert same(item, before)
        assert after.edge_index is item.edge_index
        assert after.num_nodes == item.num_nodes


def test_stored_rows_own_their_memory():
    for item in Precompute([RWSE(3)]).many(data()):
        assert item.pe_rwse_3.untyped_storage().nbytes() == item.pe_rwse_3.nbytes


def test_long_lists_are_worked_on_in_parts(monkeypatch):
    expected = Precompute([RWSE(3)]).many(data())
    monkeypatch.setattr(tuplet.encodings.precompute, "PAIRS", 70)
    assert all(same(a, b) for a, b in zip(Precompute([RWSE(3)]).many(data()), expected, strict=True))


def test_large_stacks_are_cut(monkeypatch):
    batch = read([nx.path_graph(5), nx.cycle_graph(5), nx.path_graph(3)] * 4)
    encodings = [RWSE(3), LapPE("all"), HodgeRW(3)]
    expected = statistics(encodings, batch)
    monkeypatch.setattr(tuplet.encodings.blocks, "ENTRIES", 60)
    came = statistics(encodings, batch)
    assert came.keys() == expected.keys()
    assert all(torch.allclose(came[field], expected[field], atol=1e-6) for field in came)


def test_a_data_set_keeps_what_was_computed_once(tmp_path, monkeypatch):
    class Graphs(InMemoryDataset):
        def __init__(self, root, pre_transform):
            super().__init__(root, pre_transform=pre_transform)
            self.load(self.processed_paths[0])

        processed_file_names = "data.pt"

        def process(self):
            self.save([self.pre_transform(item) for item in data()], self.processed_paths[0])

    transform = Precompute(["RWSE:5:8", "SPE:all:8"])
    first = Graphs(str(tmp_path), transform)
    monkeypatch.setattr(Precompute, "many", lambda *args: pytest.fail("computed again"))
    again = Graphs(str(tmp_path), transform)
    expected = statistics(transform.encodings, read(data()))
    for field, value in expected.items():
        for dataset in (first, again):
            assert torch.allclose(torch.cat([item[field] for item in dataset]), value, atol=1e-6)


def test_encodings_of_the_same_statistics_share_one_decomposition(monkeypatch):
    calls = []
    eigh = torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda matrix: calls.append(len(matrix)) or eigh(matrix))
    raw = statistics(
        [SPE(4), BasisNet(4), LapPE(4, whole="drop"), SignNet(4, whole="drop")], read([nx.path_graph(5)] * 3)
    )
    assert calls == [3]
    assert list(raw) == ["pe_lap_sym_4_drop"]


def test_encodings_of_one_kind_with_other_options_live_together():
    item = Precompute([RWSE(3), RWSE(5), HodgeRW(3), HodgeRW(3, dim=2, rings=(5,))])(as_data(nx.cycle_graph(5)))
    assert item.pe_rwse_3.shape == (5, 3)
    assert item.pe_rwse_5.shape == (5, 5)
    assert sum(field.startswith("pe_hodgerw") for field in item.keys()) == 5  # noqa: SIM118


def test_an_attached_complex_is_used():
    graph = as_data(nx.cycle_graph(3))
    hollow = CliqueComplex(1)(graph)
    filled = CliqueComplex(2)(graph)
    walks = [Precompute([HodgeRW(4)])(item).pe_hodgerw1_1_4 for item in (hollow, filled, graph)]
    assert torch.equal(walks[1], walks[2])
    assert not torch.allclose(walks[0], walks[1])


def test_directions_are_read_as_told():
    one_way = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    assert Precompute([RWSE(2)], directed=True)(one_way).pe_rwse_2.tolist() == [[0, 0]] * 3
    assert Precompute([RWSE(2)], undirected="symmetrise")(one_way).pe_rwse_2.tolist() == [[0, 0.5], [0, 1], [0, 0.5]]
    with pytest.raises(InputError, match="without its reverse"):
        Precompute([RWSE(2)])(one_way)


def test_a_transform_is_rebuilt_from_its_repr():
    for transform in (
        Precompute(["RWSE:20:28", SPE(4)]),
        Precompute([RWSE(2)], directed=True, dtype=torch.float64),
        Precompute([RWSE(2)], undirected="symmetrise"),
    ):
        rebuilt = eval(repr(transform), {**vars(tuplet.encodings), "torch": torch})
        assert repr(rebuilt) == repr(transform)
        assert rebuilt.encodings == transform.encodings


def test_what_cannot_be_computed_is_refused_in_words():
    with pytest.raises(InputError, match=r"^data: expected one graph, before it is collated; came a Batch"):
        Precompute([RWSE(2)])(Batch.from_data_list(data()))
    with pytest.raises(InputError, match=r"^data: expected a torch_geometric Data; came Graph"):
        Precompute([RWSE(2)]).many([nx.path_graph(3)])
    with pytest.raises(OptionError, match=r"^encodings: expected a list"):
        Precompute("RWSE:20:28")


# ---- options and short forms


@pytest.mark.parametrize("encoding", [*EVERY, *(kind() for kind in KNOWN.values())], ids=name)
def test_an_encoding_is_rebuilt_from_its_repr_and_its_short_form(encoding):
    rebuilt = eval(repr(encoding), vars(tuplet.encodings))
    assert rebuilt == encoding == parse(str(encoding))
    assert len({rebuilt, encoding}) == 1
    for field in encoding.fields:
        assert field.startswith("pe_")
        assert not any(word in field for word in ("index", "face", "batch", "node", "edge", "adj"))


@pytest.mark.parametrize(
    "text, expected",
    [
        ("RWSE:20:28", "RWSE(steps=20, width=28, norm=True)"),
        ("RWSE", "RWSE(steps=20, width=28, norm=True)"),
        ("RWSE:16:norm=false", "RWSE(steps=16, width=28, norm=False)"),
        ("RRWP:21:21", "RRWP(slots=21, width=21, norm=False)"),
        ("RD:8", "RD(width=8)"),
        ("HodgeRW:16:8:dim=2:rings=5/6", "HodgeRW(steps=16, width=8, dim=2, rings=(5, 6), norm=True)"),
    ],
)
def test_short_forms(text, expected):
    assert repr(parse(text)) == expected


def test_short_forms_of_the_settings_of_the_paper():
    assert parse("LapPE:16:16") == LapPE(16, 16)
    assert parse("LapPE:10:16:model=deepset") == LapPE(10, 16, model="deepset")
    assert parse("SignNet:8:16") == SignNet(8, 16, phi_layers=8, rho_layers=4)
    assert parse("SignNet:all:28") == SignNet("all", 28)
    assert parse("SPE:8:8") == SPE(8, 8, functions=6, hidden=64, layers=8)
    assert parse("SPE:37:37:functions=16") == SPE(37, 37, functions=16)


@pytest.mark.parametrize(
    "text, message",
    [
        ("RWPE:20:28", r"^encoding: expected one of DEG, RWSE, .*, HodgeRW, as in 'RWSE:20:28'; came 'RWPE:20:28'"),
        ("RWSE:20:28:3", r"^encoding: expected RWSE:steps:width\[:option=value\]..; came"),
        ("RWSE:20:28:depth=3", r"^RWSE: expected one of the options steps, width, norm; came 'depth'"),
        ("RWSE:20:steps=3", r"^RWSE: expected steps once; came"),
        ("RWSE:0:28", r"^steps: expected a positive int; came 0"),
        ("RWSE:all:28", r"^steps: expected a positive int; came 'all'"),
        ("RWSE:20:28:norm=maybe", r"^norm: expected one of True, False; came 'maybe'"),
        ("LapPE:many:16", r"^vectors: expected a positive int or 'all'; came 'many'"),
        ("LapPE:all:16:model=mlp", r"^model: expected 'deepset' for vectors='all'"),
        ("SignNet:8:16:rho=mlp:whole=keep", r"^rho: expected 'sum' for vectors=8, whole='keep'"),
        ("SPE:8:8:whole=half", r"^whole: expected one of 'drop', 'keep', 'cut'; came 'half'"),
        ("HodgeRW:16:16:rings=3", r"^rings: expected a tuple of lengths from 4 on; came \(3,\)"),
        ("HodgeRW:16:16:dim=0:rings=5", r"^rings: expected dim >= 1"),
        ("HodgeRW:16:16:dim=-1", r"^dim: expected an int of at least 0; came -1"),
    ],
)
def test_meaningless_short_forms_are_refused_in_words(text, message):
    with pytest.raises(OptionError, match=message):
        parse(text)


def test_the_catalogue_names_every_encoding_once():
    assert [type(parse(row.short)).__name__ for row in CATALOGUE] == list(KNOWN)
    assert all(row.level == KNOWN[row.short.split(":")[0]].level for row in CATALOGUE)
    assert all(row.what and row.invariant and row.paper for row in CATALOGUE)
