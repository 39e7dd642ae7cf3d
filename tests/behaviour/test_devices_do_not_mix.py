# SPDX-License-Identifier: Apache-2.0
"""Tensors of two devices in one call: refused with the error stock PyTorch raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.behaviour.agree import DEVICE
from tests.harness import device as harness

pytestmark = pytest.mark.skipif(harness.is_stock(), reason="needs a second kind of device")
STOCK_ERROR = r"(?i)(same device|on the same device|found at least two devices|device type|expected .*device)"

# Every call takes one tensor of the device and one of elsewhere.
CALLS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": lambda a, b: a * b,
    "div": torch.div,
    "pow": torch.pow,
    "maximum": torch.maximum,
    "eq": torch.eq,
    "lt": lambda a, b: a < b,
    "atan2": torch.atan2,
    "mm": torch.mm,
    "matmul": torch.matmul,
    "addmm": lambda a, b: torch.addmm(a, a, b),
    "bmm": lambda a, b: torch.bmm(a[None], b[None]),
    "linear": lambda a, b: F.linear(a, b),
    "cat": lambda a, b: torch.cat([a, b]),
    "stack": lambda a, b: torch.stack([a, b]),
    "where": lambda a, b: torch.where(a > 0, a, b),
    "where with a foreign condition": lambda a, b: torch.where(b > 0, a, a),
    "gather": lambda a, b: a.gather(0, b.long().abs() % 3),
    "scatter": lambda a, b: a.scatter(0, torch.zeros(3, 3, dtype=torch.long, device=a.device), b),
    "index_select": lambda a, b: a.index_select(0, b[0].long().abs() % 3),
    "masked_fill": lambda a, b: a.masked_fill(b > 0, 1.0),
    "masked_select": lambda a, b: a.masked_select(b > 0),
    "mse_loss": F.mse_loss,
    "embedding": lambda a, b: F.embedding(b.long().abs() % 3, a),
    "layer_norm": lambda a, b: F.layer_norm(a, (3,), b[0], b[1]),
    "batch_norm": lambda a, b: F.batch_norm(a, b[0], b[1].abs()),
    "conv1d": lambda a, b: F.conv1d(a[None], b[..., None]),
    "cdist": torch.cdist,
    "searchsorted": lambda a, b: torch.searchsorted(a.sort()[0], b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.5),
    "addcmul": lambda a, b: torch.addcmul(a, a, b),
    "in-place add": lambda a, b: a.add_(b),
    "in-place where the other is first": lambda a, b: b.add_(a),
    "out of the device": lambda a, b: torch.add(b, b, out=a),
    "out of elsewhere": lambda a, b: torch.add(a, a, out=b),
    "out of elsewhere, addr": lambda a, b: torch.addr(a, a[0], a[0], out=b),
    "out of elsewhere, any": lambda a, b: torch.any(a, dim=(0, 1), out=b.bool()),
    "out of elsewhere, nan_to_num": lambda a, b: torch.nan_to_num(a, out=b),
    "equal": torch.equal,
    "solve": torch.linalg.solve,
    "foreach_add": lambda a, b: torch._foreach_add([a], [b]),
    "polar": torch.polar,
    "histc out": lambda a, b: torch.sum(a, 0, out=b[0].clone()),
}


@pytest.mark.parametrize("elsewhere", ["cpu", "fl:1"])
@pytest.mark.parametrize("name", CALLS)
def test_mixed_devices_are_refused(name: str, elsewhere: str) -> None:
    a, b = torch.rand(3, 3, device="fl:0"), torch.rand(3, 3, device=elsewhere)
    with pytest.raises((RuntimeError, TypeError), match=STOCK_ERROR):
        CALLS[name](a, b)
    assert torch.isfinite(a + 1).all(), "the device is of no use afterwards"


def test_zero_dim_host_tensors_are_scalars_but_zero_dim_device_tensors_are_not() -> None:
    x = torch.ones(3, device=DEVICE)
    assert (x + torch.tensor(2.0)).device == x.device
    with pytest.raises(RuntimeError, match=STOCK_ERROR):
        torch.ones(3) + torch.tensor(2.0, device=DEVICE)
    with pytest.raises(RuntimeError, match=STOCK_ERROR):
        torch.ones(3, device="fl:1") + torch.tensor(2.0, device="fl:0")


def test_copies_are_the_exception() -> None:
    source = torch.arange(6.0).view(2, 3)
    for a, b in (("fl:0", "fl:1"), ("fl:1", "fl:0"), ("cpu", "fl:1"), ("fl:0", "cpu")):
        target = torch.zeros(2, 3, device=b)
        target.copy_(source.to(a))
        assert torch.equal(target.cpu(), source)
        target.t()[1:].copy_(source.to(a).t()[1:] + 1)
        assert torch.equal(target.cpu()[:, 1:], source[:, 1:] + 1)


def test_gradients_flow_across_devices() -> None:
    x = torch.ones(3, device="fl:0", requires_grad=True)
    y = (x * 2).to("fl:1") * 3
    (y.cpu() * 4).sum().backward()
    assert x.grad.device == torch.device("fl:0")
    assert (x.grad == 24).all()
