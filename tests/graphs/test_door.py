"""One door: whatever a graph comes as, it becomes the same checked batch, or an error that names the field."""

import copy
import warnings

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader

import tuplet
from tuplet.errors import InputError, OptionError
from tuplet.graphs import Features, GraphBatch, read

GRAPHS = {
    "path": nx.path_graph(5),
    "petersen": nx.petersen_graph(),
    "disconnected": nx.disjoint_union(nx.cycle_graph(4), nx.path_graph(3)),
    "isolated nodes": nx.empty_graph(4),
    "one node": nx.empty_graph(1),
    "complete": nx.complete_graph(6),
}


def as_data(graph: nx.Graph, **fields) -> Data:
    """PyG's form, edges in a shuffled order."""
    edges = [pair for u, v in graph.edges for pair in ((u, v), (v, u))]
    index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t()
    order = torch.randperm(index.shape[1], generator=torch.Generator().manual_seed(0))
    return Data(edge_index=index[:, order], num_nodes=len(graph), **fields)


def as_graph6(graph: nx.Graph) -> str:
    return nx.to_graph6_bytes(graph, header=False).decode().strip()


def pair(n: int = 3, **fields) -> Data:
    """A graph of n nodes with the edge 0-1 in both directions."""
    return Data(**{"edge_index": torch.tensor([[0, 1], [1, 0]]), "num_nodes": n, **fields})


def one_way(**fields) -> Data:
    return pair(edge_index=torch.tensor([[0, 1], [1, 2]]), **fields)


def edges(*pairs: tuple[int, int]) -> torch.Tensor:
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()


def assert_same(a: GraphBatch, b: GraphBatch) -> None:
    assert a.sizes == b.sizes
    for field in ("ptr", "rowptr", "col", "loop", "x", "edge_attr", "queries", "tuples"):
        left, right = getattr(a, field), getattr(b, field)
        assert (left is None) == (right is None), field
        assert left is None or torch.equal(left, right), field
    assert (a.directed, a.tuple_counts) == (b.directed, b.tuple_counts)


def pairs_of(graph: GraphBatch) -> list[tuple[int, int]]:
    return list(zip(graph.row.tolist(), graph.col.tolist(), strict=True))


def refusal(field: str, call) -> str:
    """The message of the InputError that ``call`` raises: it names the field, what was expected and what came."""
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert caught.value.field == field, message
    assert message.startswith(f"{field}: expected ")
    assert "; came " in message
    return message


# ---- the same batch, whatever the graph comes as


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_one_graph_in_all_forms_gives_one_batch(graph):
    expected = read(as_data(graph))
    assert expected.sizes == (len(graph),)
    assert pairs_of(expected) == sorted(pair for u, v in graph.edges for pair in ((u, v), (v, u)))
    for form in (graph, as_graph6(graph), [as_data(graph)], [graph], Batch.from_data_list([as_data(graph)])):
        assert_same(read(form), expected)


def test_lists_batches_loaders_and_mixtures_of_forms_give_one_batch():
    graphs = list(GRAPHS.values())
    data = [as_data(graph) for graph in graphs]
    expected = read(graphs)
    assert expected.sizes == tuple(map(len, graphs))
    mixed = [(as_data, as_graph6, lambda graph: graph)[i % 3](graph) for i, graph in enumerate(graphs)]
    loaded = next(iter(DataLoader(data, batch_size=len(data))))
    for form in (data, map(as_graph6, graphs), tuple(graphs), mixed, Batch.from_data_list(data), loaded):
        assert_same(read(form), expected)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
@pytest.mark.parametrize("columns", [(), (1,), (3,)])
def test_categorical_columns_come_out_as_int64_of_two_dimensions(dtype, columns):
    x, edge_attr = torch.ones(3, *columns).to(dtype), torch.ones(2, *columns).to(dtype)
    graph = read(pair(x=x, edge_attr=edge_attr))
    assert torch.equal(graph.x, x.reshape(3, -1).long())
    assert torch.equal(graph.edge_attr, edge_attr.reshape(2, -1).long())


