"""Each layer of the baselines against its definition; degrees of PNA."""

import math
from itertools import pairwise

import networkx as nx
import pytest
import torch
from baseline_cases import make
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GPSConv

from tuplet.errors import InputError
from tuplet.graphs.door import as_data
from tuplet.graphs.graph6 import from_graph6
from tuplet.models.baselines import degree_histogram
from tuplet.models.baselines.ign import EquivariantLinear
from tuplet.models.baselines.pairs import Pairs
from tuplet.theory.ign import basis


class TestDefinitions:
    """Each layer against PyG's, or against its formula written out."""

    graph = nx.gnm_random_graph(7, 11, seed=3)

    def data(self):
        data = as_data(self.graph)
        data.edge_attr = (data.edge_index.sum(0) % 3).long()
        return data

    def state(self, name, **options):
        model = make(name, depth=1, edge_types=3, **options)
        prepared = model.prepare([self.data(), from_graph6("D??")])
        x, e, _ = model.inputs(prepared)
        return model, prepared, x, e

    def test_gcn_is_pygs(self):
        model, prepared, x, _ = self.state("GCN", norm="none")
        twin = GCNConv(12, 12).double()
        twin.load_state_dict(model.layers[0].conv.state_dict())
        expected = x + model.layers[0].activation(twin(x, prepared.edge_index))
        torch.testing.assert_close(model.layers[0](x, None, prepared)[0], expected)

    def test_gat_is_pygs(self):
        model, prepared, x, e = self.state("GAT", norm="none")
        twin = GATConv(12, 4, 3, edge_dim=12).double()
        twin.load_state_dict(model.layers[0].conv.state_dict())
        expected = x + model.layers[0].activation(twin(x, prepared.edge_index, e))
        torch.testing.assert_close(model.layers[0](x, e, prepared)[0], expected)

    @pytest.mark.parametrize("norm", ["batch", "none"])
    def test_gps_is_pygs(self, norm):
        model, prepared, x, e = self.state("GPS", norm=norm)
        layer = model.layers[0]
        twin = (
            GPSConv(12, layer.local, heads=3, act="gelu", norm="batch_norm" if norm == "batch" else None)
            .double()
            .eval()
        )
        attention = layer.attention
        with torch.no_grad():
            twin.attn.in_proj_weight.copy_(torch.cat([attention.query.weight, attention.key_value.weight]))
            twin.attn.in_proj_bias.copy_(torch.cat([attention.query.bias, attention.key_value.bias]))
            for ours, theirs in (
                (attention.output, twin.attn.out_proj),
                (layer.feed_forward[0], twin.mlp[0]),
                (layer.feed_forward[3], twin.mlp[3]),
            ):
                theirs.load_state_dict(ours.state_dict())
            for number, ours in enumerate((layer.local_norm, layer.attention_norm, layer.norm), 1):
                if norm == "batch":
                    ours.running_mean.normal_()
                    ours.weight.normal_()
                    getattr(twin, f"norm{number}").module.load_state_dict(ours.state_dict())
        owner = prepared.graph.graph_of_node
        expected = twin(x, prepared.edge_index, batch=owner, edge_attr=e)
        torch.testing.assert_close(layer(x, e, prepared)[0], expected)

    def test_gated_gcn_is_its_formula(self):
        model, prepared, x, e = self.state("GatedGCN", norm="none")
        model = make("GatedGCN", depth=2, edge_types=3, norm="none")
        layer, last = model.layers
        assert last(x, e, prepared)[1] is None
        nodes, edges = layer(x, e, prepared)
        raw = {}
        for number, (u, v) in enumerate(prepared.edge_index.t().tolist()):
            raw[u, v] = layer.source(x[u]) + layer.target(x[v]) + layer.edge(e[number])
            torch.testing.assert_close(edges[number], e[number] + layer.activation(raw[u, v]))
        for v in range(len(x)):
            incoming = [(u, torch.sigmoid(value)) for (u, w), value in raw.items() if w == v]
            top = sum((gate * layer.value(x[u]) for u, gate in incoming), torch.zeros(12).double())
            bottom = sum((gate for _, gate in incoming), torch.zeros(12).double()) + 1e-6
            torch.testing.assert_close(nodes[v], x[v] + layer.activation(layer.root(x[v]) + top / bottom))

    def test_ppgn_multiplies_matrices(self):
        model = make("PPGN", depth=1, norm="layer", edge_types=3)
        graphs = [self.data(), from_graph6("D??"), from_graph6("E?~o"), from_graph6("@")]
        graphs[2].edge_attr = torch.zeros(graphs[2].num_edges, dtype=torch.long)
        for graph in (graphs[1], graphs[3]):
            graph.edge_attr = torch.empty(0, dtype=torch.long)
        prepared = model.prepare(graphs)
        assert [len(stack.nodes) for stack in prepared.pairs.stacks] == [2, 1, 1]  # n = 7 and 6, 5, 1
        x = model.inputs(prepared)
        layer, expected = model.layers[0], []
        for n, own in zip((7, 5, 6, 1), x.split([49, 25, 36, 1]), strict=True):
            square = own.reshape(n, n, 12)
            product = torch.einsum("iwc,wjc->ijc", layer.left(square), layer.right(square))
            expected.append(layer.norm(layer.merge(torch.cat([square, product], dim=2))).reshape(n * n, 12))
        torch.testing.assert_close(layer(x, prepared.pairs), torch.cat(expected))

    @pytest.mark.parametrize("n", [4, 5])
    def test_2_ign_spans_all_15_equivariant_maps(self, n):
        pairs = Pairs.prepare(make("2-IGN").prepare(nx.empty_graph(n)).graph, stacked=False)
        layer = EquivariantLinear(1, 1).double()
        maps = []
        for parameter in layer.parameters():
            for place in range(parameter.numel()) if parameter.dim() == 2 else ():
                torch.nn.utils.vector_to_parameters(torch.zeros(17).double(), layer.parameters())
                with torch.no_grad():
                    parameter.view(-1)[place] = 1
                    columns = [layer(unit[:, None], pairs)[:, 0] for unit in torch.eye(n * n).double()]
                maps.append(torch.stack(columns, dim=1).flatten())
        ours, all_maps = torch.stack(maps), basis(2, 2, n).flatten(1)
        assert len(ours) == int(torch.linalg.matrix_rank(ours)) == len(all_maps) == 15
        assert int(torch.linalg.matrix_rank(torch.cat([ours, all_maps]))) == 15
        with torch.no_grad():
            layer.graph.bias.copy_(torch.tensor([2.0, 3.0]))
            zero = layer(torch.zeros(n * n, 1).double(), pairs)
        assert zero.reshape(n, n).tolist() == [[5.0 if i == j else 2.0 for j in range(n)] for i in range(n)]

    @pytest.mark.parametrize("virtual", [False, True])
    def test_graphormer_is_its_formula(self, virtual):
        options = {
            "virtual_node": virtual,
            "depth": 1,
            "norm": "layer",
            "edge_types": 3,
            "max_distance": 2,
            "max_path": 2,
            "encodings": ["RRWP:2:3"],
        }
        model = make("Graphormer", **options)
        prepared = model.prepare([self.data(), from_graph6("D??")])
        x, e, encoded = model.inputs(prepared)
        degrees = prepared.graph.degrees()[:, 0]
        tables = model.degree.encoder.tables
        x = model.degree(x, prepared)
        torch.testing.assert_close(x, model.inputs(prepared)[0] + tables[0](degrees) + tables[1](degrees))
        layer, bias, rows = model.layers[0], model.bias, list(range(7))
        if virtual:  # the first graph's is the first after all nodes
            torch.nn.init.normal_(bias.virtual)
            rows.append(len(x))
            x = torch.cat([x, model.virtual.expand(2, -1)])
        q, k, v = layer.query_key_value(layer.stream.enter(x))[rows].reshape(-1, 3, 3, 4).unbind(1)
        message = torch.zeros(len(rows), 3, 4).double()
        for i in range(len(rows)):
            scores = torch.stack([self.score(bias, q, k, e, encoded, prepared, i, j) for j in range(len(rows))])
            message[i] = torch.einsum("jh,jhc->hc", scores.softmax(0), v)
        expected = layer.stream.leave(x[rows], message.flatten(1), layer.output)
        ours, _ = layer(x, bias(e, encoded, prepared), prepared)
        torch.testing.assert_close(ours[rows], expected)

    def score(self, bias, q, k, e, encoded, prepared, i, j):
        """q·k / sqrt(c) + b_d + expectation of the mean of e·w along a random shortest path + encodings."""
        graph = self.graph
        if 7 in (i, j):
            return (q[i] * k[j]).sum(1) / 2 + bias.virtual
        distance = nx.shortest_path_length(graph, i, j)
        number = (
            (q[i] * k[j]).sum(1) / 2 + bias.distance.table.weight[min(distance, 3)] + bias.encoded(encoded[7 * i + j])
        )
        for path in nx.all_shortest_paths(graph, i, j) if i != j else ():
            chance, along = 1.0, torch.zeros(3).double()
            for step, (u, v) in enumerate(pairwise(path)):
                left = distance - step - 1
                chance /= sum(nx.shortest_path_length(graph, w, j) == left for w in graph[u])
                if step < 2:
                    edge = int(prepared.graph.edge_number(torch.tensor(u), torch.tensor(v)))
                    along = along + bias.edges(e[edge]).reshape(2, 3)[step] / min(distance, 2)
            number = number + chance * along
        return number

    def test_weights_of_a_path_sum_to_one(self):
        prepared = make("Graphormer", edge_types=3, max_path=3).prepare([self.data(), self.data()])
        total = torch.zeros(98).double().index_add(0, prepared.paths.pair, prepared.paths.weight)
        distance = prepared.graph.statistics["pe_spd"][:, 0]
        torch.testing.assert_close(total, (distance > 0).double())


