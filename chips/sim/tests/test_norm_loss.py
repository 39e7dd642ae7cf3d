# SPDX-License-Identifier: Apache-2.0
"""Normalisation, softmax, losses and fused optimizers against PyTorch's CPU kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from nn_host import REALS, Host, KernelFailed, call_cpu, check, close, poison, randn

# ---- Normalisation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(4, 3, 5, 5), (6, 3), (2, 3, 9), (8, 3, 16, 16)])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(host: Host, dtype: torch.dtype, affine: bool, shape: Any, training: bool) -> None:
    x = randn(*shape, dtype=dtype) * 2 + 3
    parameters = [randn(3, dtype=dtype) if affine else None for _ in range(2)]
    mean, var = randn(3, dtype=dtype), randn(3, dtype=dtype).abs() + 0.5
    ours, theirs = [mean.clone(), var.clone()], [mean.clone(), var.clone()]
    tail = [training, 0.1, 1e-5]
    expected = call_cpu("aten::native_batch_norm", [x, *parameters, *theirs, *tail])
    outs = [poison(e) for e in expected]
    host.run("aten::native_batch_norm", [x, *parameters, *ours, *tail], [*outs, *ours])
    for got, want in zip([*outs, *ours], [*expected, *theirs]):
        close(got, want, "batch norm", scale=3)
    saved = expected[1:] if training else [None, None]
    arguments = [randn(*shape, dtype=dtype), x, parameters[0], mean, var, *saved, training, 1e-5]
    want = call_cpu("aten::native_batch_norm_backward", [*arguments, [True] * 3])
    got = [poison(w) if w is not None else None for w in want]
    host.run("aten::native_batch_norm_backward", [*arguments, [True] * 3], got)
    for g, w in zip(got, want):
        if g is not None:
            close(g, w, "batch norm gradient", scale=8)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape,normal", [((4, 5, 6), [6]), ((4, 5, 6), [5, 6]), ((64,), [64]), ((3, 300), [300])])
def test_layer_norm(host: Host, dtype: torch.dtype, affine: bool, shape: Any, normal: list[int]) -> None:
    x = randn(*shape, dtype=dtype) + 2
    weight, bias = [randn(*normal, dtype=dtype) if affine else None for _ in range(2)]
    _, mean, rstd = check(host, "aten::native_layer_norm", x, normal, weight, bias, 1e-5, scale=2)
    arguments = [randn(*shape, dtype=dtype), x, normal, mean, rstd, weight, bias]
    if affine:
        check(host, "aten::native_layer_norm_backward", *arguments, [True] * 3, scale=4)
    want = call_cpu("aten::native_layer_norm_backward", [*arguments, [True, False, False]])[0]
    got = poison(want)
    host.run("aten::native_layer_norm_backward", [*arguments, [True, False, False]], [got, None, None])
    close(got, want, "input gradient", scale=4)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("n,c,hw,groups", [(2, 6, 10, 3), (3, 4, 1, 1), (2, 4, 9, 4), (2, 8, 64, 2)])
def test_group_norm(host: Host, dtype: torch.dtype, affine: bool, n: int, c: int, hw: int, groups: int) -> None:
    x = randn(n, c, hw, dtype=dtype) + 1
    weight, bias = [randn(c, dtype=dtype) if affine else None for _ in range(2)]
    _, mean, rstd = check(host, "aten::native_group_norm", x, weight, bias, n, c, hw, groups, 1e-3, scale=4)
    arguments = [randn(n, c, hw, dtype=dtype), x, mean, rstd, weight, n, c, hw, groups]
    if affine:
        check(host, "aten::native_group_norm_backward", *arguments, [True] * 3, scale=8)


# ---- Softmax and losses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize(
    "shape,dim", [((4, 5), 1), ((4, 5), 0), ((2, 3, 4), 1), ((7,), -1), ((), 0), ((0, 3), 1), ((3, 400), 1)]
)
@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_softmax(host: Host, dtype: torch.dtype, shape: Any, dim: int, name: str) -> None:
    x = randn(*shape, dtype=dtype) * 4
    if x.dim() == 2 and x.numel():
        x[0, 0] = float("-inf")
    (out,) = check(host, f"aten::{name}", x, dim, False)
    check(host, f"aten::{name}_backward_data", randn(*shape, dtype=dtype), out, dim, dtype, scale=2)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("shape", [(6, 4), (4,), (2, 4, 3, 5), (0, 4)])
def test_nll_loss(host: Host, dtype: torch.dtype, reduction: int, weighted: bool, shape: Any) -> None:
    op = "nll_loss2d" if len(shape) == 4 else "nll_loss"
    x = randn(*shape, dtype=dtype)
    weight = randn(4, dtype=dtype).abs() if weighted else None
    target = torch.randint(0, 4, (shape[:1] + shape[2:]) if len(shape) > 1 else ())
    if target.dim() and target.numel():
        target.view(-1)[0] = -100
    out, total = check(host, f"aten::{op}_forward", x, target, weight, reduction, -100, scale=2)
    gradient = randn(*out.shape, dtype=dtype)
    check(host, f"aten::{op}_backward", gradient, x, target, weight, reduction, -100, total, scale=2)


def test_nll_loss_refuses_bad_targets(host: Host) -> None:
    args = [randn(2, 3), torch.tensor([0, 3]), None, 1, -100]
    with pytest.raises(KernelFailed, match="Target 3 is out of bounds"):
        host.run("aten::nll_loss_forward", args, [torch.empty(()), torch.empty(())])


def test_a_second_host_does_not_take_the_first_ones_errors(host: Host) -> None:
    other = Host()
    test_nll_loss_refuses_bad_targets(host)
    assert not other.chip.errors


# ---- Optimizers ------------------------------------------------------------------------------------------------------

OPTIMIZERS: list[tuple[str, int, list[Any]]] = [
    # operator, lists of states beside parameters and gradients, options
    ("_fused_adam_", 3, [1e-2, 0.9, 0.99, 0.1, 1e-8, True, False]),
    ("_fused_adam_", 3, [1e-2, 0.4, 0.99, 0.0, 1e-8, False, True]),
    ("_fused_adamw_", 3, [1e-2, 0.9, 0.99, 0.1, 1e-8, True, False]),
    ("_fused_sgd_", 1, [0.1, 0.9, 1e-2, 0.1, True, False, False]),
    ("_fused_sgd_", 1, [0.0, 0.9, 1e-2, 0.0, False, True, True]),
    ("_fused_sgd_", 1, [0.1, 0.0, 1e-2, 0.0, False, False, False]),
    ("_fused_adagrad_", 1, [1e-2, 0.1, 0.1, 1e-8, False]),
]


def optimizer_lists(states: int, dtype: torch.dtype) -> list[list[torch.Tensor]]:
    shapes: list[tuple[int, ...]] = [(5, 3), (70,), (0,), (2, 3, 4, 5)]
    lists = [[randn(*shape, dtype=dtype) for shape in shapes] for _ in range(2 + states)]
    for state in lists[3:] or lists[2:]:
        for tensor in state:
            tensor.abs_()
    return lists


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("scale", [None, 2.0])
@pytest.mark.parametrize("op,states,options", OPTIMIZERS)
def test_fused_optimizers(
    host: Host, op: str, states: int, options: list[Any], scale: float | None, dtype: torch.dtype
) -> None:
    ours = optimizer_lists(states, dtype)
    if ("adam" in op and not options[5]) or ("sgd" in op and not options[1]):
        ours[-1] = []  # no largest average, or no momentum
    theirs = [[t.double() for t in tensors] for tensors in ours]  # the CPU's SGD is inexact in the 16-bit types
    steps = [] if "sgd" in op else [[torch.tensor(3.0) for _ in ours[0]]]
    unscale = [None, None] if scale is None else [torch.tensor(scale), torch.tensor(0.0)]
    call_cpu(f"aten::{op}", [*theirs, *steps, *options, *unscale])
    host.run(f"aten::{op}", [*ours, *steps, *options, *unscale], [t for tensors in ours for t in tensors])
    for got, want in zip(ours, theirs):
        for g, w in zip(got, want):
            close(g, w.to(dtype), op)


def test_fused_optimizers_skip_an_overflow(host: Host) -> None:
    lists = optimizer_lists(1, torch.float32)
    before = [t.clone() for t in lists[0]]
    options = [0.1, 0.9, 1e-2, 0.1, True, False, False, torch.tensor(2.0), torch.tensor(1.0)]
    host.run("aten::_fused_sgd_", [*lists, *options], [t for tensors in lists for t in tensors])
    assert all(torch.equal(a, b) for a, b in zip(lists[0], before))
