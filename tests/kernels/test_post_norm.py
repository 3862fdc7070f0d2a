"""The second half of a post-norm layer as one operator, against torch's own modules; in Triton's interpreter without a GPU."""

import copy

import pytest
import torch
from kernel_cases import DEVICE, MANY
from torch import nn

from matrix_units import Product

pytest.importorskip("triton")

from tuplet.kernels.post_norm import PostNorm, post_norm


def make(width):
    output = nn.Linear(width, width)
    norms = nn.BatchNorm1d(width), nn.BatchNorm1d(width, momentum=0.3)
    maps = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
    modules = nn.ModuleList([output, *norms, *maps]).to(DEVICE)
    for parameter in modules.parameters():
        nn.init.normal_(parameter, 0.5 if parameter.dim() == 1 else 0.0, 0.3)
    return modules


def run(modules, x, message, gelu, live):
    output, first, last, one, two = modules
    return post_norm(PostNorm(x, message, output, (first, last), (one, two), gelu, live))[0].values


def plain(modules, x, message, gelu, apply=nn.Module.__call__):
    output, first, last, one, two = modules
    y = first(x + apply(output, message))
    return last(y + apply(two, (nn.GELU() if gelu else nn.ReLU())(apply(one, y))))


@pytest.mark.usefixtures("_few_programs")
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("tokens", "width", "gelu"), [(77, 24, True), (2, 16, False), (5, 16, False), (300, 64, False), (MANY, 16, True)]
)
def test_against_torch(tokens, width, gelu, masked):
    torch.manual_seed(0)
    modules = make(width)
    other = copy.deepcopy(modules).double()
    x, message = (torch.randn(tokens, width, device=DEVICE) + 1 for _ in range(2))
    live = torch.ones(tokens, dtype=torch.bool, device=DEVICE)
    if masked and tokens > 5:
        live[-5:] = False
    grad = torch.randn_like(x) * live[:, None]
    inputs = [[tensor.clone().requires_grad_() for tensor in (x, message)]]
    inputs.append([tensor[live].double().requires_grad_() for tensor in (x, message)])
    found = run(modules, *inputs[0], gelu, live if masked else None)
    expected = plain(other, *inputs[1], gelu)
    grads = torch.autograd.grad(found, [*inputs[0], *modules.parameters()], grad)
    wanted = torch.autograd.grad(expected, [*inputs[1], *other.parameters()], grad[live].double())
    pairs = [(found[live], expected), *((a[live], b) for a, b in zip(grads[:2], wanted[:2], strict=True))]
    pairs += [*zip(grads[2:], wanted[2:], strict=True), *zip(modules.buffers(), other.buffers(), strict=True)]
    for a, b in pairs:
        if a.dtype.is_floating_point:  # the number of batches is not counted
            torch.testing.assert_close(a.double(), b.double(), rtol=1e-4, atol=1e-4 * max(1.0, float(b.abs().max())))
    for a in grads[:2]:
        assert not a[~live].any()


def test_layer_after_layer_keeps_neither_tokens_nor_sums():
    """The second layer is given what the first one's norm made its tokens of: the same results, and two vectors fewer kept."""
    torch.manual_seed(0)
    layers = [make(24), make(24)]
    others = copy.deepcopy(layers)
    x, *messages = (torch.randn(70, 24, device=DEVICE, requires_grad=True) for _ in range(3))
    live = torch.arange(70, device=DEVICE) < 66
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append((t.data_ptr(), t.shape)) or t, lambda t: t):
        first = post_norm(stream(layers[0], x, messages[0], live))[0]
        kept.clear()
        (second,) = post_norm(stream(layers[1], first, messages[1], live))
    assert len({at for at, shape in kept if shape == x.shape}) == 3  # the message, t before and t after
    assert first.values.data_ptr() not in {at for at, _ in kept}
    y = plain(others[0], x[live], messages[0][live], True)
    expected = plain(others[1], y, messages[1][live], True)
    grad = torch.randn_like(x) * live[:, None]
    given = [x, *messages]
    found = torch.autograd.grad(second.values, [*given, *layers[0].parameters(), *layers[1].parameters()], grad)
    wanted = torch.autograd.grad(
        expected, [*given, *others[0].parameters(), *others[1].parameters()], grad[live], allow_unused=True
    )
    torch.testing.assert_close(second.values[live], expected, rtol=1e-4, atol=1e-4)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * max(1.0, float(b.abs().max())))


