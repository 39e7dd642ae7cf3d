# SPDX-License-Identifier: Apache-2.0
"""DLPack for ``fl`` tensors."""

from __future__ import annotations

from typing import Any

import torch


def teach_dlpack_device() -> None:
    """Make ``Tensor.__dlpack_device__`` (and with it ``torch.from_dlpack``) accept ``fl`` tensors.

    PyTorch's method compares the device's name with the literal "privateuse1", which a renamed backend never has, and
    raises "Unknown device type". Its C++ side already knows the answer, so tensors of this device are asked for it
    there; every other tensor takes PyTorch's own path. Does nothing where PyTorch lacks the helper.
    """
    to_dlpack_device = getattr(torch._C, "_torchDeviceToDLDevice", None)
    original = torch.Tensor.__dlpack_device__
    if to_dlpack_device is None or getattr(original, "_torch_fl", False):
        return

    def __dlpack_device__(self: torch.Tensor) -> Any:
        if type(self) is torch.Tensor and self.device.type == "fl":
            from torch.utils.dlpack import DLDeviceType

            kind, index = to_dlpack_device(self.device)
            return DLDeviceType(kind), index
        return original(self)

    __dlpack_device__._torch_fl = True  # type: ignore[attr-defined]
    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign,assignment]
