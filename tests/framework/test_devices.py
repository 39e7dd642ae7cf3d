# SPDX-License-Identifier: Apache-2.0
"""The device guard and the accelerator hooks, through the Python surface that stands on them."""

from __future__ import annotations

import pytest
import torch

from tests.framework.helpers import needs_two_devices, run_child


def test_names() -> None:
    """The device has the name fl everywhere that PyTorch names devices."""
    x = torch.empty(2, device="fl")
    assert x.device == torch.device("fl", 0)
    assert x.is_fl
    assert str(x.device) == "fl:0"
    assert torch.empty(2).fl().is_fl


def test_integer_means_accelerator() -> None:
    """A bare index names the fl device of that index."""
    assert torch.empty(2).to(0).device == torch.device("fl:0")


@needs_two_devices
def test_current_device_and_guard() -> None:
    """Factories without an index follow the current device, which the context manager restores."""
    with torch.fl.device(1):
        assert torch.empty(1, device="fl").device.index == 1
        assert torch.accelerator.current_device_index() == 1
    assert torch.empty(1, device="fl").device.index == 0


@needs_two_devices
def test_operators_run_on_their_tensors_device() -> None:
    """An operator on the second device does not change the current one and its result stays there."""
    x = torch.arange(6.0, device="fl:1")
    assert (x + 1).device.index == 1
    assert (x.cpu() + 1).tolist() == (x + 1).tolist()
    assert torch.fl.current_device() == 0


@pytest.mark.parametrize("device", ["fl:17", "fl:99"])
def test_missing_device(device: str) -> None:
    """A device that does not exist is refused with a message that says which there are."""
    with pytest.raises(RuntimeError, match="invalid device index"):
        torch.empty(1, device=device)
    with pytest.raises(RuntimeError, match="invalid device index"):
        torch.fl.set_device(device)
    with pytest.raises(RuntimeError, match="invalid device index"):
        torch.accelerator.current_stream(device)


def test_counting_opens_nothing() -> None:
    """Asking whether and how many devices there are leaves them closed."""
    run_child(
        """
        import torch
        assert torch.accelerator.is_available() and torch.fl.is_available()
        assert torch.accelerator.device_count() == torch.fl.device_count() > 0
        torch.manual_seed(1)
        torch.randn(3).is_pinned()
        assert not torch.fl.is_initialized()
        torch.empty(1, device="fl")
        assert torch.fl.is_initialized()
        """
    )


def test_capability_lists_dtypes() -> None:
    """The accelerator's capability names the supported dtypes, float32 among them."""
    capability = torch.accelerator.get_device_capability("fl:0")
    assert torch.float32 in capability["supported_dtypes"]


@needs_two_devices
def test_mixed_devices_are_refused() -> None:
    """Tensors of two devices in one call are an error, not a silent copy."""
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device="fl:0") + torch.ones(2, device="fl:1")
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device="fl:0") + torch.ones(2)