@pytest.mark.parametrize("columns", [(), (1,), (3,)])
def test_real_vectors_keep_their_numbers(columns):
    x, edge_attr = torch.randn(3, *columns), torch.full((2, *columns), 0.25)
    graph = read(pair(x=x, edge_attr=edge_attr))
    assert torch.equal(graph.x, x.reshape(3, -1))
    assert torch.equal(graph.edge_attr, edge_attr.reshape(2, -1))


def test_features_follow_their_edges_and_graphs():
    one = Data(edge_index=edges((1, 0), (2, 1), (0, 1), (1, 2)), edge_attr=torch.tensor([5, 6, 5, 6]), num_nodes=3)
    two = Data(edge_index=edges((0, 1), (1, 0)), edge_attr=torch.tensor([[7], [7]]), num_nodes=2)
    for form in ([one, two], Batch.from_data_list([one, Data(**{**two.to_dict(), "edge_attr": two.edge_attr[:, 0]})])):
        graph = read(form)
        assert pairs_of(graph) == [(0, 1), (1, 0), (1, 2), (2, 1), (3, 4), (4, 3)]
        assert graph.edge_attr[:, 0].tolist() == [5, 5, 6, 6, 7, 7]


@pytest.mark.parametrize("features", [torch.empty(0), torch.empty(0, 3), torch.empty(0, dtype=torch.long)])
def test_empty_edge_features_of_a_graph_without_edges_are_read(features):
    graph = read(pair(edge_index=edges(), edge_attr=features))
    assert graph.edge_attr.shape == (0, 3 if features.dim() == 2 else 1)


def test_a_graph_without_edges_needs_no_edge_features_among_graphs_that_have_them():
    graph = read([pair(edge_index=edges()), pair(edge_attr=torch.tensor([[1, 2], [1, 2]]))])
    assert graph.edge_attr.tolist() == [[1, 2], [1, 2]]


def test_int32_and_edge_index_objects_are_accepted():
    expected = read(pair())
    assert_same(read(pair(edge_index=pair().edge_index.int())), expected)
    assert_same(read(pair(edge_index=EdgeIndex(pair().edge_index, sparse_size=(3, 3)))), expected)
    assert read(pair(edge_index=pair().edge_index.int())).col.dtype == torch.int64


def test_a_hand_made_batch_vector_sets_graphs_apart():
    data = Data(edge_index=edges((0, 1), (1, 0), (3, 2), (2, 3)), batch=torch.tensor([0, 0, 1, 1, 1]))
    assert read(data).sizes == (2, 3)
    data.edge_index = edges((0, 1), (1, 0), (1, 2), (2, 1))
    assert "graph 0" in refusal("edge_index", lambda: read(data))
    data.batch = torch.tensor([0, 1, 0, 1, 1])
    refusal("batch", lambda: read(data))


def test_edges_dropped_from_a_batch_after_collation_are_no_error():
    batch = Batch.from_data_list([as_data(nx.complete_graph(4)), as_data(nx.complete_graph(3))])
    keep = (batch.edge_index >= 4).all(0)
    batch.edge_index = batch.edge_index[:, keep]
    graph = read(batch)
    assert (graph.sizes, graph.num_edges) == ((4, 3), 6)


def test_a_checked_batch_goes_through_unchanged():
    graph = read(nx.path_graph(3))
    assert read(graph) is graph
    assert read(graph, device="cpu") is graph
    assert read(graph, device="meta").loop.device.type == "meta"
    refusal("directed", lambda: read(graph, directed=True))


@pytest.mark.parametrize("kwargs", [{}, {"undirected": "symmetrise"}, {"directed": True}])
@pytest.mark.parametrize("form", ["data", "list", "batch", "networkx"])
def test_input_is_never_altered(form, kwargs):
    fields = {"x": torch.rand(3, 2), "edge_attr": torch.ones(2).int(), "edge_label_index": edges((0, 2))}
    data = pair(**fields, tuples=torch.tensor([[0, 1]]), y=torch.ones(1))
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, 1, "x")
    value = {"data": data, "list": [data, data], "batch": Batch.from_data_list([data, data]), "networkx": graph}[form]
    before = copy.deepcopy(value)
    read(value, **kwargs)
    if form == "networkx":
        assert nx.utils.graphs_equal(value, before)
        return
    for old, new in zip(before, value, strict=True) if form == "list" else [(before, value)]:
        assert set(old.keys()) == set(new.keys())
        for key in old.keys():  # noqa: SIM118  (a Data is no dictionary)
            left, right = torch.as_tensor(old[key]), torch.as_tensor(new[key])
            assert torch.equal(left, right), key
            assert left.dtype == right.dtype, key


