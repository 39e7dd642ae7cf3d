# SPDX-License-Identifier: Apache-2.0
"""Errors that depend on values surface when the device is waited for, with the exception type of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.behaviour.agree import agree, attempt
from tests.harness.device import DEVICE

X = torch.arange(15, dtype=torch.float32).view(5, 3)
CUBE = torch.ones(2, 3, 4)
FAR = torch.tensor([[9]])
CLASSES = torch.tensor([0, 3, 0, 0, 0])
NONE = torch.tensor([0])

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "index": (lambda x, i: x[i], (X, FAR)),
    "index negative": (lambda x, i: x[i], (X, -FAR)),
    "index_put": (lambda x, i: x.index_put_((i,), torch.tensor(1.0)), (X, FAR)),
    "take": (lambda x, i: x.take(i), (X, FAR + 90)),
    "put": (lambda x, i: x.put_(i, torch.ones_like(i, dtype=x.dtype)), (X, FAR + 90)),
    "embedding": (lambda w, i: F.embedding(i, w), (X, FAR)),
    "embedding negative": (lambda w, i: F.embedding(i, w), (X, -FAR)),
    "embedding_bag": (lambda w, i: F.embedding_bag(i, w), (X, FAR)),
    "nll_loss": (F.nll_loss, (X, CLASSES)),
    "nll_loss2d": (F.nll_loss, (torch.ones(1, 2, 2, 2), torch.full((1, 2, 2), 7))),
    "cross_entropy": (F.cross_entropy, (X, CLASSES)),
    "multi_margin_loss": (F.multi_margin_loss, (X, CLASSES)),
    "binary_cross_entropy": (F.binary_cross_entropy, (X, X)),
    "binary_cross_entropy nan": (F.binary_cross_entropy, (X / 0, X)),
    "one_hot": (lambda i: F.one_hot(i, 3), (FAR,)),
    "max_unpool": (lambda x, i: F.max_unpool1d(x, i, 2), (torch.ones(1, 1, 2), torch.tensor([[[0, 99]]]))),
    "floor_divide": (lambda a, b: a // b, (torch.tensor([1]), NONE)),
    "remainder": (lambda a, b: a % b, (torch.tensor([1]), NONE)),
    "fmod": (torch.fmod, (torch.tensor([1]), NONE)),
    "div trunc": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), (torch.tensor([1]), NONE)),
    "multinomial": (lambda p: p.multinomial(1), (torch.tensor([-1.0, 2.0]),)),
    "bernoulli": (torch.bernoulli, (torch.tensor([2.0]),)),
    "repeat_interleave": (torch.repeat_interleave, (torch.tensor([-1]),)),
    "bincount": (torch.bincount, (torch.tensor([-1]),)),
    "cholesky": (torch.linalg.cholesky, (-torch.eye(2),)),
    "inv": (torch.linalg.inv, (torch.zeros(2, 2),)),
}


# Where the chip has no kernel of its own a portable one serves these, and it has no way to tell: no index from outside
# is followed, and no number comes of it.
UNREPORTED = {"embedding_bag", "index_reduce", "max_unpool", "multi_margin_loss", "put"}
UNWRITTEN = {"index_reduce", "max_unpool", "put"}  # such an index writes nothing; the rest is as it was


def _along(dim: int, tensor: torch.Tensor) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    shape = list(tensor.shape)
    shape[dim] = 1
    index, line, ones = torch.full(shape, 9), torch.tensor([9]), torch.ones(shape)
    return {
        "gather": (lambda x, i: x.gather(dim, i), (tensor, index)),
        "gather negative": (lambda x, i: x.gather(dim, i), (tensor, -index)),
        "scatter": (lambda x, i: x.scatter_(dim, i, 1.0), (tensor, index)),
        "scatter_add": (lambda x, i: x.scatter_add_(dim, i, x), (tensor, index)),
        "scatter_reduce": (lambda x, i: x.scatter_reduce_(dim, i, x, "sum"), (tensor, index)),
        "index_select": (lambda x, i: x.index_select(dim, i), (tensor, line)),
        "index_select negative": (lambda x, i: x.index_select(dim, i), (tensor, -line)),
        "index_add": (lambda x, i, s: x.index_add_(dim, i, s), (tensor, line, ones)),
        "index_add alpha": (lambda x, i, s: x.index_add_(dim, i, s, alpha=2), (tensor, line, ones)),
        "index_copy": (lambda x, i, s: x.index_copy_(dim, i, s), (tensor, line, ones)),
        "index_fill": (lambda x, i: x.index_fill_(dim, i, 1), (tensor, line)),
        "index_reduce": (lambda x, i, s: x.index_reduce_(dim, i, s, "prod"), (tensor, line, ones)),
    }


for _tensor in (X, CUBE, torch.ones(4)):
    for _dim in range(_tensor.dim()):
        CASES |= {f"{name} {_tensor.dim()}d dim {_dim}": case for name, case in _along(_dim, _tensor).items()}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", CASES)
def test_type_is_that_of_the_cpu(name: str) -> None:
    function, args = CASES[name]
    _, expected = attempt(function, *(a.clone() for a in args))
    assert expected is not None, "the case must fail on the CPU"
    if name.split()[0] in UNREPORTED:
        found, error = attempt(lambda: function(*(a.to(DEVICE) for a in args)).cpu())
        right = torch.isfinite if name.split()[0] in UNWRITTEN else torch.isnan
        assert type(error) is type(expected) if error is not None else right(found).all()
    else:
        agree(function, *args)
    agree(lambda x: x + 1, X)  # the device lives on
