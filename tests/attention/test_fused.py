"""The fused kernels against ``reference`` in float64: all of it on a GPU, a part in Triton's interpreter on a CPU.

`pytest tests/attention/test_fused.py` is the whole suite of the kernels where there is a GPU.
"""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations

import fused_expected
import pytest
import torch
from fused_cases import CASES, DEVICE, FACTORS, GPU, SMALL, Case, batch, pairwise
from fused_expected import budgets, compile_kernels, error, fused_result, inputs, laid_for, run_dense, with_gradients
from torch_geometric.data import Data

from tuplet.attention import Rule, attend, reference
from tuplet.graphs import GraphBatch, PaddedBatch, read
from tuplet.patterns import LocalNeighbour, Neighbour
from tuplet.tokens import Tuples

pytest.importorskip("triton")
needs_gpu = pytest.mark.skipif(not GPU, reason="needs a GPU")
TRIED = CASES if GPU else SMALL


@pytest.fixture(scope="session")
def _compiled(request):
    """Compiling takes a second a kernel and one core: on a GPU all cores do it first, for the cases that will be run; unless
    tests are spread over processes as they are (tests/on_gpu.py)."""
    specs = [item.callspec for item in request.session.items if hasattr(item, "callspec")]
    cases = [spec.params["case"] for spec in specs if isinstance(spec.params.get("case"), Case)]
    if GPU and len(cases) > 16 and "SHARE" not in os.environ:
        workers = min(os.cpu_count() or 1, 16)
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            list(pool.map(compile_kernels, cases, chunksize=4))


@pytest.mark.parametrize("case", TRIED, ids=str)
@pytest.mark.usefixtures("_compiled")
def test_kernels_are_as_exact_as_plain_torch(case):
    found = fused_result(case)
    right, limits = budgets(case)
    assert found.keys() == right.keys()
    errors = {name: error(found[name], value) for name, value in right.items()}
    beyond = [
        f"{name}: {errors[name]:.2e}, allowed {limits[name]:.2e}" for name in right if not errors[name] <= limits[name]
    ]
    assert not beyond, "; ".join(beyond)
    assert found["message"].dtype == found["gradient of k"].dtype == case.dtype
    if case.kernel != "relu" and "lse" in right:
        assert found["lse"].dtype == torch.float32
        assert not found["message"][torch.isneginf(right["lse"])].any(), "a query without keys has a message"


def test_the_cases_cover_what_they_should():
    for order, most in ((2, 70), (3, 20)):
        for name in ("LN", "Ngbh", "Ngbh+"):
            sizes = {case.n for case in CASES if case.pattern == f"{name} {order}"}
            assert sizes >= set(range(1, most + 1))
    assert len(CASES) >= 500
    rows = pairwise(FACTORS)
    for a, b in combinations(FACTORS, 2):
        assert {(row[a], row[b]) for row in rows} == {(x, y) for x in FACTORS[a] for y in FACTORS[b]}


@pytest.mark.parametrize("pattern", ["LN 2", "Ngbh 2", "Ngbh+ 3"])
@pytest.mark.parametrize("softmax", ["groups", "joint"])
def test_lines_as_heads_are_the_same_attention(pattern, softmax, monkeypatch):
    """What ``reference`` is given for graphs that are too large for a mask of all pairs of tuples."""
    case = Case(pattern, 3, "directed", relation="bias", softmax=softmax, heads=1)
    laid = laid_for(case)
    tensors, grads = inputs(case, laid)
    results = []
    for tokens in (0, 10_000):
        monkeypatch.setattr(fused_expected, "FOLD", tokens)
        given = [x.double().requires_grad_() for x in tensors]
        results.append(with_gradients(run_dense(case, laid, reference.attend), given, grads))
    assert max(error(results[0][name], value) for name, value in results[1].items()) < 1e-12


AGAIN = [
    Case("LN 2", 30 if GPU else 3, kernel="softmax", relation="bias"),
    Case("Ngbh+ 2", 40 if GPU else 3, kernel="softmax", relation="bias"),
    Case("Ngbh+ 2", 70 if GPU else 2, relation="reweight", softmax="joint", precision="tf32" if GPU else "fp32"),
    Case("Ngbh 3", 12 if GPU else 2, kernel="relu", relation="scale"),
    Case("SN", 60 if GPU else 4, relation="scale", precision="bf16"),
    Case("to virtual", 40 if GPU else 3, kernel="positive"),
]


