"""The baselines: their face, their symmetries, and what they tell apart."""

import re

import networkx as nx
import pytest
import torch
from baseline_cases import FEATURES, GRAPHS, ODD, TASKS, WITH_EDGES, WITHOUT_EDGES, make
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from tuplet import testing
from tuplet.encodings import Precompute
from tuplet.errors import InputError, ModelNameError, OptionError
from tuplet.graphs.door import as_data
from tuplet.graphs.graph6 import from_graph6
from tuplet.models.baselines import (
    NAMES,
    BaselineConfig,
    PreparedGraphs,
    build_baseline,
    graphormer,
    ppgn,
)
from tuplet.models.baselines.paths import Paths
from tuplet.theory.bank import classes, hard_graphs, judge, largest_gaps, small_graphs


class TestSymmetry:
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("task", TASKS)
    @settings(max_examples=8)
    @given(graphs=st.lists(GRAPHS, min_size=2, max_size=4), seed=st.integers(0, 9))
    def test_nodes_and_batch(self, name, task, graphs, seed):
        torch.manual_seed(seed)
        model = make(name, task=task, **FEATURES)
        testing.assert_permutation_equivariant(model, graphs[0], seed=seed)
        testing.assert_batch_invariant(model, graphs)

    @pytest.mark.parametrize(
        "options", [{"norm": "layer"}, {"norm": "none"}, {"pool": "add"}, {"pool": "max"}], ids=str
    )
    @pytest.mark.parametrize("name", NAMES)
    @settings(max_examples=2)
    @given(graphs=st.lists(GRAPHS, min_size=2, max_size=3))
    def test_options(self, name, options, graphs):
        for task in ("graph", "node"):
            model = make(name, task=task, activation="relu", **FEATURES, **options)
            testing.assert_permutation_equivariant(model, graphs[0])
            testing.assert_batch_invariant(model, graphs)

    @pytest.mark.parametrize("task", TASKS)
    @settings(max_examples=4)
    @given(graphs=st.lists(GRAPHS, min_size=2, max_size=4))
    def test_a_virtual_node(self, task, graphs):
        model = make("Graphormer", task=task, virtual_node=True, **FEATURES)
        testing.assert_permutation_equivariant(model, graphs[0])
        testing.assert_batch_invariant(model, graphs)

    @pytest.mark.parametrize("name", NAMES)
    @settings(max_examples=4)
    @given(graphs=st.lists(GRAPHS, min_size=2, max_size=3), seed=st.integers(0, 99))
    def test_directed_graphs(self, name, graphs, seed):
        directed = []
        for graph in graphs:
            keep = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(seed)) < 0.6
            attributes = {"x": graph.x, "edge_attr": graph.edge_attr[keep], "num_nodes": graph.num_nodes}
            directed.append(Data(edge_index=graph.edge_index[:, keep], **attributes))
        model = make(name, task="node", directed=True, **FEATURES)
        testing.assert_permutation_equivariant(model, directed[0], seed=seed)
        testing.assert_batch_invariant(model, directed)

    @pytest.mark.parametrize(
        "encodings", [["RWSE:4:5"], ["SPD:3:4", "RRWP:3:4"], ["EdgeRWSE:4:5"], ["HodgeRW:4:5:dim=1"]], ids=str
    )
    @pytest.mark.parametrize("name", NAMES)
    def test_encodings_are_read_and_keep_the_symmetries(self, name, encodings):
        if name in WITHOUT_EDGES and encodings[0].startswith(("Edge", "Hodge")):
            with pytest.raises(OptionError, match=f"describes edges, which {name} does not read"):
                make(name, encodings=encodings)
            return
        model = make(name, encodings=encodings, node_types=3)
        graphs = [as_data(graph) for graph in (nx.lollipop_graph(4, 3), nx.cycle_graph(5), nx.path_graph(2))]
        for graph in graphs:
            graph.x = torch.arange(graph.num_nodes) % 3  # attention over equal nodes would not see edges
        testing.assert_permutation_equivariant(model, graphs[0])
        testing.assert_batch_invariant(model, graphs)
        output = model(graphs)
        output.sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        stored = Precompute(encodings, dtype=torch.float64).many(graphs)
        assert torch.equal(model(stored), output)
        for graph in stored:
            for field in [field for field in graph.keys() if field.startswith("pe_")]:  # noqa: SIM118
                graph[field] = graph[field] + 1
        assert not torch.allclose(model(stored), output)

    def test_padding_that_leaks_is_seen(self, monkeypatch):
        """The checks can fail: rows of another graph in the place of zeros, and padded keys that are not masked."""
        graphs = [nx.gnm_random_graph(8, 12, seed=1), nx.gnm_random_graph(7, 9, seed=2)]
        real = ppgn.take
        for module, name in ((ppgn, "PPGN"), (graphormer, "Graphormer")):
            model = make(name)
            testing.assert_batch_invariant(model, graphs)
            monkeypatch.setattr(module, "take", lambda x, rows: real(x, rows.clamp(max=len(x) - 1)))
            if name == "Graphormer":
                monkeypatch.setattr(torch.Tensor, "masked_fill", lambda x, mask, value: x)
            with pytest.raises(AssertionError, match="the batch around a graph"):
                testing.assert_batch_invariant(model, graphs)

    def test_a_path_chosen_by_numbering_is_seen(self, monkeypatch):
        square = Data(
            x=torch.arange(4),
            edge_index=torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3]]),
            edge_attr=torch.tensor([0, 0, 1, 1, 0, 0, 2, 2]),
        )
        model = make("Graphormer", edge_types=3, node_types=4, task="node")
        for seed in range(4):
            testing.assert_permutation_equivariant(model, square, seed=seed)
        real = Paths.prepare

        def first_edges(*arguments):
            paths = real(*arguments)
            steps = (paths.pair * 10 + paths.place % arguments[3]).tolist()
            keep = torch.tensor([steps.index(step) == place for place, step in enumerate(steps)])
            return Paths(paths.pair[keep], paths.place[keep], paths.weight[keep])

        monkeypatch.setattr(Paths, "prepare", first_edges)
        with pytest.raises(AssertionError, match="renaming nodes"):
            testing.assert_permutation_equivariant(model, square, seed=1)


