"""The arithmetic of kernels, piece by piece: on a GPU, or in Triton's interpreter on a CPU."""

import pytest
import torch
from fused_cases import DEVICE

pytest.importorskip("triton")
import triton
import triton.language as tl

from tuplet.attention.fused.arithmetic import operand


@triton.jit
def _as_operand(X, Y, PRECISION: tl.constexpr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(Y + at, operand(tl.load(X + at), PRECISION))


def _operands(x, precision):
    x = x.to(DEVICE)
    y = torch.empty_like(x)
    _as_operand[(1,)](x, y, precision, len(x))
    return y.cpu()


def test_operands_are_rounded_to_the_nearest_that_tensor_cores_read():
    torch.manual_seed(0)
    x = torch.randn(1024) * 10.0 ** torch.randint(-20, 20, (1024,))
    x[:4] = torch.tensor([0.0, torch.inf, -torch.inf, 1.0])
    y = _operands(x, "tf32")
    assert not (y.view(torch.int32) & 0x1FFF).any(), "more digits than TF32 has"
    off = (y[4:].double() - x[4:].double()) / x[4:].double()
    assert off.abs().max() <= 2**-11
    assert off.mean().abs() < off.abs().mean() / 4, "as often too large as too small"
    assert torch.equal(y[:4], x[:4])
    none = torch.tensor([0x7FC00000, 0x7FFFFFFF, -1, 0x7F800001], dtype=torch.int32).view(torch.float32)
    assert _operands(none, "tf32").isnan().all(), "whatever bits it has"


@pytest.mark.parametrize("precision, dtype", [("ieee", torch.float32), ("tf32", torch.float16)])
def test_what_is_exact_or_short_stays(precision, dtype):
    x = torch.randn(64).to(dtype)
    assert torch.equal(_operands(x, precision), x)
