# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _device_is_there() -> None:
    assert torch.accelerator.is_available(), "no fl device: see `python -m torch_fl`"
    assert torch.accelerator.current_accelerator() == torch.device("fl")


@pytest.fixture(autouse=True)
def _clean_state() -> Iterator[None]:
    """Seed, and check that a test leaves the current device and stream as they were."""
    torch.manual_seed(0)
    yield
    device, stream = torch.fl.current_device(), torch.accelerator.current_stream()
    torch.fl.set_device(0)
    torch.accelerator.set_stream(torch.fl.default_stream(0))
    assert device == 0, "the test left another device current"
    assert stream == torch.fl.default_stream(0), "the test left another stream current"
