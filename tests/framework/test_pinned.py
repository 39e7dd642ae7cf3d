# SPDX-License-Identifier: Apache-2.0
"""Pinned host memory and data loading."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.framework.helpers import needs_two_devices


def test_pin_memory() -> None:
    """pin_memory copies to pinned memory and is_pinned tells it from ordinary memory."""
    x = torch.arange(100.0)
    assert not x.is_pinned()
    pinned = x.pin_memory()
    assert pinned.is_pinned()
    assert pinned.device.type == "cpu"
    assert torch.equal(pinned, x)
    assert pinned[10:20].is_pinned()
    assert pinned.pin_memory() is pinned
    assert torch.empty(5, pin_memory=True).is_pinned()
    assert not torch.ones(3, device="fl").is_pinned()


def test_empty_pinned() -> None:
    """Pinning a tensor without elements works."""
    assert torch.empty(0).pin_memory().numel() == 0


def test_asynchronous_copies() -> None:
    """Copies from and to pinned memory with non_blocking=True carry the right data, also when freed at once."""
    for i in range(50):
        host = torch.full((10_000,), float(i)).pin_memory()
        device = host.to("fl", non_blocking=True)
        del host
        torch.full((10_000,), -1.0).pin_memory()  # would overwrite the freed pinned block
        back = torch.empty(10_000, pin_memory=True)
        back.copy_(device, non_blocking=True)
        torch.accelerator.synchronize()
        assert back.eq(i).all()


@needs_two_devices
def test_pinned_memory_serves_any_device() -> None:
    """Pinned memory made while one device was current is safe to copy to another."""
    for i in range(20):
        host = torch.full((10_000,), float(i)).pin_memory()
        device = host.to("fl:1", non_blocking=True)
        del host
        torch.full((10_000,), -1.0).pin_memory()
        assert device.cpu().eq(i).all()


def test_host_cache() -> None:
    """Freed pinned memory is kept for the next request, and given back on demand."""
    torch.empty(2**20, dtype=torch.uint8, pin_memory=True)
    before = torch.empty(2**20, dtype=torch.uint8, pin_memory=True)
    address = before.data_ptr()
    del before
    assert torch.empty(2**20, dtype=torch.uint8, pin_memory=True).data_ptr() == address
    torch.fl.empty_host_cache()


def test_data_loader_pins() -> None:
    """DataLoader(pin_memory=True) without workers yields pinned batches."""
    data = TensorDataset(torch.arange(20.0).reshape(10, 2), torch.arange(10))
    for x, y in DataLoader(data, batch_size=4, pin_memory=True):
        assert x.is_pinned()
        assert y.is_pinned()


def test_data_loader_with_workers() -> None:
    """Worker processes feed pinned batches after the parent has used the device."""
    torch.ones(2, device="fl").sum().item()
    data = TensorDataset(torch.arange(64.0).reshape(32, 2), torch.arange(32))
    seen = []
    for x, y in DataLoader(data, batch_size=8, num_workers=2, pin_memory=True):
        assert x.is_pinned()
        assert torch.equal(x.to("fl", non_blocking=True).cpu(), x)
        seen += y.tolist()
    assert sorted(seen) == list(range(32))
