# SPDX-License-Identifier: Apache-2.0
"""One overload of every usual signature, out= or in-place, again and again: each call has its own memory and values."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.behaviour.agree import DEVICE, agree, values

ops: Any = torch.ops.aten
X, Y, Z = (values((4, 4), torch.float32, seed) for seed in range(3))
INDEX = torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]])
EMPTY = torch.empty(0)
LONGS = torch.empty(0, dtype=torch.long)

CALLS: dict[str, tuple[Any, ...]] = {
    # in-place
    "neg_": (X,),
    "mul_.Tensor": (X, Y),
    "lt_.Scalar": (X, 0.5),
    "add_.Tensor": (X, Y),
    "masked_fill_.Tensor": (X, X > 0, torch.tensor(2.0)),
    "addcmul_": (X, Y, Z),
    "addmm_": (X, Y, Z),
    "threshold_": (X, 0.1, 7),
    "tril_": (X, -1),
    "index_fill_.int_Tensor": (X, 0, torch.tensor([2, 0]), torch.tensor(3.0)),
    "scatter_add_": (X, 0, INDEX, Y),
    "scatter_.value": (X, 1, INDEX, 4),
    # out=
    "exp.out": (X, EMPTY),
    "mul.out": (X, Y, EMPTY),
    "where.self_out": (X > 0, Y, Z, EMPTY),
    "lt.Scalar_out": (X, 1, torch.empty(0, dtype=torch.bool)),
    "clamp_min.out": (X, -0.25, EMPTY),
    "sub.out": (X, Y, EMPTY),
    "threshold.out": (X, 0.5, -3, EMPTY),
    "softplus_backward.grad_input": (X, Y, 1, 20, EMPTY),
    "addcdiv.out": (X, Y, Z, EMPTY),
    "baddbmm.out": (X[None], Y[None], Z[None], EMPTY),
    "glu.out": (X, 1, EMPTY),
    "softmax.int_out": (X, 1, torch.float32, EMPTY),
    "_softmax.out": (X, 0, False, EMPTY),
    "mse_loss.out": (X, Y, 1, EMPTY),
    "index_select.out": (X, 1, torch.tensor([3, 3, 0]), EMPTY),
    "scatter.src_out": (X, 0, INDEX, Y, EMPTY),
    "cumsum.out": (X, 1, EMPTY),
    "adaptive_avg_pool2d.out": (X[None], [2, 3], EMPTY),
    "replication_pad1d.out": (X, [1, 2], EMPTY),
    "reflection_pad1d_backward.grad_input": (values((4, 7), torch.float32), X, [1, 2], EMPTY),
    "amax.out": (X, [1], True, EMPTY),
    "any.dims_out": (X > 0, [0], False, torch.empty(0, dtype=torch.bool)),
    "any.all_out": (X > 0, torch.empty((), dtype=torch.bool)),
    "sum.IntList_out": (X, [0], True, EMPTY),
    "mean.out": (X, None, False, EMPTY),
    "smooth_l1_loss.out": (X, Y, 1, 0.5, EMPTY),
    "max.dim_max": (X, 1, True, EMPTY, LONGS),
    "frexp.Tensor_out": (X, EMPTY, torch.empty(0, dtype=torch.int32)),
    "adaptive_max_pool2d.out": (X[None], [2, 2], EMPTY, LONGS),
    # not among them: with a stack
    "avg_pool2d.out": (X[None], [2, 2], EMPTY),
    "std.correction_out": (X, [1], EMPTY),
}


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(ops, packet), overload or "default")


def _call(name: str, args: tuple[Any, ...]) -> Any:
    overload = _overload(name)
    given = list(args)
    outs = {a.name: given.pop() for a in reversed(overload._schema.arguments) if a.is_out}
    return overload(*given, **outs)


@pytest.mark.parametrize("name", CALLS)
def test_every_signature(name: str) -> None:
    """Four calls of one plan: a tensor kept from an earlier one is not written to by the next."""
    kept = []
    for turn in range(4):
        args = tuple(
            a + turn / 4 if isinstance(a, torch.Tensor) and a.is_floating_point() and a.numel() else a
            for a in CALLS[name]
        )
        found = agree(lambda *a: _call(name, a), *args, may_raise=False)
        first = found[0] if isinstance(found, tuple | list) else found
        kept.append((first, first.cpu()))
    assert all(torch.equal(there.cpu(), here) for there, here in kept)


@pytest.mark.parametrize("alpha", [0, 1, -2, 2.5, True])
def test_scalars_of_one_plan_differ(alpha: float) -> None:
    for other in (torch.tensor(3.0), torch.tensor(2)):  # 0-dim tensors of the CPU
        agree(lambda x, alpha=alpha, other=other: torch.add(x, other, alpha=alpha), X)
    agree(lambda x, y, alpha=alpha: x.add_(y, alpha=alpha), X, Y)


def test_out_of_the_wrong_type_is_the_cpus_error() -> None:
    out = torch.empty(4, 4, dtype=torch.int64)
    for _ in range(2):
        agree(lambda x, out: torch.add(x, x, out=out), X, out)
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        torch.add(X.to(DEVICE), 1, out=out.to(DEVICE))
