# SPDX-License-Identifier: Apache-2.0
"""functorch and autograd features on fl."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from tests.framework.helpers import assert_same


def _function(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x.square()).sum()


def test_grad_and_hessian() -> None:
    """grad, jacrev, jacfwd and hessian agree with the CPU."""
    x = torch.randn(5)
    y = x.to("fl")
    assert_same(grad(_function)(y), grad(_function)(x))
    assert_same(jacrev(torch.tanh)(y), jacrev(torch.tanh)(x))
    assert_same(jacfwd(torch.tanh)(y), jacfwd(torch.tanh)(x))
    assert_same(hessian(_function)(y), hessian(_function)(x), rtol=1e-4, atol=1e-5)


def test_jvp_and_vjp() -> None:
    """Forward and reverse products agree with the CPU."""
    x, v = torch.randn(4), torch.randn(4)
    for actual, expected in zip(jvp(torch.sin, (x.to("fl"),), (v.to("fl"),)), jvp(torch.sin, (x,), (v,)), strict=True):
        assert_same(actual, expected)
    assert_same(vjp(torch.sin, x.to("fl"))[1](v.to("fl"))[0], vjp(torch.sin, x)[1](v)[0])


def test_vmap() -> None:
    """vmap over products, reductions and indexing agrees with the CPU."""
    a, b = torch.randn(3, 4, 5), torch.randn(3, 5, 2)

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y).softmax(-1).sum(0)

    assert_same(vmap(function)(a.to("fl"), b.to("fl")), vmap(function)(a, b))
    assert_same(
        vmap(torch.dot, in_dims=(1, 1))(a[0].to("fl"), a[1].to("fl")), vmap(torch.dot, in_dims=(1, 1))(a[0], a[1])
    )


def test_per_sample_gradients() -> None:
    """vmap(grad) of a network gives per-sample gradients."""
    model = nn.Linear(3, 2)
    x, y = torch.randn(4, 3), torch.randint(2, (4,))

    def loss(parameters: dict[str, torch.Tensor], sample: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        output = functional_call(model, parameters, (sample[None],))
        return nn.functional.cross_entropy(output, target[None])

    def run(device: str) -> dict[str, torch.Tensor]:
        parameters = {name: value.detach().to(device) for name, value in model.named_parameters()}
        return vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x.to(device), y.to(device))

    expected = run("cpu")
    for name, value in run("fl").items():
        assert_same(value, expected[name])


def test_gradcheck() -> None:
    """Numerical and analytical gradients agree in float64."""
    x = torch.randn(3, 4, dtype=torch.float64, device="fl", requires_grad=True)
    w = torch.randn(4, 2, dtype=torch.float64, device="fl", requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: (a @ b).tanh().sum(1), (x, w))
    assert torch.autograd.gradgradcheck(lambda a: a.sin().prod(), (x,))


def test_double_backward() -> None:
    """A gradient penalty differentiates twice."""
    results = []
    for device in ("cpu", "fl"):
        torch.manual_seed(4)
        x = torch.randn(6).to(device).requires_grad_()
        (first,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
        first.square().sum().backward()
        results.append(x.grad)
    assert_same(results[1], results[0])


def test_hooks_and_anomaly_mode() -> None:
    """Tensor hooks run, and anomaly mode names a nan."""
    seen = []
    x = torch.ones(3, device="fl", requires_grad=True)
    x.register_hook(lambda g: seen.append(g.device.type))
    (x * 2).sum().backward()
    assert seen == ["fl"]
    with torch.autograd.set_detect_anomaly(True):
        y = torch.zeros(1, device="fl", requires_grad=True)
        with pytest.raises(RuntimeError, match="nan"):
            (y.sqrt() * 0).sum().backward()


def test_custom_function() -> None:
    """A Python autograd.Function saves and restores fl tensors."""

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):  # type: ignore[no-untyped-def]
            return 2 * ctx.saved_tensors[0] * grad_output

    x = torch.tensor([1.0, 2.0], device="fl", requires_grad=True)
    Square.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_saved_tensors_on_cpu() -> None:
    """save_on_cpu moves saved tensors to the host and back, pinned or not."""
    for pin in (False, True):
        x = torch.randn(5, device="fl", requires_grad=True)
        with torch.autograd.graph.save_on_cpu(pin_memory=pin, device_type="fl"):
            y = x.exp()
        y.sum().backward()
        assert_same(x.grad, x.detach().cpu().exp())