def test_reading_onto_a_device_leaves_the_batch_where_it_was():
    batch = Batch.from_data_list([pair(), pair()])
    with pytest.raises(Exception, match="meta"):
        read(batch, device="meta")  # the meta device holds no numbers, so that checking them fails
    assert batch.edge_index.device.type == "cpu"


# ---- directions, duplicates and self loops


def test_a_one_directional_list_is_refused_repaired_or_kept_but_never_guessed():
    message = refusal("edge_index", lambda: read(one_way()))
    assert "(0, 1)" in message
    assert "symmetrise" in message
    assert "directed=True" in message
    assert pairs_of(read(one_way(), undirected="symmetrise")) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    directed = read(one_way(), directed=True)
    assert directed.directed
    assert pairs_of(directed) == [(0, 1), (1, 2)]
    assert directed.degrees().tolist() == [[1, 0], [1, 1], [0, 1]]


def test_symmetrise_gives_both_directions_the_same_features():
    graph = read(one_way(edge_attr=torch.tensor([4, 9])), undirected="symmetrise")
    assert graph.edge_attr[:, 0].tolist() == [4, 4, 9, 9]


def test_unequal_features_of_the_two_directions_need_a_directed_graph():
    data = pair(edge_attr=torch.tensor([1, 2]))
    for undirected in ("require", "symmetrise"):
        assert "(0, 1)" in refusal("edge_attr", lambda undirected=undirected: read(data, undirected=undirected))
    assert read(data, directed=True).edge_attr[:, 0].tolist() == [1, 2]


def test_duplicates_with_equal_features_merge_and_with_unequal_ones_are_refused():
    index = edges((0, 1), (1, 0), (0, 1))
    assert pairs_of(read(pair(edge_index=index))) == [(0, 1), (1, 0)]
    assert read(pair(edge_index=index, edge_attr=torch.tensor([3, 3, 3]))).edge_attr.tolist() == [[3], [3]]
    for directed in (False, True):
        data = pair(edge_index=index, edge_attr=torch.tensor([3, 3, 4]))
        assert "twice" in refusal("edge_attr", lambda data=data, directed=directed: read(data, directed=directed))


def test_self_loops_become_flags_whose_features_are_the_last_rows():
    index = edges((2, 2), (0, 1), (1, 0), (0, 0), (2, 2))
    graph = read(pair(edge_index=index, edge_attr=torch.tensor([7, 1, 1, 5, 7])))
    assert pairs_of(graph) == [(0, 1), (1, 0)]
    assert graph.loop.tolist() == [2, -1, 3]
    assert graph.edge_attr[:, 0].tolist() == [1, 1, 5, 7]
    assert graph.degrees().tolist() == [[1], [1], [0]]
    assert read(pair(edge_index=index)).loop.tolist() == [2, -1, 3]
    refusal("edge_attr", lambda: read(pair(edge_index=index, edge_attr=torch.tensor([7, 1, 1, 5, 8]))))


@st.composite
def multigraphs(draw):
    n = draw(st.integers(1, 6))
    node = st.integers(0, n - 1)
    return n, draw(st.lists(st.tuples(node, node), max_size=20)), draw(st.randoms(use_true_random=False))


