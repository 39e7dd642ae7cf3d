# SPDX-License-Identifier: Apache-2.0
"""DLPack and conjugate and negative views."""

from __future__ import annotations

import pytest
import torch

from tests.framework.helpers import assert_same, needs_two_devices


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16, torch.complex64, torch.bool])
def test_round_trip_shares_memory(dtype: torch.dtype) -> None:
    """from_dlpack of an fl tensor is the same memory on the same device."""
    x = torch.ones(3, 4, device="fl").to(dtype)
    y = torch.from_dlpack(x)
    assert y.device == x.device
    assert y.data_ptr() == x.data_ptr()
    y.zero_()
    assert not x.any()


def test_capsule() -> None:
    """The older capsule interface works, strides and offsets included."""
    x = torch.arange(24.0, device="fl").reshape(4, 6)[1:, ::2]
    y = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    assert y.stride() == x.stride()
    assert torch.equal(x, y)


def test_device_query() -> None:
    """__dlpack_device__ says extension device and index."""
    kind, index = torch.ones(1, device="fl").__dlpack_device__()
    assert int(kind) == 12
    assert index == 0


@needs_two_devices
def test_second_device() -> None:
    """A tensor of the second device comes back to the second device."""
    x = torch.ones(3, device="fl:1")
    assert torch.from_dlpack(x).device == torch.device("fl:1")


def test_conjugate() -> None:
    """Conjugate views resolve, copy in both directions, and compute."""
    x = torch.randn(4, 3, dtype=torch.complex64)
    y = x.to("fl")
    assert y.conj().is_conj()
    assert_same(y.conj().resolve_conj(), x.conj().resolve_conj())
    assert_same(y.conj().mul(2), x.conj().mul(2))
    assert torch.equal(x.conj().to("fl").cpu(), x.conj().resolve_conj())
    target = torch.empty_like(y)
    target.copy_(y.conj())
    assert_same(target, x.conj().resolve_conj())
    target.conj().copy_(y)
    assert_same(target, x.conj().resolve_conj())


def test_negative_view() -> None:
    """The imaginary part of a conjugate view has the negative bit, which copies and operators honour."""
    x = torch.randn(5, dtype=torch.complex64)
    y = x.to("fl")
    imaginary = y.conj().imag
    assert imaginary.is_neg()
    assert_same(imaginary.resolve_neg(), x.conj().imag.resolve_neg())
    assert_same(imaginary + 1, x.conj().imag + 1)
    assert torch.equal(imaginary.cpu(), x.conj().imag.resolve_neg())
