"""The update of tokens from their parts, and of others that see them, as one operator; in Triton's interpreter without a GPU."""

import copy

import networkx as nx
import pytest
import torch
from torch import nn

pytest.importorskip("triton")

import tuplet
from tuplet.graphs.door import as_data
from tuplet.kernels import Lists
from tuplet.kernels import update as update_module
from tuplet.kernels.rows import MOST
from tuplet.kernels.update import Update, update
from tuplet.models import cross

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def make(width, tables):
    """Of the tokens seen and of those that see them W1, W2, the norm, and the maps of the tables; and Wo."""
    parts = []
    for _ in range(2):
        maps = [nn.Linear(width, width), nn.Linear(width, width), nn.BatchNorm1d(width, momentum=0.3)]
        parts.append(nn.ModuleList([*maps, *(nn.Linear(width, width, bias=False) for _ in range(tables))]))
    modules = nn.ModuleList([*parts, nn.Linear(width, width, bias=False)]).to(DEVICE)
    for parameter in modules.parameters():
        nn.init.normal_(parameter, 0.5 if parameter.dim() == 1 else 0.0, 0.3)
    return modules


def run(modules, xs, vectors, rows, gelu, live):
    *parts, wo = modules
    both = []
    for (first, last, norm, *tables), x in zip(parts, xs, strict=True):
        both.append(Update(x, torch.cat([table(vectors) for table in tables], dim=1), rows, (first, last), norm))
    return update(*both, wo.weight, gelu, live)


def plain(modules, xs, vectors, rows, gelu):
    *parts, wo = modules
    found = []
    for (first, last, norm, *tables), x in zip(parts, xs, strict=True):
        hidden = first(x) + sum(table(vectors)[own] for table, own in zip(tables, rows, strict=True))
        hidden = hidden + wo(found[0]) if found else hidden
        found.append(norm(x + last((nn.GELU() if gelu else nn.ReLU())(hidden))))
    return found


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("tokens", "width", "vectors", "tables", "both", "gelu"),
    [(77, 24, 10, 2, True, True), (2, 16, 3, 1, False, False), (300, 64, 200, MOST, True, False),
     (5000, 16, 150, 2, False, True)],
)  # fmt: skip
def test_against_torch(tokens, width, vectors, tables, both, gelu, masked):
    """Outputs, gradients, running statistics; ``both``: what comes after looks at the tokens seen, too."""
    torch.manual_seed(0)
    modules = make(width, tables)
    other = copy.deepcopy(modules).double()
    tensors = [torch.randn(count, width, device=DEVICE) + 1 for count in (tokens, tokens, vectors)]
    rows = [torch.randint(vectors, (tokens,), device=DEVICE) for _ in range(tables)]
    live = torch.ones(tokens, dtype=torch.bool, device=DEVICE)
    if masked and tokens > 5:
        live[-5:] = False
    grads = [torch.randn(tokens, width, device=DEVICE) * live[:, None] for _ in range(2)]
    inputs = [tensor.clone().requires_grad_() for tensor in tensors]
    kept = [tensor.double().requires_grad_() for tensor in (tensors[0][live], tensors[1][live], tensors[2])]
    lists = [Lists.sort(own, vectors) for own in rows]
    found = run(modules, inputs[:2], inputs[2], lists, gelu, live if masked else None)
    expected = plain(other, kept[:2], kept[2], [own[live] for own in rows], gelu)
    used = slice(0 if both else 1, 2)
    of_found = torch.autograd.grad(found[used], [*inputs, *modules.parameters()], grads[used])
    of_expected = torch.autograd.grad(
        expected[used], [*kept, *other.parameters()], [grad[live].double() for grad in grads[used]]
    )
    pairs = [(a.detach()[live], b.detach()) for a, b in zip(found, expected, strict=True)]
    pairs += [(a[live], b) for a, b in zip(of_found[:2], of_expected[:2], strict=True)]
    pairs += [*zip(of_found[2:], of_expected[2:], strict=True), *zip(modules.buffers(), other.buffers(), strict=True)]
    for a, b in pairs:
        if a.dtype.is_floating_point:  # the number of batches is not counted
            torch.testing.assert_close(a.double(), b.double(), rtol=1e-4, atol=1e-4 * max(1.0, float(b.abs().max())))
    for a in of_found[:2]:
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
    assert len(used) == len(model.updates)
    for key, value in results[1].items():
        if value is not None:
            torch.testing.assert_close(
                results[0][key], value, rtol=1e-4, atol=2e-5, msg=lambda text, key=key: f"{key}: {text}"
            )


def test_the_biases_before_the_norms_have_no_gradient():
    modules = make(16, 1)
    *xs, vectors = (torch.randn(count, 16, device=DEVICE) for count in (40, 40, 6))
    rows = [torch.arange(40, device=DEVICE) % 6]
    sum(z.cos().sum() for z in run(modules, xs, vectors, rows, True, None)).backward()
    for _, last, *_ in list(modules)[:2]:
        assert not last.bias.grad.any()
        assert last.weight.grad.abs().max() > 1e-3


def test_tables_of_low_precision():
    """As autocast has them; the interpreter has no products of bfloat16 matrices."""
    dtype = torch.bfloat16 if DEVICE == "cuda" else torch.float16
    modules = make(32, 2)
    *xs, vectors = (torch.randn(rows, 32, device=DEVICE) for rows in (100, 100, 7))
    rows = [torch.randint(7, (100,), device=DEVICE) for _ in range(2)]
    low = copy.deepcopy(modules)
    with torch.autocast(DEVICE, dtype):
        found = run(low, xs, vectors, rows, True, None)
    for a, b in zip(found, plain(modules, xs, vectors, rows, True), strict=True):
        assert a.dtype == torch.float32
        assert float((a - b).detach().abs().max()) < 0.1
    sum(z.sum() for z in found).backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in low.parameters())


def test_operator_is_sound():
    *parts, wo = make(16, 0)
    xs = [torch.randn(20, 16, device=DEVICE, requires_grad=True) for _ in range(2)]
    tables = [torch.randn(5, 32, device=DEVICE, requires_grad=True) for _ in range(2)]
    rows, empty = torch.arange(20, device=DEVICE) % 5, torch.empty(0, dtype=torch.long, device=DEVICE)
    numbers, special = [rows, empty, empty, empty] * 4, [5] * 4
    parameters = [
        tensor
        for first, last, norm in parts
        for tensor in (first.weight, first.bias, last.weight, norm.weight, norm.bias, last.bias)
    ]
    given = (xs, tables, numbers, special, parameters, wo.weight, None, [1e-5, 1e-5], True)
    torch.library.opcheck(torch.ops.tuplet.update.default, given)