def test_biases_before_a_norm_have_no_gradient():
    torch.manual_seed(0)
    modules = make(16)
    x, message = torch.randn(40, 16, device=DEVICE), torch.randn(40, 16, device=DEVICE)
    run(modules, x, message, True, None).cos().sum().backward()
    for module in (modules[0], modules[4]):
        assert not module.bias.grad.any()
        assert module.weight.grad.abs().max() > 1e-3


def test_messages_of_low_precision():
    """As autocast has them; the interpreter has no products of bfloat16 matrices."""
    dtype = torch.bfloat16 if DEVICE == "cuda" else torch.float16
    torch.manual_seed(0)
    modules = make(32)
    x, message = torch.randn(100, 32, device=DEVICE), torch.randn(100, 32, device=DEVICE)
    low = message.to(dtype).requires_grad_()
    found = run(modules, x, low, True, None)
    expected = plain(copy.deepcopy(modules), x, message, True)
    assert found.dtype == torch.float32
    assert float((found - expected).abs().max()) < 0.1
    found.sum().backward()
    assert low.grad.dtype == dtype


def test_several_streams_and_tf32_in_one_operator():
    """Each stream as if alone; in tf32 results and gradients are as wrong as those of torch's own modules, not by a bit more."""
    off = [errors_in_tf32(seed) for seed in range(4)]
    mine, torchs = torch.tensor(off).mean((0, 1))
    assert 1e-6 < mine < 1.5 * torchs


def errors_in_tf32(seed):
    """The largest error of each stream, and that of plain torch whose products are in tf32, both against float64."""
    torch.manual_seed(seed)
    streams = [(make(width), *(torch.randn(rows, width, device=DEVICE) for _ in range(2))) for rows, width in SHAPES]
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        given = [copy.deepcopy(modules) for modules, _, _ in streams]
        tasks = [stream(modules, x, message) for modules, (_, x, message) in zip(given, streams, strict=True)]
        found = post_norm(*tasks)
        sum(z.values.cos().sum() for z in found).backward()
    finally:
        torch.set_float32_matmul_precision(before)
    errors = []
    for z, mine, (modules, x, message) in zip(found, given, streams, strict=True):
        exact, rounded = copy.deepcopy(modules).double(), copy.deepcopy(modules)
        expected = with_gradients(exact, plain(exact, x.double(), message.double(), True))
        in_tf32 = with_gradients(rounded, plain(rounded, x, message, True, tf32))
        results = [z.values.detach(), *(parameter.grad for parameter in mine.parameters())]
        errors.append((largest_error(results, expected), largest_error(in_tf32, expected)))
    return errors


def tf32(linear, x):
    return Product.apply(x, linear.weight.t(), "tf32") + linear.bias


def with_gradients(modules, values):
    values.cos().sum().backward()
    return [values.detach(), *(parameter.grad for parameter in modules.parameters())]


def largest_error(found, expected):
    pairs = zip(found, expected, strict=True)
    return max(float((a - b).abs().max()) / max(1.0, float(b.abs().max())) for a, b in pairs)


def test_a_stream_that_nothing_reads():
    torch.manual_seed(0)
    tasks = [stream(make(16), *(torch.randn(9, 16, device=DEVICE, requires_grad=True) for _ in range(2))) for _ in "ab"]
    post_norm(*tasks)[0].values.cos().sum().backward()
    assert tasks[0].x.grad.any()
    assert not tasks[1].x.grad.any()


SHAPES = (70, 32), (9, 16)


def stream(modules, x, message, live=None):
    output, first, last, one, two = modules
    return PostNorm(x, message, output, (first, last), (one, two), True, live)


def test_operator_is_sound():
    torch.manual_seed(0)
    output, first, last, one, two = make(16)
    x, message = (torch.randn(20, 16, device=DEVICE, requires_grad=True) for _ in range(2))
    parameters = PostNorm(x, message, output, (first, last), (one, two), False, None).parameters
    nothing = torch.empty(0, dtype=torch.bool, device=DEVICE)
    known = [torch.randn(size, device=DEVICE) for size in ((20, 16), (3, 16), (16,), (16,))]
    for origin in ([], known):
        given = ([x], origin, [message], parameters, [nothing], [1e-5, 1e-5], False)
        torch.library.opcheck(torch.ops.tuplet.post_norm.default, given)
