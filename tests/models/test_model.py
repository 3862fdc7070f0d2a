"""The model as a whole: shapes, devices and precisions, compiling, explaining, odd graphs."""

import itertools
import warnings

import networkx as nx
import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.utils import scatter
from zoo import NAMES, TASKS, build

from tuplet import testing
from tuplet.attention import FavorFeatures, Rule, attend_apart
from tuplet.errors import InputError, OptionError
from tuplet.graphs.graph6 import from_graph6
from tuplet.patterns import DefinedPairs

ODD = ("@", "A?", "D??", "C~", "DDW", "F?B~w")  # one node, no edges, complete, a path, a star with isolated nodes


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("task", TASKS)
def test_output_shape_and_finite_gradients_on_odd_graphs(name, task):
    """Graphs (or nodes, or pairs) by outputs, in training mode, alone and together; every parameter is used."""
    model = build(name, task, node_types=None, edge_types=None).float().train()
    graphs = [from_graph6(text) for text in ODD]
    for graph in graphs:
        graph.edge_label_index = torch.tensor([[0, graph.num_nodes - 1], [graph.num_nodes - 1, 0]])
    for batch in ([graph] for graph in graphs):
        assert torch.isfinite(model(batch)).all()
    output = model(graphs)
    rows = {"graph": len(graphs), "node": sum(g.num_nodes for g in graphs), "edge": 2 * len(graphs)}[task]
    assert output.shape == (rows, 2)
    output.sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name


@pytest.mark.parametrize(
    "name", ["A2^LN+VT", "A2", "A1,2^Ngbh", "A2,1^Ngbh", "AS0:1^SN+VS", "AS0:1+bias", "A3(connected)"]
)
def test_after_a_first_norm_the_size_of_first_features_has_no_say(name):
    """Without one scores of the first attention grow with them, until one key has it all."""
    model = build(name, node_types=None, edge_types=None, first_norm=True)
    small = model(list(ODD)).detach()
    for embedding in filter(None, (model.tokens, model.keys)):
        embedding.register_forward_hook(lambda module, given, found: 1000 * found)
    torch.testing.assert_close(model(list(ODD)), small, rtol=0, atol=1e-3 * float(small.std()))
    model.first_norm = torch.nn.Identity()
    assert (model(list(ODD)) - small).abs().max() > 0.1 * small.std()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_has_no_nan(name, dtype):
    model = build(name, node_types=None, edge_types=None, norm="layer").to(dtype)
    if dtype == torch.float16 and "ReLU" in name:
        with pytest.raises(OptionError, match="bfloat16"):
            model(list(ODD))
        return
    output = model(list(ODD))
    assert output.dtype == dtype
    assert torch.isfinite(output).all()
    output.float().square().mean().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", ["A2^LN+VT", "A2-Performer", "A3^Ngbh+", "AS0:1^SN+VS", "AS0:2+bias", "A1,2^Ngbh"])
@pytest.mark.parametrize("first_norm", [False, True])
def test_autocast(name, first_norm):
    model = build(name, node_types=None, edge_types=None, first_norm=first_norm).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(list(ODD))
    output.float().sum().backward()
    assert torch.isfinite(output).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", NAMES)
def test_prepared_forward_compiles_in_one_graph(name):
    """fullgraph=True, forward and backward, with the result of the plain call."""
    torch._dynamo.reset()
    model = build(name, "node", node_types=None, edge_types=None)
    prepared = model.prepare(["DDW", "CF"])
    expected = model(prepared)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    output = compiled(prepared)
    torch.testing.assert_close(output, expected)
    output.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.soak
def test_inductor_compiles_it_too():
    torch._dynamo.reset()
    model = build("A2^LN+VT", node_types=None, edge_types=None)
    prepared = model.prepare(["DDW", "CF"])
    torch.testing.assert_close(torch.compile(model, fullgraph=True)(prepared), model(prepared))


def test_a_forward_alters_neither_batch_nor_prepared():
    data = [
        Data(
            x=torch.tensor([0, 1, 2]),
            edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
            edge_attr=torch.tensor([0, 0, 1, 1]),
        )
    ]
    batch = Batch.from_data_list(data)
    before = {key: value.clone() for key, value in batch.to_dict().items() if isinstance(value, torch.Tensor)}
    model = build("A2^LN")
    prepared = model.prepare(batch)
    first, second = model(prepared), model(prepared)
    assert torch.equal(first, second)
    assert torch.equal(model(batch), first)
    assert batch.to_dict().keys() == before.keys() | {"edge_attr", "x"}
    assert all(torch.equal(batch[key], value) for key, value in before.items())


