"""The compiled step of AdamW against torch's own, with gradients of bounded length."""

import copy

import pytest
import torch
from torch import nn

from tuplet.native import load
from tuplet.training import adamw_cpu

pytestmark = pytest.mark.skipif(load(torch.empty(0)) is None, reason="there is no C compiler here")
SHAPES = (5, 3), (7,), (), (0, 4), (64, 64), (1,)


def _weights(dtype):
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(shape).to(dtype)) for shape in SHAPES]


def _optimiser(weights):
    return torch.optim.AdamW(weights, 1e-2, weight_decay=0.1, fused=True)


def _learn(weights, optimiser, clip, steps, update):
    """How often ``update`` did the step, and torch did not."""
    generator, own = torch.Generator().manual_seed(1), 0
    for step in range(steps):
        for weight in weights:  # long and short gradients in turn
            drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float64) * (0.01, 3.0)[step % 2]
            weight.grad = drawn.to(weight.dtype) if weight.requires_grad else None
        if update(optimiser, clip):
            own += 1
            continue
        if clip is not None:
            nn.utils.clip_grad_norm_(weights, clip)
        optimiser.step()
    return own


def _never(optimiser, clip):
    return False


@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_step_is_that_of_torch(clip):
    """In float64 to the last digits; in float32 about as near to float64 as torch comes."""
    names = "float64", "ours64", "float32", "ours32"
    found = {name: _weights(torch.float64 if "64" in name else torch.float32) for name in names}
    for name, weights in found.items():
        own = _learn(weights, _optimiser(weights), clip, 12, adamw_cpu.update if "ours" in name else _never)
        assert own == (11 if "ours" in name else 0), "torch makes its memory in the first step"
    for exact, double, theirs, ours in zip(*found.values(), strict=True):
        torch.testing.assert_close(double, exact, rtol=1e-13, atol=1e-14)
        if ours.numel():
            assert (ours - exact).abs().max() <= 2 * (theirs - exact).abs().max() + 4e-7
    assert all(
        not torch.equal(one, two)
        for one, two in zip(found["ours32"], _weights(torch.float32), strict=True)
        if one.numel()
    )


def test_threads_change_no_bit():
    found, threads = [], torch.get_num_threads()
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            found.append(_weights(torch.float32))
            _learn(found[-1], _optimiser(found[-1]), 1.0, 5, adamw_cpu.update)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_what_is_held_still_stays():
    weights = _weights(torch.float32)
    weights[0].requires_grad_(False)
    before = weights[0].clone()
    assert _learn(weights, _optimiser(weights), 1.0, 4, adamw_cpu.update) == 3
    assert torch.equal(weights[0], before)


def test_the_rest_is_left_to_torch():
    """No gradient at all, numbers of another type or not one after another, other ways of AdamW, several groups of weights."""
    weights = _weights(torch.float32)
    assert not adamw_cpu.update(_optimiser(weights), None)
    for others in ([nn.Parameter(torch.randn(4, 4, dtype=torch.bfloat16))], [nn.Parameter(torch.randn(4, 3).t())]):
        assert _learn(others, _optimiser(others), 1.0, 3, adamw_cpu.update) == 0
    for other in ({"amsgrad": True}, {"maximize": True}, {"fused": False}):
        weights = _weights(torch.float32)
        optimiser = torch.optim.AdamW(weights, 1e-2, **{"fused": True, **other})
        assert _learn(weights, optimiser, None, 3, adamw_cpu.update) == 0
    weights = _weights(torch.float32)
    assert _learn(weights, torch.optim.SGD(weights, 1e-2), None, 3, adamw_cpu.update) == 0
    several = torch.optim.AdamW([{"params": weights[:2]}, {"params": weights[2:]}], 1e-2, fused=True)
    assert _learn(weights, several, None, 3, adamw_cpu.update) == 0


def test_sparse_gradients_are_for_torch_to_refuse():
    table = torch.nn.Embedding(5, 4, sparse=True)
    optimiser = torch.optim.AdamW(table.parameters(), fused=True)
    optimiser.state[table.weight] = {
        "exp_avg": torch.zeros(5, 4),
        "exp_avg_sq": torch.zeros(5, 4),
        "step": torch.zeros(()),
    }
    table(torch.tensor([1])).sum().backward()
    assert not adamw_cpu.update(optimiser, 1.0)


def test_memory_that_was_loaded_counts():
    """From a checkpoint, into other tensors than those of the last step."""
    weights, others = _weights(torch.float64), _weights(torch.float64)
    first, second = _optimiser(weights), _optimiser(others)
    _learn(weights, first, 1.0, 4, adamw_cpu.update)
    _learn(others, second, 1.0, 2, adamw_cpu.update)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    with torch.no_grad():
        for own, other in zip(weights, others, strict=True):
            other.copy_(own)
    for some, optimiser in ((weights, first), (others, second)):
        assert _learn(some, optimiser, 1.0, 3, adamw_cpu.update) == 3
    assert all(map(torch.equal, weights, others))


def test_weights_that_become_shorter_where_they_are():
    """A part of the same memory, as pruning leaves it: what lies behind is nobody's."""
    weight = nn.Parameter(torch.randn(4, 3))
    optimiser = _optimiser([weight])
    assert _learn([weight], optimiser, None, 3, adamw_cpu.update) == 2
    whole = weight.data
    behind, memory = whole[2:].clone(), optimiser.state[weight]
    weight.data, weight.grad = whole[:2], None
    memory["exp_avg"], memory["exp_avg_sq"] = memory["exp_avg"][:2], memory["exp_avg_sq"][:2]
    assert _learn([weight], optimiser, None, 2, adamw_cpu.update) == 2
    assert torch.equal(whole[2:], behind)
