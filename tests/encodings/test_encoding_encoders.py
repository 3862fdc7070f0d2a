"""Encoders at the edges: finite, trainable, compiled, and on the GPU."""

import networkx as nx
import pytest
import torch
from encoding_cases import EVERY, GRAPHS, name

from tuplet.encodings import KNOWN, RWSE, LapPE, parse
from tuplet.encodings.layers import GIN, MaskedBatchNorm
from tuplet.errors import InputError
from tuplet.graphs import read


def tensors(out):
    return list(out.values()) if isinstance(out, dict) else [out]


@pytest.mark.parametrize("encoding", EVERY, ids=name)
def test_outputs_and_gradients_are_finite_on_every_edge_case(encoding):
    for graph in [*GRAPHS.values(), list(GRAPHS.values())]:
        batch = read(graph)
        raw = encoding.compute(batch)
        encoding.check(raw, batch)
        assert all(torch.isfinite(value).all() for value in raw.values())
        encoder = encoding.encoder()
        for training in (True, False):
            out = tensors(encoder.train(training)(raw, batch))
            assert all(part.shape[1] == encoding.width for part in out)
            assert all(torch.isfinite(part).all() for part in out)
            encoder.zero_grad()
            sum(part.square().sum() for part in out).backward()
            assert all(torch.isfinite(p.grad).all() for p in encoder.parameters() if p.grad is not None)
        assert all(torch.isfinite(value).all() for value in encoder.state_dict().values())


@pytest.mark.parametrize("encoding", EVERY, ids=name)
def test_every_parameter_learns(encoding):
    batch = read(list(GRAPHS.values()))
    encoder = encoding.encoder()
    out = tensors(encoder(encoding.compute(batch), batch))
    sum((part * torch.randn_like(part)).sum() for part in out).backward()
    for key, parameter in encoder.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key


@pytest.mark.parametrize("kind", KNOWN.values(), ids=KNOWN)
def test_directed_graphs_have_every_encoding(kind):
    batch = read([nx.DiGraph([(0, 1), (1, 2), (2, 0), (2, 3)]), nx.DiGraph([(0, 1)])], directed=True)
    encoding = kind()
    raw = encoding.compute(batch)
    encoding.check(raw, batch)
    assert all(torch.isfinite(part).all() for part in tensors(encoding.encoder()(raw, batch)))


def test_signs_are_flipped_graph_by_graph_in_training_only():
    batch = read([nx.path_graph(4)] * 40)
    encoding = LapPE(1, 5)
    encoder, raw = encoding.encoder(), encoding.compute(batch)
    seen = {tuple(part[0].tolist()) for part in encoder(raw, batch).detach().round(decimals=4).split(4)}
    assert len(seen) == 2
    assert torch.equal(encoder.eval()(raw, batch)[:4], encoder(raw, batch)[4:8])
    still = LapPE(1, 5, flip=False).encoder().train()
    assert torch.allclose(still(raw, batch)[:4], still(raw, batch)[4:8])


@pytest.mark.parametrize(
    "short", ["SignNet:all:6:phi_layers=2", "SPE:all:6:layers=2", "BasisNet:4:6", "MAP:4:6", "RWSE:4:6"]
)
def test_a_checked_forward_compiles_as_one_graph(short):
    encoding = parse(short)
    batch = read([nx.cycle_graph(5), nx.path_graph(3)])
    raw = encoding.compute(batch)
    encoding.check(raw, batch)
    encoder = encoding.encoder().eval()
    compiled = torch.compile(encoder, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(raw, batch), encoder(raw, batch), atol=1e-5)
    torch._dynamo.reset()


def test_statistics_of_another_batch_are_refused_in_words():
    batch, other = read(nx.path_graph(3)), read(nx.path_graph(4))
    with pytest.raises(InputError, match=r"^pe_rwse_20: expected 4 rows for this batch; came 3\."):
        RWSE().check(RWSE().compute(batch), other)
    with pytest.raises(InputError, match=r"^pe_rwse_20: .* came none\. Apply Precompute\(\[RWSE"):
        RWSE().check({}, other)


@pytest.mark.parametrize("training", [True, False])
def test_masked_batch_norm_is_batch_norm_of_what_is_there(training):
    ours, theirs = MaskedBatchNorm(3).double(), torch.nn.BatchNorm1d(3, momentum=None).double()
    for _ in range(4):  # within the first ten batches, running statistics are plain means
        x, mask = torch.randn(7, 5, 3, dtype=torch.float64), torch.rand(7, 5) > 0.4
        came, expected = ours(x, mask), theirs(x[mask])
    if not training:
        came, expected = ours.eval()(x, mask), theirs.eval()(x[mask])
    assert torch.allclose(came[mask], expected)
    assert (came[~mask] == 0).all()
    assert torch.allclose(ours.mean, theirs.running_mean)
    assert torch.allclose(ours.var, theirs.running_var)


def test_running_statistics_forget_old_batches():
    norm = MaskedBatchNorm(1)
    for value in [0.0] * 10 + [1.0]:
        norm(torch.tensor([[value - 1], [value + 1]]))
    assert norm.mean.item() == pytest.approx(0.1)


def test_one_row_or_none_is_a_training_batch():
    norm = MaskedBatchNorm(2)
    assert torch.equal(norm(torch.ones(1, 2)), torch.zeros(1, 2))
    assert torch.equal(norm(torch.ones(3, 2), torch.zeros(3)), torch.zeros(3, 2))
    assert norm(torch.ones(0, 2)).shape == (0, 2)
    assert torch.equal(norm.mean, torch.zeros(2))


def test_gin_hears_both_ends_of_directed_edges():
    directed = nx.DiGraph([(0, 1), (1, 2)])
    gin = GIN(2, 4, 2).eval()
    x, mask = torch.randn(3, 5, 2), torch.ones(3, 5, dtype=torch.bool)
    expected = gin(x, mask, read(directed.to_undirected()))
    assert torch.allclose(gin(x, mask, read(directed, directed=True)), expected, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", list(KNOWN.values()), ids=lambda kind: kind.__name__)
def test_the_gpu_agrees(kind):
    encoding = kind()
    batch = read(list(GRAPHS.values()))
    encoder = encoding.encoder().double().eval()
    expected = tensors(encoder(encoding.compute(batch, torch.float64), batch))
    moved = batch.to("cuda")
    raw = encoding.compute(moved, torch.float64)
    came = tensors(encoder.cuda()(raw, moved))
    assert all(value.is_cuda for value in raw.values())
    for a, b in zip(came, expected, strict=True):
        assert torch.allclose(a.cpu(), b, atol=1e-9)