def test_inputs_of_every_kind_are_one_graph():
    model = build("A2^LN", node_types=None, edge_types=None)
    graph = nx.path_graph(4)
    text = nx.to_graph6_bytes(graph, header=False).decode().strip()
    outputs = [
        model(each) for each in (graph, text, from_graph6(text), [graph], Batch.from_data_list([from_graph6(text)]))
    ]
    assert all(torch.equal(output, outputs[0]) for output in outputs)


def test_features_that_nobody_reads_are_announced():
    with pytest.warns(UserWarning, match="x is ignored"):
        build("A1", node_types=None, edge_types=None)(
            Data(x=torch.zeros(2, 1), edge_index=torch.empty(2, 0, dtype=torch.long))
        )


def test_an_edge_task_asks_for_its_pairs():
    with pytest.raises(InputError, match="edge_label_index"):
        build("A2^LN", "edge", node_types=None, edge_types=None)("DDW")


def test_real_and_several_categorical_features():
    graph = Data(
        x=torch.randn(3, 4), edge_index=torch.tensor([[0, 1], [1, 0]]), edge_attr=torch.tensor([[1, 2], [1, 2]])
    )
    model = build("A2^Ngbh", node_types=None, node_dim=4, edge_types=[2, 3])
    base = model(graph)
    graph.x[0, 0] += 1
    moved = model(graph)
    graph.edge_attr[:, 1] = 0
    assert not torch.allclose(base, moved)
    assert not torch.allclose(moved, model(graph))


def test_a_self_loop_and_its_features_count():
    def graph(loops, kind):
        edges = [(0, 1), (1, 0)] + [(0, 0)] * loops
        return Data(edge_index=torch.tensor(edges).t(), edge_attr=torch.tensor([0, 0] + [kind] * loops), num_nodes=2)

    model = build("A2^LN", node_types=None)
    plain, loop, other = (model(graph(*case)) for case in ((0, 0), (1, 0), (1, 1)))
    assert not torch.allclose(plain, loop)
    assert not torch.allclose(loop, other)


def test_heads_are_dealt_round_robin():
    for heads, groups in ((5, 2), (6, 3), (4, 3), (2, 1)):
        keys = torch.arange(groups)
        # group g of the one query has the one key g, whose value is g in every head
        pairs = tuple(DefinedPairs(keys[:1] * 0, keys[g : g + 1], keys[:1] * 0, 1, groups) for g in range(groups))
        values = keys.double()[:, None, None].expand(groups, heads, 1)
        found = attend_apart(values[:1], values, values, pairs, None, Rule("softmax", "none", 1.0))
        assert found.flatten().tolist() == [head % groups for head in range(heads)]
    model = build("A3^LN", heads=4, node_types=None, edge_types=None)
    assert [group.heads for group in model.explain("CF").groups] == [(0, 3), (1,), (2,)]


@pytest.mark.parametrize("softmax", ["groups", "joint"])
@pytest.mark.parametrize(
    "name", ["A2", "A2+basis", "A2^Ngbh+", "A2^LN", "A2^LN+VT", "A2-Performer", "A1,2^Ngbh", "A3(connected)^LN"]
)
def test_explain_gives_the_weights_that_the_layer_used(name, softmax):
    """Weights sum to one over the keys of each softmax, and name the tuples they belong to."""
    model = build(name, node_types=None, edge_types=None, softmax=softmax)
    explanation = model.explain(["CF", "A?"], layer=0)
    sums = {}
    for number, group in enumerate(explanation.groups):
        assert group.weight.shape == (len(group.query), len(group.heads))
        together = softmax == "joint" and group.name != "to virtual"
        zeros = torch.zeros(len(group.queries), len(group.heads), dtype=torch.float64)
        slot = sums.setdefault("all" if together else number, zeros)
        slot.index_add_(0, group.query, group.weight)
        for query, key in zip(group.query.tolist(), group.key.tolist(), strict=True):
            assert group.queries[query][0] == group.keys[key][0]
    for total in sums.values():
        assert ((total - 1).abs() < 1e-9).logical_or(total == 0).all()