@settings(max_examples=60, deadline=None)
@given(multigraphs(), st.booleans())
def test_any_order_and_repetition_of_edges_gives_what_the_definition_says(case, directed):
    n, pairs, random = case
    random.shuffle(pairs)
    data = Data(edge_index=edges(*pairs), edge_attr=torch.tensor([min(p) * n + max(p) for p in pairs]), num_nodes=n)
    graph = read([data, data], undirected="symmetrise", directed=directed)
    wanted = {(u, v) for u, v in pairs if u != v}
    wanted |= set() if directed else {(v, u) for u, v in wanted}
    wanted = sorted(wanted)
    assert pairs_of(graph) == wanted + [(u + n, v + n) for u, v in wanted]
    assert graph.graph_of_node.tolist() == [0] * n + [1] * n
    loops = sorted({u for u, v in pairs if u == v})
    features = [min(p) * n + max(p) for p in wanted] * 2 + [u * n + u for u in loops] * 2
    assert graph.edge_attr[:, 0].tolist() == features
    assert [v for v in range(2 * n) if graph.loop[v] >= 0] == loops + [u + n for u in loops]
    numbers = {edge: number for number, edge in enumerate(pairs_of(graph))}
    asked = torch.cartesian_prod(torch.arange(2 * n), torch.arange(2 * n))
    assert graph.edge_number(*asked.t()).tolist() == [numbers.get((u, v), -1) for u, v in asked.tolist()]


# ---- what is refused

