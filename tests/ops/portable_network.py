# SPDX-License-Identifier: Apache-2.0
"""Portable kernels of networks beyond the samples of OpInfo: run as a module where only these kernels may serve."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

Tensors = list[torch.Tensor]


def agree(function: Callable[..., Any], *inputs: torch.Tensor, atol: float = 2e-5) -> None:
    """Values and gradients of a function, on the CPU and on the device."""
    results: list[Tensors] = []
    for device in ("cpu", "fl"):
        moved = [t.detach().to(device).requires_grad_(t.is_floating_point()) for t in inputs]
        output = function(*moved)
        output.backward(torch.linspace(-1, 1, output.numel()).reshape(output.shape).to(output.dtype).to(device))
        results.append([output, *(t.grad for t in moved if t.grad is not None)])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=atol, equal_nan=True)


def norms() -> None:
    """More rows than one item adds up, widths that are no multiple of anything, statistics far from zero."""
    agree(
        lambda x, w, b: F.layer_norm(x, (67,), w, b),
        torch.randn(3000, 67) + 5,
        torch.rand(67),
        torch.rand(67),
        atol=1e-3,
    )
    agree(
        lambda x, w, b: F.group_norm(x, 3, w, b), torch.randn(5, 12, 90) - 3, torch.rand(12), torch.rand(12), atol=1e-3
    )
    for shape in ((40, 70, 9, 11), (700, 130)):
        parameters = [torch.rand(shape[1]) for _ in range(2)]
        agree(
            lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
            torch.randn(shape) + 2,
            *parameters,
            atol=1e-3,
        )
        running = [torch.rand(shape[1]) + 0.5 for _ in range(2)]
        agree(
            lambda x, m, v, w=None: F.batch_norm(x, m.detach(), v.detach(), training=False),
            torch.randn(shape),
            *running,
            atol=1e-3,
        )


def losses() -> None:
    """Several items; classes that are none give NaN, nothing worse."""
    agree(lambda x, t: F.cross_entropy(x, t)[None], torch.randn(5000, 19), torch.randint(0, 19, (5000,)))
    pixels = torch.randint(0, 5, (3, 40, 50))
    pixels[pixels == 3] = -100
    agree(lambda x, t: F.nll_loss(x, t)[None], torch.randn(3, 5, 40, 50), pixels)
    agree(lambda x, t: F.smooth_l1_loss(x, t.detach())[None], torch.randn(70001), torch.randn(70001))
    for target in (-1, 4, 2**62, -(2**62)):
        classes = torch.tensor([1, target, 0], device="fl")
        x = torch.randn(3, 4, device="fl", requires_grad=True)
        torch.autograd.backward(F.nll_loss(x, classes))
        assert F.nll_loss(x, classes).isnan().item()
        assert x.grad is not None
        assert bool((x.grad[1] == 0).all())


def _steps(device: str, make: Callable[..., Any], options: dict[str, Any], rate: Any) -> Tensors:
    torch.manual_seed(1)
    shapes = ((3, 4), (50000,), (), (5,), (0,), (6, 2), (7,), (8,), (4, 3, 2, 2))
    parameters = [torch.randn(shape).to(device).requires_grad_() for shape in shapes]
    optimizer = make(parameters, lr=rate, fused=True, **options)
    for step in range(3):
        optimizer.grad_scale = torch.tensor(4.0, device=device)
        optimizer.found_inf = torch.tensor(float(step == 1), device=device)
        for parameter in parameters:
            parameter.grad = parameter.detach() * 2 + 1
        optimizer.step()
    return [parameter.detach().cpu() for parameter in parameters]


def _optimizers() -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    for make in (torch.optim.Adam, torch.optim.AdamW):
        yield from ((make, options) for options in ({}, {"amsgrad": True, "weight_decay": 0.1}, {"maximize": True}))
    yield from ((torch.optim.SGD, options) for options in ({}, {"momentum": 0.9, "nesterov": True}))
    yield torch.optim.Adagrad, {"lr_decay": 0.1}


def optimizers() -> None:
    """Many parameters in a launch, gradient scaling, a learning rate that is a tensor."""
    for (make, options), as_tensor in itertools.product(_optimizers(), (False, True)):
        found, expected = (
            _steps(device, make, options, torch.tensor(0.01, device=device) if as_tensor else 0.01)
            for device in ("fl", "cpu")
        )
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)


def gradient_scaling() -> None:
    """GradScaler's two operators."""
    for bad in (False, True):
        gradients = [torch.randn(shape) for shape in ((3, 4), (70000,), (), (0,), (5,), (6,), (7,), (8,))]
        if bad:
            gradients[4][2] = float("inf")
        moved = [g.to("fl") for g in gradients]
        found, inverse = torch.zeros(1, device="fl"), torch.tensor(0.25)
        torch._amp_foreach_non_finite_check_and_unscale_(moved, found, inverse.to("fl"))
        assert found.item() == float(bad)
        for a, b in zip(moved, gradients, strict=True):
            torch.testing.assert_close(a.cpu(), b * inverse)
    for overflow, successes in itertools.product((0.0, 1.0), (0, 1, 2)):
        results = []
        for device in ("cpu", "fl"):
            scale = torch.tensor(65536.0, device=device)
            tracker = torch.tensor(successes, dtype=torch.int32, device=device)
            torch._amp_update_scale_(scale, tracker, torch.tensor(overflow, device=device), 2.0, 0.5, 2)
            results.append((scale.item(), tracker.item()))
        assert results[0] == results[1], (overflow, successes, results)


def attention() -> None:
    """Shapes around the tiles' edges, masks, grouped heads, queries that see nothing."""
    shapes = ((2, 3, 3, 5, 6, 8), (1, 2, 1, 130, 70, 64), (1, 2, 2, 37, 129, 20), (1, 12, 12, 1, 77, 64))
    for (b, h, hk, q, k, d), kind in itertools.product(shapes, ("none", "causal", "bool", "float", "blind")):
        mask = None
        if kind == "float":
            mask = torch.randn(b, 1, q, k)
        elif kind in ("bool", "blind"):
            mask = torch.rand(q, k) > 0.3
            mask[0] &= kind == "bool"
        agree(
            lambda x, y, z, m=mask, kind=kind, group=h != hk: F.scaled_dot_product_attention(
                x, y, z, m if m is None else m.to(x.device), is_causal=kind == "causal", enable_gqa=group
            ),
            *(torch.randn(b, n, heads, d).transpose(1, 2) for n, heads in ((q, h), (k, hk), (k, hk))),
        )


def main() -> None:
    torch.manual_seed(0)
    for check in (norms, losses, optimizers, gradient_scaling, attention):
        check()
        print(check.__name__, "passed")


if __name__ == "__main__":
    main()