def test_explain_reads_as_the_definition():
    model = build("A2^LN", node_types=None, edge_types=None, heads=2, dim=8)
    explanation = model.explain(nx.path_graph(3), layer=0)
    assert explanation.queries == [(0, pair) for pair in itertools.product(range(3), repeat=2)]
    looked_at = {(group, key[1]) for group, _, key, _ in explanation.of((0, (1, 2)))}
    assert looked_at == {("LocalNeighbour 0", (0, 2)), ("LocalNeighbour 0", (2, 2)), ("LocalNeighbour 1", (1, 1))}


def test_redrawing_random_features_changes_the_estimate_and_nothing_else():
    model = build("A2-Performer", node_types=None, edge_types=None)
    before = model("DDW")
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.redraw_features(torch.Generator().manual_seed(5))
    changed = [name for name, value in model.state_dict().items() if not torch.equal(value, state[name])]
    assert changed
    assert all(name.endswith("directions") for name in changed)
    assert not torch.allclose(before, model("DDW"))


def test_more_random_features_come_closer_to_softmax():
    """FAVOR+ estimates the softmax kernel: the error of its normalised weights falls as features grow."""
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(30, 1, 8, generator=generator, dtype=torch.float64) / 2 for _ in range(2))
    exact = torch.softmax(q[:, 0] @ k[:, 0].t() / 8**0.5, dim=1)
    errors = []
    for features in (16, 4096):
        phi = FavorFeatures(8, features).double()
        phi.redraw(generator)
        (keys,) = phi.keys([k], [torch.zeros(30, dtype=torch.long)], 1)
        weight = phi.queries(q)[:, 0] @ keys[:, 0].t()
        errors.append((weight / weight.sum(1, keepdim=True) - exact).abs().max().item())
    assert errors[1] < errors[0] / 4
    assert errors[1] < 0.02


def test_explain_leaves_the_model_as_it_was():
    model = build("A2^LN+VT", node_types=None, edge_types=None, dropout=0.5).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first, second = (model.explain(["CF", "DDW"]).groups[0].weight for _ in range(2))
    assert torch.equal(first, second)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(OptionError, match="layer"):
        model.explain("CF", layer=2)


def test_one_graph_in_a_training_batch_is_announced():
    with pytest.warns(UserWarning, match="one graph"):
        build("A2^LN", node_types=None, edge_types=None).train()("DDW")


def test_numbers_that_the_model_cannot_hold_are_refused():
    graph = Data(x=torch.tensor([[1e300]], dtype=torch.float64), edge_index=torch.empty(2, 0, dtype=torch.long))
    with pytest.raises(InputError, match=r"x: expected numbers that torch\.float32 can hold"):
        build("A1", node_types=None, node_dim=1, edge_types=None).float()(graph)


@pytest.mark.parametrize("name", ["A2^LN", "AS0:1^SN+VS", "GIN", "PPGN"])
def test_sums_in_units_are_the_same_functions(name):
    """Dividing the head's first weights by the unit is the same as dividing the sums; means and single nodes have no unit."""
    plain, scaled = (
        build(name, node_types=None, edge_types=None, pool="add", pool_unit=unit).double().eval() for unit in (1, 40)
    )
    scaled.load_state_dict(plain.state_dict())
    graphs = ["CF", "DDW"]
    assert not torch.allclose(plain(graphs), scaled(graphs))
    with torch.no_grad():
        scaled.head.layers[0].weight.mul_(40)
    torch.testing.assert_close(plain(graphs), scaled(graphs))
    for unread in ({"pool": "mean"}, {"pool": "add", "task": "node"}):
        pair = [build(name, node_types=None, edge_types=None, pool_unit=unit, **unread).eval() for unit in (1, 40)]
        pair[1].load_state_dict(pair[0].state_dict())
        assert torch.equal(pair[0](graphs), pair[1](graphs))
    for bad in (0, -1.0, float("inf"), "many", True):
        with pytest.raises(OptionError, match=r"pool_unit: expected a positive number; came "):
            build(name, pool="add", pool_unit=bad)


