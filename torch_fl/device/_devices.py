# SPDX-License-Identifier: Apache-2.0
"""Devices of ``torch.fl``: which there are, which is current, what they can do."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from torch_fl import _load
from torch_fl.device._utils import DeviceLike, _get_device_index


class DeviceProperties(NamedTuple):
    """What a chip says about one of its devices."""

    name: str
    chip: str
    vendor: str
    driver_version: str
    total_memory: int
    multi_processor_count: int  # PyTorch's word for compute units; 0 where the chip does not say
    clock_mhz: int
    capabilities: tuple[str, ...]
    dtypes: tuple[str, ...]
    peak_flops: float = 0.0  # float32 operations a second; 0 where the chip does not say
    peak_bandwidth: float = 0.0  # bytes a second; 0 where the chip does not say


def is_available() -> bool:
    """Return whether there is at least one device. Opens none."""
    return device_count() > 0


def device_count() -> int:
    """Return the number of devices of all chips."""
    return int(_load.core().device_count())


def is_initialized() -> bool:
    """Return whether a device has been opened."""
    return bool(_load.core().initialized())


def init() -> None:
    """Do nothing but check: devices open themselves on first use."""
    _lazy_init()


def _lazy_init() -> None:
    if _is_in_bad_fork():
        raise RuntimeError(
            "Cannot use fl devices in a forked process after the parent has used them: the chip's driver does not "
            "survive a fork. Use the 'spawn' start method: torch.multiprocessing.set_start_method('spawn')."
        )


def _is_in_bad_fork() -> bool:
    return bool(_load.core().in_bad_fork())


def current_device() -> int:
    """Return the index of the calling thread's current device."""
    return int(torch._C._accelerator_getDeviceIndex())


def set_device(device: DeviceLike) -> None:
    """Make a device the calling thread's current one. A negative index changes nothing."""
    index = _get_device_index(device)
    if index >= 0:
        torch._C._accelerator_setDeviceIndex(index)


def synchronize(device: DeviceLike = None) -> None:
    """Wait for all work on a device (default: the current one)."""
    torch._C._accelerator_synchronizeDevice(_get_device_index(device, optional=True))


class device:
    """Context manager that changes the current device: ``with torch.fl.device(1): ...``. None and -1 change nothing."""

    def __init__(self, device: DeviceLike) -> None:
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> device:
        if self.idx >= 0:
            self.prev_idx = torch._C._accelerator_exchangeDevice(self.idx)
        return self

    def __exit__(self, *_: object) -> None:
        if self.idx >= 0:
            torch._C._accelerator_maybeExchangeDevice(self.prev_idx)


class device_of(device):
    """Context manager that makes a tensor's device current; a tensor of another device type changes nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if getattr(obj, "is_fl", False) else None)


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Return what the chip says about a device (default: the current one)."""
    row = _record(device)
    return DeviceProperties(
        name=row["name"],
        chip=row["chip"],
        vendor=row["vendor"],
        driver_version=row["driver_version"],
        total_memory=row["total_memory"],
        multi_processor_count=row["compute_units"],
        clock_mhz=row["clock_mhz"],
        capabilities=tuple(row["capabilities"]),
        dtypes=tuple(row["dtypes"]),
        peak_flops=row["peak_flops"],
        peak_bandwidth=row["peak_bandwidth"],
    )


def _record(device: DeviceLike) -> dict[str, Any]:
    index = _get_device_index(device, optional=True)
    rows: list[dict[str, Any]] = _load.core().devices()
    if not 0 <= index < len(rows):
        raise RuntimeError(f"invalid device index {index}: there are {len(rows)} fl devices")
    return rows[index]


def get_device_name(device: DeviceLike = None) -> str:
    """Return the name of a device (default: the current one)."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> dict[str, Any]:
    """Return what PyTorch records as the capability of a device: the dtypes it computes with."""
    return dict(torch._C._accelerator_getDeviceCapability(_get_device_index(device, optional=True)))


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Return whether the chip itself copies between two devices."""
    first, second = _record(device), _record(peer_device)
    same_chip = first["chip"] == second["chip"] and first["index"] != second["index"]
    return same_chip and "peer_copy" in first["capabilities"]


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that ``torch.autocast("fl")`` accepts."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether bfloat16 works on the current device: always, except natively where the chip lacks it."""
    return including_emulation or "bfloat16" in get_device_properties().dtypes
