"""What encodings promise: they follow the nodes when these are renamed, and do not see the batch around a graph."""

import networkx as nx
import pytest
import torch
from encoding_cases import (
    EVERY,
    GRAPHS,
    INVARIANT,
    OTHERS,
    SIMPLE,
    SMALL_SIGNNET,
    back,
    difference,
    encode,
    name,
    random_encoder,
    rename,
)
from hypothesis import given

from tuplet.encodings import MAP, SPE, BasisNet, LapPE, SignNet
from tuplet.encodings.spectrum import laplacian_matrix, nontrivial
from tuplet.graphs import read
from tuplet.testing import graphs, permute

TOLERANCE = 1e-10


@pytest.mark.parametrize("encoding", INVARIANT, ids=name)
def test_renaming_nodes_renames_vectors(encoding):
    encoder = random_encoder(encoding)
    for seed, graph in enumerate(GRAPHS.values()):
        original, renamed, permutation = rename(graph, seed)
        expected = encode(encoding, encoder, read(original))
        came = back(encoding, encode(encoding, encoder, read(renamed)), original, renamed, permutation)
        assert difference(came, expected) <= TOLERANCE


@given(graphs(max_nodes=7))
def test_renaming_nodes_of_any_graph_renames_vectors(graph):
    permutation = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(graph.num_edges))
    renamed = permute(graph, permutation)
    for encoding in INVARIANT:
        encoder = random_encoder(encoding)
        expected = encode(encoding, encoder, read(graph))
        came = back(encoding, encode(encoding, encoder, read(renamed)), graph, renamed, permutation)
        assert difference(came, expected) <= TOLERANCE, str(encoding)


@pytest.mark.parametrize("encoding", [item for item in OTHERS if isinstance(item, SignNet)], ids=name)
@pytest.mark.parametrize("graph", SIMPLE)
def test_signnet_is_invariant_where_eigenvalues_are_simple(encoding, graph):
    encoder = random_encoder(encoding)
    original, renamed, permutation = rename(SIMPLE[graph])
    expected = encode(encoding, encoder, read(original))
    came = back(encoding, encode(encoding, encoder, read(renamed)), original, renamed, permutation)
    assert difference(came, expected) <= TOLERANCE


def test_what_is_not_claimed_does_not_hold():
    """LapPE sees signs, SignNet sees bases, and a cut eigenspace shows in SPE: the catalogue says so."""
    cycle = read(nx.cycle_graph(8))
    raw = LapPE(4, 5).compute(cycle, torch.float64)["pe_lap_sym_4_cut"]
    turned = rotate(raw, LapPE(4, 5), seed=1)
    flipped = raw * torch.tensor([-1.0, 1.0])
    for encoding, other in ((LapPE(4, 5), flipped), (SignNet(4, 5, **SMALL_SIGNNET), turned)):
        encoder = random_encoder(encoding).requires_grad_(False)
        assert difference(*([encoder({encoding.fields[0]: each}, cycle)] for each in (raw, other))) > 0.01
    encoding = SPE(3, 5, whole="cut", layers=2, hidden=8)
    encoder = random_encoder(encoding)
    original, renamed, permutation = rename(nx.cycle_graph(8))
    came = back(encoding, encode(encoding, encoder, read(renamed)), original, renamed, permutation)
    assert difference(came, encode(encoding, encoder, read(original))) > 1e-5


def rotate(stored, encoding, seed, signs_only=False):
    """Stored eigenvectors of one graph with the basis of every eigenspace turned at random, or signs flipped only."""
    n = int(len(stored) ** 0.5) if encoding.unbounded else len(stored)
    table = stored.reshape(n, -1, 2).clone()
    generator = torch.Generator().manual_seed(seed)
    values = table[0, :, 1]
    for value in values[values > 0].unique():
        columns = (values == value).nonzero()[:, 0]
        d = len(columns)
        turn, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=table.dtype))
        if signs_only:
            turn = torch.diag(torch.randint(0, 2, (d,), generator=generator) * 2.0 - 1).to(table)
        table[:, columns, 0] = table[:, columns, 0] @ turn
    return table.reshape(stored.shape)


BASIS_INVARIANT = [item for item in INVARIANT if isinstance(item, (BasisNet, SPE))]


def turned_batch(encoding, signs_only):
    """All graphs as one batch, their raw statistics, and the same with every eigenspace turned (or signs flipped)."""
    batch = read(list(GRAPHS.values()))
    raw = encoding.compute(batch, torch.float64)
    (field,) = encoding.fields
    parts = raw[field].split(encoding.rows(batch)[field])
    turned = torch.cat([rotate(part, encoding, seed, signs_only) for seed, part in enumerate(parts)])
    return batch, raw, {field: turned}