@pytest.mark.parametrize("name", ["A1^LN", "A2^LN+VT", "A3^LN", "A2,1^Ngbh", "A1,2(connected)"])
@pytest.mark.parametrize("pool, directed", [("add", False), ("mean", True), ("max", False)])
def test_graph_outputs_of_the_tuples_that_stand_for_a_node(name, pool, directed):
    options = {"pool_over": "nodes", "pool": pool, "directed": directed}
    model = build(name, node_types=None, edge_types=None, **options).double().eval()
    kind = nx.DiGraph if directed else nx.Graph
    graphs = [kind(graph) for graph in (nx.path_graph(3), nx.empty_graph(1), nx.lollipop_graph(3, 2))]
    prepared = model.prepare(graphs)
    x = model.run_layers(*model.embed(prepared)[1:], prepared, model.config.depth)[0]
    constant = [len(set(entries)) == 1 for _, entries in prepared.queries.tolist()]
    owner = torch.tensor([graph for graph, _ in prepared.queries.tolist()])[constant]
    torch.testing.assert_close(model(prepared), model.head(scatter(x[constant], owner, reduce=pool)))
    testing.assert_batch_invariant(model, graphs)
    testing.assert_permutation_equivariant(model, graphs[2])


@pytest.mark.parametrize("name, centred", [("A1^LN", True), ("A2^LN", False)])
@pytest.mark.filterwarnings("default:a training batch of one graph")
def test_a_part_of_what_a_batch_norm_centres_is_not_centred(name, centred):
    model = build(name, node_types=None, edge_types=None, pool_over="nodes").train()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.prepare("DDW")
    assert any("a training batch of one graph" in str(item.message) for item in caught) == centred


@pytest.mark.parametrize("name", ["A2^LN", "A2-Linear", "A1^LN"])
@pytest.mark.parametrize("pool", ["add", "mean"])
def test_float16_does_not_overflow_on_larger_graphs(name, pool):
    model = build(name, node_types=None, edge_types=None, pool=pool).half()
    assert torch.isfinite(model(nx.gnm_random_graph(4000 if name == "A1^LN" else 60, 90, seed=0))).all()


def test_virtual_tuples_enter_every_pre_norm_layer_through_a_norm():
    model = build("A2^LN+VT", node_types=None, edge_types=None, norm_position="pre", norm="layer")
    seen = []
    for layer in model.layers:
        layer.attention.virtual.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(["CF"])
    assert all(tensor.mean().abs() < 1e-6 for tensor in seen)


def test_autocast_leaves_the_operator_in_its_own_precision():
    model = build("A2^Ngbh", node_types=None, edge_types=None).float()
    attention, prepared = model.layers[0].attention, model.prepare(["CF"])
    real = [torch.randn(16, 3, 4) for _ in range(3)]
    plain, _ = attention.mix(real, [], prepared.layouts)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast, _ = attention.mix(real, [], prepared.layouts)
    assert torch.equal(plain, cast)


def counted(model, prepared, kept):
    """The model's output; ``kept`` is told the size of everything that autograd keeps."""

    def keep(tensor):
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        return model(prepared)


@pytest.mark.parametrize("options", [{}, {"norm": "layer"}, {"dropout": 0.3}, {"norm_position": "pre"}], ids=str)
@pytest.mark.parametrize("name", ["A2^LN+VT", "A1,2^Ngbh", "AS0:1^SN+VS"])
def test_recomputing_changes_memory_and_nothing_else(name, options):
    graphs = [nx.gnm_random_graph(6, 8, seed=1), nx.path_graph(4), "C~"]
    found = []
    for recompute in (False, True):
        torch.manual_seed(0)
        model = build(name, node_types=None, edge_types=None, recompute=recompute, depth=3, **options).train()
        prepared = model.prepare(graphs)
        torch.manual_seed(1)  # of dropout
        kept: list[int] = []
        output = counted(model, prepared, kept)
        output.square().sum().backward()
        gradients = {key: parameter.grad for key, parameter in model.named_parameters()}
        buffers = {key: value for key, value in model.named_buffers() if "num_batches" not in key}
        found.append((output.detach(), gradients, buffers, sum(kept)))
    (output, gradients, buffers, whole), (again, others, kept_buffers, part) = found
    torch.testing.assert_close(again, output)
    torch.testing.assert_close(others, gradients)
    torch.testing.assert_close(kept_buffers, buffers)
    assert part < 0.5 * whole