@pytest.mark.parametrize("case", AGAIN, ids=str)
def test_two_runs_give_the_same_bits(case):
    first, second = fused_result(case), fused_result(case)
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def padded(graph: GraphBatch, nodes: int, edges: int, pairs: int) -> PaddedBatch:
    """The batch with one graph more, of padding, that takes up so many nodes, edges and pairs."""
    total = graph.num_nodes + nodes
    ends = torch.full((nodes,), graph.num_edges, device=graph.device)
    ends[-1] += edges
    return PaddedBatch(
        sizes=(),
        ptr=torch.cat([graph.ptr, graph.ptr.new_tensor([total])]),
        rowptr=torch.cat([graph.rowptr, ends]),
        col=torch.cat([graph.col, graph.col.new_full((edges,), total - 1)]),
        loop=torch.cat([graph.loop, graph.loop.new_full((nodes,), -1)]),
        room=(graph.num_graphs + 1, total, graph.total(2) + pairs),
        bound=graph.largest,
    )


@pytest.mark.parametrize("pattern", [LocalNeighbour(2), Neighbour(2), Neighbour(2, adjacency=True)])
@pytest.mark.parametrize("relation", ["none", "bias"])
def test_padding_has_no_message_and_changes_nothing(pattern, relation):
    graph = batch("ragged", 40 if GPU else 3)
    rule, heads, width = Rule("softmax", relation, 0.5), 3, 8
    torch.manual_seed(0)
    real, pairs = graph.total(2), 37
    tensors = [torch.randn(real + pairs, heads, width, device=DEVICE) for _ in range(4)]
    table = torch.randn(pattern.types, heads, device=DEVICE)
    results = []
    for each, tokens in ((graph, real), (padded(graph, 5, 4, pairs), real + pairs)):
        tuples = Tuples.all(each, 2)
        (fused,) = pattern.fused(tuples, tuples, relation != "none", False)
        q, k, v, grad = (x[:tokens].clone().requires_grad_() for x in tensors)
        own = table.clone().requires_grad_()
        message, lse = attend(q, k, v, fused, own, rule)
        grads = torch.autograd.grad((message * grad).sum(), [q, k, v, own], allow_unused=relation == "none")
        results.append([message, lse, *grads])
    message, lse, *grads = results[1]
    for padding in (message, *grads[:3]):
        assert not padding[real:].any()
    assert torch.isneginf(lse[real:]).all()
    for value, expected in zip(results[1], results[0], strict=True):
        if relation == "bias" or value is not grads[3]:
            torch.testing.assert_close(value[: len(expected)], expected, rtol=1e-5, atol=1e-5)


@needs_gpu
@pytest.mark.parametrize("pattern", [LocalNeighbour(2), Neighbour(2, adjacency=True)])
def test_nothing_of_the_size_of_the_pairs_exists(pattern):
    """n = 300, d = 64: messages, gradients and what they need are eight times the tokens' vectors at most."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(300, (2, 2400), generator=generator)
    graph = read(Data(edge_index=torch.cat([ends, ends.flip(0)], 1), num_nodes=300)).to(DEVICE)
    tuples = Tuples.all(graph, 2)
    (fused,) = pattern.fused(tuples, tuples, True, False)
    tensors = [torch.randn(tuples.total, 4, 16, device=DEVICE, requires_grad=True) for _ in range(3)]
    table = torch.randn(pattern.types, 4, device=DEVICE, requires_grad=True)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    message, _ = attend(*tensors, fused, table, Rule("softmax", "bias", 0.25))
    message.sum().backward()
    vectors = tuples.total * 64 * 4
    assert torch.cuda.max_memory_allocated() - before < 8 * vectors


@pytest.mark.parametrize("case", [Case("LN 2", 2, "one"), Case("Ngbh+ 2", 2, "one", relation="bias")], ids=str)
def test_operator_registration(case):
    """The schema, fake kernel and autograd registration that torch.compile relies on."""
    laid = laid_for(case)
    (q, k, v, table), _ = inputs(case, laid)
    tensors, integers = laid.fused[0].pack()
    given = [x.requires_grad_() for x in (q, k, v, table)]
    arguments = (*given, tensors, integers, case.kernel, case.relation, 0.5)
    results = torch.library.opcheck(torch.ops.tuplet.fused_attend.default, arguments, raise_exception=True)
    assert set(results.values()) == {"SUCCESS"}
