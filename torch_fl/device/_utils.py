# SPDX-License-Identifier: Apache-2.0
"""Device arguments. ``torch.load`` looks `_get_device_index` up under ``torch.fl._utils``."""

from __future__ import annotations

from typing import Any

import torch

from torch_fl import _load

DeviceLike = int | str | torch.device | None


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """Return the index that a device argument means.

    ``optional``: None and a device without an index mean the current device. ``allow_cpu``: a CPU device means -1.
    """
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != _load.DEVICE_TYPE:
            raise ValueError(f"expected a device of type 'fl', got '{device}'")
        if device.index is not None:
            return int(device.index)
    elif device is not None:
        raise TypeError(f"expected an index, a string, a torch.device or None, got {type(device).__name__}")
    if not optional:
        raise ValueError(f"expected an 'fl' device with an index, such as 'fl:0', got {device!r}")
    return int(torch._C._accelerator_getDeviceIndex())