class TestDegrees:
    def test_histogram(self):
        graphs = [nx.star_graph(3), nx.path_graph(2), nx.empty_graph(2)]
        assert degree_histogram(graphs) == (2, 5, 0, 1)
        arrow = Data(edge_index=torch.tensor([[0, 1, 1], [1, 2, 1]]), num_nodes=3)
        assert degree_histogram([arrow], directed=True) == (1, 2)
        with pytest.raises(InputError, match="at least one graph"):
            degree_histogram([])

    def test_from_the_option_or_from_the_first_batch(self):
        graphs = [nx.star_graph(3), nx.path_graph(2), nx.empty_graph(2)]
        told = make("PNA", degrees=degree_histogram(graphs))
        asked = make("PNA")
        asked.load_state_dict(told.state_dict())
        learned = make("PNA")
        state = {key: value for key, value in told.state_dict().items() if "avg_deg" not in key}
        learned.load_state_dict(state, strict=False)
        learned(graphs)
        mean = (5 * math.log(2) + math.log(4)) / 8
        other = [nx.complete_graph(5)]
        for model in (told, asked, learned):
            assert float(model.layers[0].conv.aggr_module.avg_deg_log) == pytest.approx(mean, rel=1e-6)
            before = {key: value.clone() for key, value in model.state_dict().items()}
            torch.testing.assert_close(model(other), told(other), rtol=1e-6, atol=1e-9)
            assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
        fresh = make("PNA")
        unseen = make("PNA")
        unseen.load_state_dict(fresh.state_dict())  # nothing known yet, and nothing pretended
        unseen(graphs)
        assert float(unseen.layers[0].conv.aggr_module.avg_deg_log) == pytest.approx(mean, rel=1e-6)
        alone = make("PNA")
        assert torch.isfinite(alone(nx.empty_graph(3))).all()  # no edges at all
