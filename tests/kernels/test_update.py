"""The update of tokens from their parts as one operator, against torch; in Triton's interpreter without a GPU."""

import copy

import networkx as nx
import pytest
import torch
from kernel_cases import DEVICE, MANY
from torch import nn

pytest.importorskip("triton")

import tuplet
from tuplet.graphs.door import as_data
from tuplet.kernels import Lists
from tuplet.kernels import update as update_module
from tuplet.kernels.rows import MOST
from tuplet.kernels.update import update
from tuplet.models import cross


def make(width, tables):
    """W1, W2, the norm, Wo, and the maps of the tables."""
    maps = [nn.Linear(width, width), nn.Linear(width, width), nn.BatchNorm1d(width, momentum=0.3)]
    maps += [nn.Linear(width, width, bias=False) for _ in range(1 + tables)]
    modules = nn.ModuleList(maps).to(DEVICE)
    for parameter in modules.parameters():
        nn.init.normal_(parameter, 0.5 if parameter.dim() == 1 else 0.0, 0.3)
    return modules


def run(modules, x, other, vectors, rows, gelu, live):
    first, last, norm, beside, *tables = modules
    given = None if other is None else (other, beside.weight)
    mapped = torch.cat([table(vectors) for table in tables], dim=1)
    return update(x, given, mapped, rows, (first, last), norm, gelu, live)


def plain(modules, x, other, vectors, rows, gelu):
    first, last, norm, beside, *tables = modules
    hidden = first(x) + sum(table(vectors)[own] for table, own in zip(tables, rows, strict=True))
    if other is not None:
        hidden = hidden + beside(other)
    return norm(x + last((nn.GELU() if gelu else nn.ReLU())(hidden)))


@pytest.mark.usefixtures("_few_programs")
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("tokens", "width", "vectors", "tables", "beside", "gelu"),
    [(77, 24, 10, 2, True, True), (2, 16, 3, 1, False, False), (300, 64, 200, MOST, True, False),
     (MANY, 16, 150, 2, False, True)],
)  # fmt: skip
def test_against_torch(tokens, width, vectors, tables, beside, gelu, masked):
    torch.manual_seed(0)
    modules = make(width, tables)
    other = copy.deepcopy(modules).double()
    tensors = [torch.randn(count, width, device=DEVICE) + 1 for count in (tokens, tokens, vectors)]
    rows = [torch.randint(vectors, (tokens,), device=DEVICE) for _ in range(tables)]
    live = torch.ones(tokens, dtype=torch.bool, device=DEVICE)
    if masked and tokens > 5:
        live[-5:] = False
    grad = torch.randn(tokens, width, device=DEVICE) * live[:, None]
    found_inputs = [tensor.clone().requires_grad_() for tensor in tensors]
    kept = [tensors[0][live], tensors[1][live], tensors[2]]
    expected_inputs = [tensor.double().requires_grad_() for tensor in kept]
    x, o, v = found_inputs
    lists = [Lists.sort(own, vectors) for own in rows]
    found = run(modules, x, o if beside else None, v, lists, gelu, live if masked else None)
    x, o, v = expected_inputs
    expected = plain(other, x, o if beside else None, v, [own[live] for own in rows], gelu)
    grads = torch.autograd.grad(found, [*found_inputs, *modules.parameters()], grad, allow_unused=True)
    wanted = torch.autograd.grad(
        expected, [*expected_inputs, *other.parameters()], grad[live].double(), allow_unused=True
    )
    pairs = [(found.detach()[live], expected.detach()), (grads[0][live], wanted[0])]
    pairs += [(grads[1][live], wanted[1])] if beside else []
    pairs += [*zip(grads[2:], wanted[2:], strict=True), *zip(modules.buffers(), other.buffers(), strict=True)]
    for a, b in pairs:
        assert (a is None) == (b is None)
        if a is not None and a.dtype.is_floating_point:  # the number of batches is not counted
            torch.testing.assert_close(a.double(), b.double(), rtol=1e-4, atol=1e-4 * max(1.0, float(b.abs().max())))
    for a in grads[: 1 + beside]:
        assert not a[~live].any()


def test_cross_attention_updates_its_keys_and_pairs_by_it(monkeypatch):
    """The same with and without the operator: outputs, gradients, running statistics."""
    graphs = [as_data(nx.path_graph(4)), as_data(nx.cycle_graph(3))]
    model = tuplet.build("A1,2^Ngbh", dim=16, heads=2, depth=3, backend="torch").to(DEVICE)
    other, used = copy.deepcopy(model), []

    def seen(*arguments, **options):
        used.append(1)
        return update(*arguments, **options)

    monkeypatch.setattr(update_module, "update", seen)
    results = []
    for one, kernels in ((model, True), (other, False)):
        monkeypatch.setattr(cross, "has_products", lambda x, kernels=kernels: kernels)
        output = one(graphs)
        output.sum().backward()
        state = {key: value for key, value in one.named_buffers() if "num_batches" not in key}
        grads = {f"{key} grad": parameter.grad for key, parameter in one.named_parameters()}
        results.append({"output": output.detach(), **state, **grads})
    assert len(used) == 2 * len(model.updates)
    for key, value in results[1].items():
        if value is not None:
            torch.testing.assert_close(
                results[0][key], value, rtol=1e-4, atol=2e-5, msg=lambda text, key=key: f"{key}: {text}"
            )


def test_the_bias_before_the_norm_has_no_gradient():
    modules = make(16, 1)
    x, vectors = torch.randn(40, 16, device=DEVICE), torch.randn(6, 16, device=DEVICE)
    rows = [torch.arange(40, device=DEVICE) % 6]
    run(modules, x, None, vectors, rows, True, None).cos().sum().backward()
    assert not modules[1].bias.grad.any()
    assert modules[1].weight.grad.abs().max() > 1e-3


def test_tables_of_low_precision():
    """As autocast has them; the interpreter has no products of bfloat16 matrices."""
    dtype = torch.bfloat16 if DEVICE == "cuda" else torch.float16
    modules = make(32, 2)
    x, o, vectors = (torch.randn(rows, 32, device=DEVICE) for rows in (100, 100, 7))
    rows = [torch.randint(7, (100,), device=DEVICE) for _ in range(2)]
    low = copy.deepcopy(modules)
    with torch.autocast(DEVICE, dtype):
        found = run(low, x, o, vectors, rows, True, None)
    expected = plain(modules, x, o, vectors, rows, True)
    assert found.dtype == torch.float32
    assert float((found - expected).detach().abs().max()) < 0.1
    found.sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in low.parameters())


@pytest.mark.parametrize("beside", [True, False])
def test_operator_is_sound(beside):
    first, last, norm, other, *_ = make(16, 0)
    x, o = (torch.randn(20, 16, device=DEVICE, requires_grad=True) for _ in range(2))
    tables = torch.randn(5, 32, device=DEVICE, requires_grad=True)
    rows, empty = torch.arange(20, device=DEVICE) % 5, torch.empty(0, dtype=torch.long, device=DEVICE)
    numbers = [rows, empty, empty, empty] * 2
    given = [x, o if beside else None, tables, numbers, [5, 5], first.weight, first.bias]
    given += [other.weight if beside else None, last.weight, norm.weight, norm.bias, last.bias, None, 1e-5, True]
    torch.library.opcheck(torch.ops.tuplet.update.default, tuple(given))