class TestFace:
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("task", TASKS)
    def test_shapes_and_finite_gradients_on_odd_graphs(self, name, task):
        """In training mode, alone and together; every parameter is used."""
        model = make(name, task=task, dropout=0.1).float().train()
        graphs = [from_graph6(text) for text in ODD]
        graphs.append(Data(edge_index=torch.tensor([[0, 0, 1], [0, 1, 0]]), num_nodes=3))  # a self loop
        for graph in graphs:
            graph.edge_label_index = torch.tensor([[0, graph.num_nodes - 1], [graph.num_nodes - 1, 0]])
            assert torch.isfinite(model([graph])).all()
        output = model(graphs)
        rows = {"graph": len(graphs), "node": sum(g.num_nodes for g in graphs), "edge": 2 * len(graphs)}[task]
        assert output.shape == (rows, 2)
        output.square().sum().backward()
        for parameter_name, parameter in model.named_parameters():
            assert parameter.grad is not None, parameter_name
            assert torch.isfinite(parameter.grad).all(), parameter_name

    @pytest.mark.parametrize("name", NAMES)
    def test_gradients_reach_every_parameter_with_features(self, name):
        model = make(name, depth=3, norm="layer", **FEATURES).train()
        graph = as_data(nx.gnm_random_graph(9, 14, seed=0))
        graph.x, graph.edge_attr = torch.arange(9) % 3, (graph.edge_index.sum(0) % 2).long()
        model([graph, graph]).square().sum().backward()
        still = [key for key, parameter in model.named_parameters() if not parameter.grad.abs().max() > 0]
        # without a self loop in the batch nothing is said about loops; a bias that shifts all scores of a softmax alike has no effect
        assert all(re.search(r"loops|attention\.key_value\.bias", key) for key in still), still

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("how", ["autocast", "bfloat16", "float16"])
    def test_low_precision_has_no_nan(self, name, how):
        model = make(name, norm="layer", edge_types=None if name in WITHOUT_EDGES else 2).float()
        graphs = [from_graph6(text) for text in ODD]
        for graph in graphs if name in WITH_EDGES else ():
            graph.edge_attr = torch.zeros(graph.num_edges, dtype=torch.long)
        model = model if how == "autocast" else model.to(getattr(torch, how))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=how == "autocast"):
            output = model(graphs)
        output.float().square().mean().backward()
        assert torch.isfinite(output).all()
        assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())

    @pytest.mark.parametrize("name", NAMES)
    def test_prepared_forward_compiles_in_one_graph(self, name):
        torch._dynamo.reset()
        model = make(name)
        prepared = model.prepare(["DDW", "CF"])
        output = torch.compile(model, fullgraph=True, backend="aot_eager")(prepared)
        torch.testing.assert_close(output, model(prepared))
        output.sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())

    @pytest.mark.parametrize("name", NAMES)
    def test_inputs_of_every_kind_and_a_prepared_batch_are_one_graph(self, name):
        model, graph = make(name), nx.path_graph(4)
        text = nx.to_graph6_bytes(graph, header=False).decode().strip()
        batch = Batch.from_data_list([from_graph6(text)])
        before = {key: value.clone() for key, value in batch.to_dict().items() if isinstance(value, torch.Tensor)}
        prepared = model.prepare(batch)
        assert isinstance(prepared, PreparedGraphs)
        assert model.device == torch.device("cpu")
        expected = model(prepared)
        assert all(torch.equal(model(each), expected) for each in (graph, text, [graph], batch, prepared))
        assert all(torch.equal(batch[key], value) for key, value in before.items())
        wider = make(name, dim=24)
        assert torch.equal(wider(prepared), wider(graph))
        other = make("GIN" if name != "GIN" else "GCN")
        for model in (other, make(name, task="node"), make(name, encodings=["DEG:4:4"])):
            with pytest.raises(InputError, match="prepared"):
                model(prepared)

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    @pytest.mark.parametrize("name", NAMES)
    def test_gpu_agrees_with_the_cpu(self, name):
        model = make(name, task="node", encodings=["RWSE:4:4"])
        expected = model([*ODD])
        output = model.cuda()([*ODD])
        assert output.device.type == model.device.type == "cuda"
        torch.testing.assert_close(output.cpu(), expected)

    @pytest.mark.parametrize("name", NAMES)
    def test_it_learns(self, name):
        """Twelve graphs with one real number each, in training mode: the loss falls to a twentieth of where it began."""
        torch.manual_seed(1)
        graphs = [nx.gnm_random_graph(6 + number % 4, 8 + number, seed=number) for number in range(12)]
        targets = torch.linspace(-1, 1, 12)[torch.randperm(12)][:, None]
        model = build_baseline(BaselineConfig(name, dim=24, depth=3, heads=4, encodings=["RWSE:4:8"]))
        prepared = model.prepare(graphs)
        optimiser = torch.optim.AdamW(model.parameters(), 3e-3)
        losses = []
        for _ in range(150):
            loss = (model(prepared) - targets).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        assert min(losses[-10:]) < losses[0] / 20

    @pytest.mark.parametrize("name", WITH_EDGES)
    def test_features_of_edges_and_loops_count(self, name):
        model = make(name, edge_types=3, node_types=6)
        graph = as_data(nx.gnm_random_graph(6, 8, seed=0))
        graph.x = torch.arange(6)
        graph.edge_attr = torch.zeros(graph.num_edges, dtype=torch.long)
        plain = model(graph)
        graph.edge_attr[graph.edge_index.sum(0) == graph.edge_index[:, 0].sum()] = 2
        assert not torch.allclose(model(graph), plain)
        outputs = []
        for kind in (0, 1):
            looped = Data(
                x=torch.tensor([0, 1]),
                edge_index=torch.tensor([[0, 1, 0], [1, 0, 0]]),
                edge_attr=torch.tensor([0, 0, kind]),
                num_nodes=2,
            )
            outputs.append(model(looped))
        assert not torch.allclose(*outputs)

    @pytest.mark.parametrize("name", WITHOUT_EDGES)
    def test_gcn_and_gin_say_that_they_read_no_edges(self, name):
        with pytest.warns(UserWarning, match=f"edge features are ignored: {name} does not read them"):
            model = build_baseline(BaselineConfig(name, edge_types=2))
        graph = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), edge_attr=torch.tensor([0, 0]), num_nodes=2)
        output = model(graph)
        graph.edge_attr = torch.tensor([1, 1])
        assert torch.equal(model(graph), output)

    def test_input_that_does_not_fit_is_refused_or_announced(self):
        with pytest.warns(UserWarning, match="x is ignored"):
            make("GIN")(Data(x=torch.zeros(2, 1), edge_index=torch.empty(2, 0, dtype=torch.long)))
        with pytest.raises(InputError, match="x: expected 1 column"):
            make("GIN", node_types=3)("DDW")
        with pytest.raises(InputError, match="edge_label_index"):
            make("PPGN", task="edge")("DDW")
        with pytest.warns(UserWarning, match="one graph"):
            make("GPS").train()("DDW")

    def test_options_that_make_no_sense_are_refused_in_words(self):
        cases = [
            ({"name": "GCM"}, r"expected one of GCN, GAT, .*; came 'GCM'; did you mean GCN\?"),
            ({"name": "GIN", "dim": 0}, "dim: expected a positive int; came 0"),
            ({"name": "GIN", "task": "graphs"}, "task: expected one of 'graph', 'node', 'edge'; came 'graphs'"),
            ({"name": "GIN", "norm": "group"}, "norm: expected one of 'batch', 'layer', 'none'; came 'group'"),
            ({"name": "GIN", "dropout": 1.0}, r"dropout: expected a number in \[0, 1\); came 1.0"),
            ({"name": "GIN", "encodings": ["RWS:4"]}, "encoding: expected one of"),
            ({"name": "GINE", "encodings": ["HodgeRW:4:4:dim=2"]}, "dimension 2"),
            ({"name": "GAT", "dim": 10}, "heads: expected a divisor of dim = 10; came 4"),
            ({"name": "PNA", "dim": 10}, "heads: expected a divisor of dim = 10; came 4"),
            ({"name": "GIN", "node_types": 2, "node_dim": 2}, "node_types and node_dim"),
            ({"name": "GIN", "degrees": [1]}, "degrees: an option of PNA; came"),
            ({"name": "PNA", "degrees": [0, 0]}, "degrees: expected how many nodes"),
            ({"name": "PNA", "degrees": 3}, "degrees: expected how many nodes"),
            ({"name": "GPS", "max_path": 3}, "max_path: an option of Graphormer; came 3 for GPS"),
            ({"name": "Graphormer", "virtual_node": "no"}, "virtual_node: expected True or False; came 'no'"),
            ({"name": "GPS", "virtual_node": True}, "virtual_node: an option of Graphormer; came True for GPS"),
            ({"name": "Graphormer", "max_distance": 0}, "max_distance: expected a positive int; came 0"),
        ]
        for options, message in cases:
            with pytest.raises((OptionError, ModelNameError), match=message):
                BaselineConfig(**options)
        with pytest.raises(OptionError, match=r"dims: no such option of GIN; did you mean dim\?"):
            BaselineConfig.of("GIN", dims=3)
        assert BaselineConfig.of("GIN", dim=10, node_types=[2, 3]) == BaselineConfig("GIN", dim=10, node_types=(2, 3))
        assert len({BaselineConfig(name, node_types=[2, 3], encodings=["RWSE:4:4"]) for name in NAMES}) == len(NAMES)