NAN, INF = float("nan"), float("inf")
BAD = {
    "no edge_index": ("edge_index", Data(x=torch.ones(3, 1)), "None"),
    "no edge_index in a list": ("edge_index", [pair(), Data(x=torch.ones(3, 1))], "graph 1"),
    "edge_index as a list": ("edge_index", pair(edge_index=[[0, 1], [1, 0]]), "list"),
    "edge_index transposed": ("edge_index", pair(edge_index=torch.zeros(5, 2).long()), "(5, 2)"),
    "edge_index of one dimension": ("edge_index", [pair(), pair(edge_index=torch.tensor([0, 1]))], "graph 1"),
    "edge_index of floats": ("edge_index", pair(edge_index=torch.zeros(2, 2)), "float32"),
    "edge_index of bools": ("edge_index", pair(edge_index=torch.zeros(2, 2).bool()), "bool"),
    "edge to node n": ("edge_index", pair(edge_index=edges((0, 3), (3, 0))), "0..2"),
    "edge to node -1": ("edge_index", pair(edge_index=edges((0, -1), (-1, 0))), "(0, -1)"),
    "x of wrong rows": ("x", pair(x=torch.ones(2, 4)), "3 rows"),
    "x of three dimensions": ("x", pair(x=torch.ones(3, 1, 1)), "(3, 1, 1)"),
    "x of no dimension": ("x", Data(edge_index=edges((0, 0)), x=torch.tensor(1.0)), "()"),
    "x as a list": ("x", pair(x=[1, 2, 3]), "list"),
    "x sparse": ("x", pair(x=torch.eye(3).to_sparse()), "dense"),
    "x complex": ("x", pair(x=torch.ones(3, dtype=torch.complex64)), "complex64"),
    "x with NaN": ("x", pair(x=torch.tensor([0.0, NAN, 0.0])), "row 1"),
    "x infinite": ("x", pair(x=torch.tensor([[0.0], [1.0], [-INF]])), "row 2"),
    "edge_attr of wrong rows": ("edge_attr", pair(edge_attr=torch.ones(3)), "2 rows"),
    "edge_attr with NaN": ("edge_attr", pair(edge_attr=torch.tensor([NAN, NAN])), "row 0"),
    "an empty list": ("graphs", [], "empty"),
    "a number": ("graphs", 7, "int"),
    "bytes": ("graphs", b"Bw", "bytes"),
    "a tensor": ("graphs", torch.ones(2, 2), "Tensor"),
    "a dictionary": ("graphs", {"x": 1}, "dict"),
    "HeteroData": ("graphs", HeteroData(), "HeteroData"),
    "a list of numbers": ("graphs", [pair(), 7], "int"),
    "an empty Batch": ("edge_index", Batch(), "None"),
    "a Batch of no graph": ("batch", Batch(edge_index=edges(), ptr=torch.tensor([0])), "empty"),
    "a list with a Batch": ("graphs", [Batch.from_data_list([pair(), pair()])], "2 graphs"),
    "no node": ("num_nodes", pair(0, edge_index=edges()), "n = 0"),
    "no node in networkx": ("num_nodes", nx.Graph(), "n = 0"),
    "no node in graph6": ("num_nodes", "?", "n = 0"),
    "no node in a list": ("num_nodes", [nx.path_graph(2), nx.Graph()], "n = 0"),
    "x in some graphs only": ("x", [pair(x=torch.ones(3)), pair()], "graph 1"),
    "edge_attr in some graphs only": ("edge_attr", [pair(edge_attr=torch.ones(2)), pair()], "graph 1"),
    "x of two widths": ("x", [pair(x=torch.ones(3, 2)), pair(x=torch.ones(3, 1))], "graph 1"),
    "query of node n": ("edge_label_index", pair(edge_label_index=edges((0, 3))), "(0, 3)"),
    "query of node -1": ("edge_label_index", pair(edge_label_index=edges((-1, 0))), "(-1, 0)"),
    "query of floats": ("edge_label_index", pair(edge_label_index=torch.ones(2, 1)), "float32"),
    "query of wrong shape": ("edge_label_index", [pair(edge_label_index=torch.ones(3, 1).long())], "(3, 1)"),
    "tuples of one dimension": ("tuples", pair(tuples=torch.tensor([0, 1])), "(2,)"),
    "tuples of width 0": ("tuples", pair(tuples=torch.zeros(2, 0).long()), "(2, 0)"),
    "tuples of floats": ("tuples", pair(tuples=torch.ones(1, 2)), "float32"),
    "tuples as a list": ("tuples", [pair(tuples=[[0, 1]])], "list"),
    "tuples of node n": ("tuples", pair(tuples=torch.tensor([[0, 3]])), "[0, 3]"),
    "tuples of node -1": ("tuples", pair(tuples=torch.tensor([[0, -1]])), "[0, -1]"),
    "tuples of two widths": ("tuples", [pair(tuples=torch.ones(1, k).long()) for k in (2, 3)], "graph 1"),
    "num_tuples wrong": ("num_tuples", pair(tuples=torch.tensor([[0, 1]]), num_tuples=2), "(2,)"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_by_an_error_that_names_the_field(case):
    field, graphs, text = BAD[case]
    assert text in refusal(field, lambda: read(graphs))


SHIFTED = {
    "an edge of graph 0 lands in graph 1": ("edge_index", [pair(2, edge_index=edges((2, 3), (3, 2))), pair(2)], 0),
    "an edge of graph 1 lands in graph 0": ("edge_index", [pair(2), pair(2, edge_index=edges((-1, -2), (-2, -1)))], 1),
    "an edge of graph 0 joins both": ("edge_index", [pair(2, edge_index=edges((0, 2), (2, 0))), pair(2)], 0),
    "an edge of the last graph": ("edge_index", [pair(2), pair(2, edge_index=edges((0, 2), (2, 0)))], 1),
    "a query of graph 0 lands in graph 1": (
        "edge_label_index",
        [pair(2, edge_label_index=edges((2, 3))), pair(2, edge_label_index=edges((0, 1)))],
        0,
    ),
    "a query of graph 1 joins both": (
        "edge_label_index",
        [pair(2, edge_label_index=edges((0, 1))), pair(2, edge_label_index=edges((-1, 1)))],
        1,
    ),
    "rows of x that only sum up": ("x", [pair(2, x=torch.ones(3, 1)), pair(3, x=torch.ones(2, 1))], 0),
    "rows of edge_attr that only sum up": (
        "edge_attr",
        [pair(edge_attr=torch.ones(0)), pair(edge_attr=torch.ones(4))],
        0,
    ),
    "no node": ("num_nodes", [pair(2), pair(0, edge_index=edges())], 1),
    "a one-directional edge": ("edge_index", [pair(2), one_way()], 1),
    "unequal directions": (
        "edge_attr",
        [pair(edge_attr=torch.tensor([1, 1])), pair(edge_attr=torch.tensor([1, 2]))],
        1,
    ),
}


@pytest.mark.parametrize("collate", [list, Batch.from_data_list], ids=["list", "Batch"])
@pytest.mark.parametrize("case", SHIFTED)
def test_collation_hides_no_fault_and_the_error_names_the_graph(case, collate):
    field, graphs, number = SHIFTED[case]
    assert f"graph {number}" in refusal(field, lambda: read(collate(graphs)))


def test_a_query_that_joins_two_graphs_is_refused_also_when_added_after_collation():
    batch = Batch.from_data_list([pair(2), pair(2)])
    batch.edge_label_index = edges((0, 1), (3, 2))
    assert read(batch).queries.tolist() == [[0, 3], [1, 2]]
    batch.edge_label_index = edges((0, 1), (1, 2))
    assert "graph 0" in refusal("edge_label_index", lambda: read(batch))


def test_tuples_that_come_with_graphs_keep_their_own_node_numbers():
    data = [pair(tuples=torch.tensor([[2, 0], [1, 1]])), pair(2, tuples=torch.tensor([[1, 0]]).int())]
    for form in (data, Batch.from_data_list(data)):
        graph = read(form)
        assert graph.tuples.tolist() == [[2, 0], [1, 1], [1, 0]]
        assert graph.tuple_counts == (2, 1)
    batch = Batch.from_data_list(data)
    batch.num_tuples = torch.tensor([1, 2])
    refusal("num_tuples", lambda: read(batch))


def test_an_unknown_way_to_treat_directions_is_refused():
    with pytest.raises(OptionError, match=r"undirected: expected .*; came 'guess'"):
        read(pair(), undirected="guess")


# ---- what a model was built for


def model(**options):
    return tuplet.build("A1", dim=8, depth=1, heads=1, **options)


EDGE = {"edge_types": 2}
UNFIT = {
    "category too high": ("x", {"node_types": 3}, pair(x=torch.tensor([0, 1, 3])), "0..2"),
    "category negative": ("x", {"node_types": 3}, pair(x=torch.tensor([0, 1, -1])), "-1"),
    "category of the second column": ("x", {"node_types": [2, 3]}, pair(x=torch.full((3, 2), 2)), "column 0"),
    "real x for node_types": ("x", {"node_types": 3}, pair(x=torch.ones(3)), "node_types"),
    "x missing": ("x", {"node_types": 3}, pair(), "no x"),
    "real x missing": ("x", {"node_dim": 2}, pair(), "no x"),
    "x too wide": ("x", {"node_dim": 2}, pair(x=torch.ones(3, 3)), "2 column"),
    "edge category too high": ("edge_attr", EDGE, pair(edge_attr=torch.tensor([2, 2])), "0..1"),
    "loop category too high": (
        "edge_attr",
        EDGE,
        pair(edge_index=edges((0, 0)), edge_attr=torch.tensor([2])),
        "0..1",
    ),
    "real edge_attr for edge_types": ("edge_attr", EDGE, pair(edge_attr=torch.ones(2)), "edge_types"),
    "edge_attr too narrow": ("edge_attr", {"edge_dim": 3}, pair(edge_attr=torch.ones(2)), "3 column"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_model_refuses_features_it_was_not_built_for(case):
    field, options, graphs, text = UNFIT[case]
    assert text in refusal(field, lambda: model(**options).read(graphs))


def test_a_model_for_edge_types_refuses_edges_without_features():
    refusal("edge_attr", lambda: model(edge_types=2).read(pair()))


@pytest.mark.parametrize(
    "options, fields",
    [
        ({}, {}),
        ({"node_types": 3}, {"x": torch.tensor([0, 1, 2])}),
        ({"node_types": [3, 2], "edge_types": [2]}, {"x": torch.ones(3, 2).int(), "edge_attr": torch.ones(2).long()}),
        ({"node_dim": 2, "edge_dim": 1}, {"x": torch.rand(3, 2), "edge_attr": torch.ones(2)}),
        ({"node_dim": 1}, {"x": torch.tensor([1, 2, 3])}),
    ],
)
def test_a_model_reads_the_features_it_was_built_for(options, fields):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model(**options).read(pair(**fields)).sizes == (3,)


def test_a_model_for_edge_types_reads_a_graph_without_edges():
    assert model(edge_types=3).read(nx.empty_graph(2)).num_edges == 0


@pytest.mark.parametrize("types", [0, -1, 2.5, True, "3", [], [3, 0], [1.0]])
def test_meaningless_numbers_of_types_are_refused(types):
    with pytest.raises(OptionError, match="node_types: expected"):
        Features.declare("x", types, None)


def test_types_and_dim_exclude_each_other():
    with pytest.raises(OptionError, match="edge_types and edge_dim"):
        Features.declare("edge_attr", 3, 2)
    with pytest.raises(OptionError, match="edge_dim: expected"):
        Features.declare("edge_attr", None, 0)
