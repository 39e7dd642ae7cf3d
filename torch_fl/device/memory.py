# SPDX-License-Identifier: Apache-2.0
"""Memory of ``torch.fl``: statistics of the caching allocator, in bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from torch_fl import _load
from torch_fl.device._utils import DeviceLike, _get_device_index


def _index(device: DeviceLike) -> int:
    return _get_device_index(device, optional=True)


def empty_cache() -> None:
    """Give cached memory that nobody uses back to the devices."""
    torch.accelerator.memory.empty_cache()


def empty_host_cache() -> None:
    """Give cached pinned memory that nobody uses back to the system."""
    torch.accelerator.memory.empty_host_cache()


def memory_stats(device: DeviceLike = None) -> OrderedDict[str, Any]:
    """Return all statistics of a device's allocator, by name."""
    return torch.accelerator.memory.memory_stats(_index(device))


def memory_allocated(device: DeviceLike = None) -> int:
    """Return the bytes that tensors occupy now."""
    return torch.accelerator.memory.memory_allocated(_index(device))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the most bytes that tensors occupied since `reset_peak_memory_stats`."""
    return torch.accelerator.memory.max_memory_allocated(_index(device))


def memory_reserved(device: DeviceLike = None) -> int:
    """Return the bytes that the allocator holds now, used or cached."""
    return torch.accelerator.memory.memory_reserved(_index(device))


def max_memory_reserved(device: DeviceLike = None) -> int:
    """Return the most bytes that the allocator held since `reset_peak_memory_stats`."""
    return torch.accelerator.memory.max_memory_reserved(_index(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Set the statistics that only grow to zero."""
    torch.accelerator.memory.reset_accumulated_memory_stats(_index(device))


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Set the peaks to the current values."""
    torch.accelerator.memory.reset_peak_memory_stats(_index(device))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Return the free and total bytes of a device, as its chip reports them."""
    return torch.accelerator.memory.get_memory_info(_index(device))


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limit the allocator to a part of the device's memory, 0 to 1; beyond it, allocation fails as out of memory."""
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"the memory fraction must lie between 0 and 1, got {fraction}")
    _load.core().set_memory_fraction(_index(device), float(fraction))


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """Return the statistics of a device as a table for people."""
    index = _index(device)
    stats = memory_stats(index)
    columns = ("current", "peak", "allocated", "freed")
    lines = [f"fl:{index}  {'':28}" + "".join(f"{name:>14}" for name in columns)]
    for title, key, divisor in _SUMMARY[: 2 if abbreviated else None]:
        values = (stats.get(f"{key}.all.{name}", 0) // divisor for name in columns)
        lines.append(f"  {title:32}" + "".join(f"{value:>14,}" for value in values))
    lines.append(f"  {'allocation retries':32}{stats.get('num_alloc_retries', 0):>14,}")
    lines.append(f"  {'out of memory':32}{stats.get('num_ooms', 0):>14,}")
    return "\n".join(lines)


_SUMMARY = (
    ("allocated, KiB", "allocated_bytes", 1024),
    ("reserved, KiB", "reserved_bytes", 1024),
    ("active, KiB", "active_bytes", 1024),
    ("allocations", "allocation", 1),
    ("segments", "segment", 1),
)