class TestPower:
    """Random weights in float64; the threshold is set by relabelled copies, as ``tuplet.theory.separation`` says."""

    @pytest.mark.parametrize("bank", [small_graphs(6), hard_graphs()], ids=["atlas", "hard"])
    @pytest.mark.parametrize(
        "name, test",
        [
            *[(name, "1-WL") for name in ("GIN", "GINE", "PNA", "GPS", "GatedGCN")],
            ("2-IGN", "2-WL"),
            ("PPGN", "2-FWL"),
        ],
    )
    def test_separates_exactly_what_the_test_does(self, name, test, bank):
        expected = classes(test, bank)
        assert len(set(expected)) < len(bank) or test == "2-FWL"  # something must stay together
        result = judge(name, largest_gaps(name, bank), expected)
        assert not result.failures, result.remark

    @pytest.mark.parametrize("name", ["GCN", "GAT"])
    def test_means_separate_nothing_beyond_1_wl_and_less(self, name):
        for bank in (small_graphs(6), hard_graphs()):
            number = torch.from_numpy(classes("1-WL", bank))
            gaps = largest_gaps(name, bank)
            assert not (gaps[number[:, None] == number] >= 1).any()
        ends = [as_data(nx.path_graph(4)), as_data(nx.star_graph(3)), as_data(nx.cycle_graph(4))]
        star_and_path = largest_gaps(name, ends)[0, 1]
        assert star_and_path > 1e6 if name == "GCN" else star_and_path < 1  # GCN sees degrees, attention takes means

    def test_rook_and_shrikhande_and_the_cfi_graphs_of_the_3_sun(self):
        rook, shrikhande, *_ = hard_graphs()
        sun, twisted = hard_graphs()[4:6]
        for name in NAMES:
            assert largest_gaps(name, [rook, shrikhande], draws=2)[0, 1] < 1, name
        assert largest_gaps("PPGN", [sun, twisted])[0, 1] > 10
        for name in ("GIN", "2-IGN", "GPS"):
            assert largest_gaps(name, [sun, twisted], draws=2)[0, 1] < 1, name

    def test_encodings_and_distances_go_beyond_1_wl(self):
        """Graphormer's distances do, unless all nodes start out equal: attention over equals is their mean, however weighted.
        Beside a virtual node, which differs, weights count."""
        pentagons = nx.disjoint_union(nx.cycle_graph(5), nx.cycle_graph(5))
        pentagons.add_edge(0, 5)
        decagon = nx.cycle_graph(10)
        decagon.add_edge(0, 5)
        twins = [as_data(decagon), as_data(pentagons)]
        rings = [as_data(nx.cycle_graph(6)), as_data(nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3)))]
        for name in ("GIN", "GPS"):
            assert largest_gaps(name, twins)[0, 1] < 1
            assert largest_gaps(name, rings)[0, 1] < 1
            assert largest_gaps(name, rings, encodings=["RWSE:4:4"])[0, 1] > 1e6
        assert largest_gaps("Graphormer", twins)[0, 1] > 1e6
        assert largest_gaps("Graphormer", rings)[0, 1] < 1
        assert largest_gaps("Graphormer", rings, virtual_node=True)[0, 1] > 1e6
