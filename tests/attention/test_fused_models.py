"""The ``triton`` backend as models meet it: whole models, who picks it, what is said where it cannot run, compiling."""

import warnings
from dataclasses import replace

import pytest
import torch
from fused_cases import DEVICE, GPU
from fused_expected import error
from torch_geometric.data import Data

import tuplet
from tuplet.errors import BackendError
from tuplet.models import Transformer, block, cross, dense
from tuplet.patterns import FusedLines, FusedRows

pytest.importorskip("triton")
needs_gpu = pytest.mark.skipif(not GPU, reason="needs a GPU")
NAMES = ["A2^LN+VT", "A2^Ngbh+", "A1,2^Ngbh", "AS0:1^SN+VS", "A2-Performer"]
MORE = [
    "A3^LN",
    "A3^Ngbh+",
    "A2",
    "A2^Ngbh++LN+VT",
    "A2-ReLU^LN",
    "A2^Ngbh++reweight",
    "AS0:2+bias",
    "A2(connected)^LN",
]
FORMS = [(name, None) for name in NAMES + MORE * GPU] + [("A2^LN+VT", "joint")] + [("A3^Ngbh+VT", "joint")] * GPU


def graph(size):
    """A path with a triangle at its beginning, and an isolated node at its end."""
    edges = [(u, u + 1) for u in range(size - 2)] + [(0, 2)] * (size > 3)
    index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t()
    return Data(edge_index=torch.cat([index, index.flip(0)], 1), num_nodes=size)


GRAPHS = [graph(size) for size in ((12, 7, 1) if GPU else (4, 3))]


def build(name, **options):
    torch.manual_seed(0)
    options = {"dim": 8, "heads": 4, "depth": 2 if GPU else 1, "backend": "triton", **options}
    return tuplet.build(name, task="node", outputs=2, **options).to(DEVICE)


def twin(model, backend, dtype):
    """The same model on another backend, in another precision."""
    other = Transformer(replace(model.config, backend=backend)).to(DEVICE)
    other.load_state_dict(model.state_dict())
    return other.to(dtype).train(model.training)


def results(model, batch):
    """Outputs and the gradients of all parameters, by name."""
    output = model(batch)
    weights = torch.cos(torch.arange(output.numel(), device=output.device)).reshape(output.shape)
    (output * weights).sum().backward()
    grads = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {"output": output.detach(), **grads}


@pytest.mark.parametrize("name, softmax", FORMS)
@pytest.mark.parametrize("training", [True, False] if GPU else [True], ids=str)
def test_models_equal_the_reference(name, softmax, training):
    """In float32; the budget is that of the ``torch`` backend, several times over since errors go through all layers."""
    model = build(name, softmax=softmax).train(training)
    assert any(isinstance(g, FusedLines | FusedRows) for gs in model.prepare(GRAPHS).layouts.patterns for g in gs)
    right = results(twin(model, "reference", torch.float64), GRAPHS)
    rough = results(twin(model, "torch", torch.float32), GRAPHS)
    found = results(model, GRAPHS)
    assert found.keys() == right.keys()
    size = max(float(value.abs().max()) for value in right.values())
    loss = max(error(rough[name], value) / max(float(value.abs().max()), 1e-2 * size) for name, value in right.items())
    for part, value in right.items():
        allowed = (4 * loss + 4 * 2.0**-23) * max(float(value.abs().max()), 1e-2 * size)
        assert error(found[part], value) <= allowed, f"{part}: {error(found[part], value):.2e}, allowed {allowed:.2e}"


@pytest.fixture
def _everywhere(monkeypatch):
    """Kernels serve on a CPU too, in the interpreter, for all that models do."""
    monkeypatch.setattr(block, "has_kernels", lambda x: x.dtype != torch.float64)
    for module in (block, dense, cross):
        monkeypatch.setattr(module, "has_products", lambda x: x.dtype != torch.float64)


@pytest.mark.parametrize("name", ["A2^LN+VT", "A1,2^Ngbh", "AS0:1^SN+VS"])
def test_layers_that_are_computed_again_change_nothing(name, request):
    """To the bit, in exact float32. In the interpreter through all kernels, some of which make a layer's input again from what is kept;
    a GPU leaves such products to the library."""
    if not GPU:
        request.getfixturevalue("_everywhere")
    kept, again = (build(name, recompute=recompute, depth=2).train() for recompute in (False, True))
    expected = results(kept, GRAPHS)
    for part, value in results(again, GRAPHS).items():
        torch.testing.assert_close(value, expected[part], rtol=0, atol=0, msg=part)
    for (part, value), other in zip(kept.named_buffers(), again.buffers(), strict=True):
        torch.testing.assert_close(value, other, rtol=0, atol=0, msg=part)


@pytest.mark.usefixtures("_everywhere")
@pytest.mark.parametrize(
    ("name", "softmax"), [("A2^LN+VT", "groups"), ("A2^LN+VT", "joint"), ("AS0:1^SN+VS", "groups")]
)
def test_layers_that_make_their_inputs_again_equal_the_reference(name, softmax):
    """Each layer is given what the norm before made its tokens of; some kernels write gradients over what is done with."""
    model = build(name, softmax=softmax, depth=2).train()
    right = results(twin(model, "reference", torch.float64), GRAPHS)
    found = results(model, GRAPHS)
    largest = max(float(value.abs().max()) for value in right.values())
    assert max(error(found[part], value) for part, value in right.items()) <= 2e-5 * largest


def test_an_explicit_triton_without_a_gpu_says_so(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(BackendError, match="needs a GPU"):
        tuplet.build("A2^LN", dim=8, backend="triton").cpu()(graph(3))


def test_float64_has_no_kernels_and_says_so():
    model = build("A2^LN").double()
    with pytest.raises(BackendError, match="float64"):
        model(graph(3))


@pytest.mark.parametrize("interpreted", [False, True])
def test_auto_picks_torch_on_a_cpu_without_a_word(interpreted, monkeypatch):
    if interpreted:
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    else:
        monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    model = tuplet.build("A2^LN+VT", dim=8).cpu()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.backend == "torch"
        model.eval()(graph(3))


@needs_gpu
def test_auto_picks_triton_on_a_gpu():
    assert build("A2^LN", backend="auto").backend == "triton"
    assert build("A2^LN", backend="auto").double().backend == "torch"


@pytest.mark.parametrize("compiler", ["aot_eager", pytest.param("inductor", marks=needs_gpu)])
@pytest.mark.parametrize("name", NAMES[:1] + NAMES[1:] * GPU)
def test_the_prepared_forward_compiles_in_one_graph(name, compiler):
    torch._dynamo.reset()
    model = build(name).eval()
    prepared = model.prepare(GRAPHS)
    output = torch.compile(model, fullgraph=True, backend=compiler)(prepared)
    torch.testing.assert_close(output, model(prepared), rtol=1e-4, atol=1e-5)
    output.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
