"""Work beside other work: without a CUDA graph it is done at once, in order. With one: tests/training/test_recorded.py."""

import torch

from tuplet.kernels.beside import beside, collected, later


def test_one_after_the_other():
    done = []
    assert beside(*(lambda number=number: done.append(number) or number for number in range(3))) == [0, 1, 2]
    assert done == [0, 1, 2]


def test_what_may_be_late_is_done_at_once():
    x = torch.ones(3)
    with collected() as late:
        (found,) = later(lambda: 2 * x, read=[x])
        assert found.tolist() == [2, 2, 2]
    assert not late.results
    assert late.branch is None


def test_whether_results_were_looked_at():
    """They are among the gradients, or parts of them are; a sum of two is not."""
    one, other = torch.ones(4), torch.ones(4)
    with collected() as late:
        late.results += [one, other]
    assert late.untouched([one[:2].view(2, 1), None, other[2:]])
    assert not late.untouched([one + other])
    assert not late.untouched([one])