@pytest.mark.parametrize("encoding", BASIS_INVARIANT, ids=name)
@pytest.mark.parametrize("training", [False, True])
def test_turning_every_eigenspace_changes_nothing(encoding, training):
    encoder = random_encoder(encoding).train(training).requires_grad_(False)
    batch, raw, turned = turned_batch(encoding, signs_only=False)
    assert difference([raw[encoding.fields[0]]], [turned[encoding.fields[0]]]) > 0.1
    assert difference([encoder(turned, batch)], [encoder(raw, batch)]) <= 1e-8


@pytest.mark.parametrize("encoding", [item for item in OTHERS if isinstance(item, SignNet)], ids=name)
@pytest.mark.parametrize("training", [False, True])
def test_flipping_signs_does_not_change_signnet(encoding, training):
    encoder = random_encoder(encoding).train(training).requires_grad_(False)
    batch, raw, flipped = turned_batch(encoding, signs_only=True)
    assert difference([raw[encoding.fields[0]]], [flipped[encoding.fields[0]]]) > 0.1
    assert difference([encoder(flipped, batch)], [encoder(raw, batch)]) <= 1e-8


@pytest.mark.parametrize("encoding", EVERY, ids=name)
def test_a_graph_alone_is_a_graph_in_a_batch(encoding):
    encoder = random_encoder(encoding)
    together = read(list(GRAPHS.values()))
    expected = encode(encoding, encoder, together)
    alone = [encode(encoding, encoder, read(graph)) for graph in GRAPHS.values()]
    assert difference([torch.cat(parts) for parts in zip(*alone, strict=True)], expected) <= TOLERANCE


@pytest.mark.parametrize(
    "encoding", [LapPE(30, 5), SPE(30, 5, layers=2, hidden=8), BasisNet(30, 5), MAP(30, 5)], ids=name
)
def test_padding_has_no_say(encoding):
    """All eigenvectors of small graphs, padded to 30 columns, in a matrix of n columns, or all kept, encode alike."""
    batch = read(list(GRAPHS.values()))
    encoder = random_encoder(encoding)
    expected = encode(encoding, encoder, batch)
    for options in ({"vectors": "all"}, {"whole": "keep"}, {"vectors": 19}):
        other = type(encoding)(**{**vars(encoding), **options})
        twin = other.encoder().double().eval()
        twin.load_state_dict(encoder.state_dict())
        assert difference(encode(other, twin, batch), expected) <= TOLERANCE


def perturbed(graph: nx.Graph, encoding, size: float, seed: int = 0):
    """Raw statistics of a graph whose edges have weights 1 + size·noise."""
    adjacency = torch.from_numpy(nx.to_numpy_array(graph))[None]
    noise = torch.rand(adjacency.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    weighted = adjacency * (1 + size * (noise + noise.mT))
    values, vectors = nontrivial(*torch.linalg.eigh(laplacian_matrix(weighted, encoding.laplacian)))
    return {encoding.fields[0]: encoding.entries(values, vectors).flatten(0, 2)}


@pytest.mark.parametrize("graph", ["cycle", "petersen", "star", "two components"])
def test_spe_is_stable_where_lappe_is_not(graph):
    """A perturbation of size ε moves SPE by a multiple of ε, and LapPE by something that does not shrink with ε."""
    batch = read(GRAPHS[graph])
    moves = {}
    for encoding in (SPE("all", 5, layers=2, hidden=8), LapPE("all", 5)):
        encoder = random_encoder(encoding)
        with torch.no_grad():
            still = encoder(perturbed(GRAPHS[graph], encoding, 0.0), batch)
            moved = [encoder(perturbed(GRAPHS[graph], encoding, size), batch) for size in (1e-4, 1e-6)]
        moves[type(encoding)] = [float((each - still).abs().max() / still.abs().max()) for each in moved]
    coarse, fine = moves[SPE]
    assert coarse < 1e-2
    assert fine == pytest.approx(coarse / 100, rel=0.3)
    assert min(moves[LapPE]) > 100 * coarse


def test_spe_moves_less_than_lappe_when_an_edge_goes():
    """Moves of vectors in units of how much the vectors of nodes differ at all."""
    before = [nx.gnp_random_graph(24, 0.15, seed=seed) for seed in range(12)]
    after = [graph.copy() for graph in before]
    for graph in after:
        graph.remove_edge(*sorted(graph.edges)[3])
    moves = {}
    for encoding in (SPE("all", 5, layers=2, hidden=8), LapPE("all", 5)):
        encoder = random_encoder(encoding)
        old, new = (encode(encoding, encoder, read(graphs))[0] for graphs in (before, after))
        moves[type(encoding)] = float(((new - old) / old.std(0)).square().mean().sqrt())
    assert moves[SPE] < 0.4
    assert moves[LapPE] > 2 * moves[SPE]
