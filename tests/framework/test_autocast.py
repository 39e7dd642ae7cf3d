# SPDX-License-Identifier: Apache-2.0
"""Automatic mixed precision: policies and gradient scaling."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.framework.helpers import assert_same, twin


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_policies(dtype: torch.dtype) -> None:
    """Matrix products run in the low precision, sensitive functions in float32, the rest in the widest type."""
    a, b = torch.randn(4, 4, device="fl"), torch.randn(4, 4, device="fl")
    low = a.to(dtype)
    with torch.autocast("fl", dtype=dtype):
        assert (a @ b).dtype == dtype
        assert nn.functional.linear(a, b).dtype == dtype
        assert nn.functional.conv2d(a[None, None], b[None, None]).dtype == dtype
        assert nn.functional.scaled_dot_product_attention(a[None], b[None], b[None]).dtype == dtype
        assert low.softmax(-1).dtype == torch.float32
        assert nn.functional.layer_norm(low, (4,)).dtype == torch.float32
        assert low.exp().dtype == torch.float32
        assert low.sum().dtype == torch.float32
        assert low.norm().dtype == torch.float32
        assert torch.addcmul(low, low, a).dtype == torch.float32
        assert torch.relu(low).dtype == dtype
        assert a.double().matmul(b.double()).dtype == torch.float64
    assert (a @ b).dtype == torch.float32


def test_default_dtype_and_state() -> None:
    """The state of autocast on fl is its own, and disabled inside enabled=False."""
    a = torch.randn(2, 2, device="fl")
    assert not torch.is_autocast_enabled("fl")
    with torch.autocast("fl"):
        assert torch.is_autocast_enabled("fl")
        assert not torch.is_autocast_enabled("cpu")
        assert (a @ a).dtype == torch.get_autocast_dtype("fl")
        with torch.autocast("fl", enabled=False):
            assert (a @ a).dtype == torch.float32


def test_unsafe_loss_is_refused() -> None:
    """binary_cross_entropy is refused with advice, as on stock accelerators."""
    p = torch.rand(3, device="fl")
    with torch.autocast("fl"), pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
        nn.functional.binary_cross_entropy(p, p)


def test_training_step_matches_cpu() -> None:
    """Forward and backward under autocast agree with CPU autocast within bfloat16's precision."""
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    device_model = twin(model)
    x, y = torch.randn(8, 16), torch.randint(4, (8,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = nn.functional.cross_entropy(model(x), y)
    with torch.autocast("fl", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(device_model(x.to("fl")), y.to("fl"))
    expected.backward()
    loss.backward()
    assert loss.dtype == torch.float32
    assert_same(loss, expected, rtol=2e-2, atol=2e-2)
    for actual, wanted in zip(device_model.parameters(), model.parameters(), strict=True):
        assert actual.grad.dtype == torch.float32
        assert_same(actual.grad, wanted.grad, rtol=5e-2, atol=2e-2)


def test_weights_are_cast_once() -> None:
    """Inside one autocast region a parameter's cast is cached, and its gradient still reaches the parameter."""
    weight = torch.randn(4, 4, device="fl", requires_grad=True)
    x = torch.randn(2, 4, device="fl")
    with torch.autocast("fl"):
        y = x @ weight + x @ weight
    y.sum().backward()
    assert_same(weight.grad, 2 * x.cpu().sum(0)[:, None].expand(4, 4), rtol=2e-2, atol=2e-2)


def test_grad_scaler() -> None:
    """GradScaler steps with unscaled gradients and skips a step with an infinite one."""
    model = nn.Linear(4, 4).to("fl")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("fl", init_scale=1024.0, growth_interval=1)
    before = model.weight.detach().clone()
    with torch.autocast("fl", dtype=torch.float16):
        loss = model(torch.ones(2, 4, device="fl")).float().sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert_same(model.weight, (before - 0.2).cpu(), rtol=1e-2, atol=1e-2)
    assert scaler.get_scale() == 2048.0
    after = model.weight.detach().clone()
    optimizer.zero_grad()
    scaler.scale(model(torch.full((2, 4), float("inf"), device="fl")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(model.weight, after)
    assert scaler.get_scale() == 1024.0


def test_lstm_under_autocast() -> None:
    """The fused RNN cells follow the low-precision policy."""
    lstm = nn.LSTM(4, 4).to("fl")
    with torch.autocast("fl", dtype=torch.bfloat16):
        y, _ = lstm(torch.randn(3, 2, 4, device="fl"))
    y.float().sum().backward()
    assert lstm.weight_ih_l0.grad is not None
