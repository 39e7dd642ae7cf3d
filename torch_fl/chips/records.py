# SPDX-License-Identifier: Apache-2.0
"""Records of devices and plugins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch_fl import _load


@dataclass(frozen=True)
class DeviceRecord:
    """One device of one chip."""

    device: str  # "fl:0"
    index: int  # global, over all chips
    local_index: int  # within its chip
    chip: str
    vendor: str
    name: str
    driver_version: str
    memory: int  # bytes
    max_allocation: int  # bytes
    alignment: int  # bytes
    capabilities: tuple[str, ...]
    dtypes: tuple[str, ...]  # that its kernels compute with
    compute_units: int  # 0 where the chip does not say
    clock_mhz: int  # 0 where the chip does not say
    peak_flops: float = 0.0  # float32 operations a second; 0 where the chip does not say
    peak_bandwidth: float = 0.0  # bytes a second; 0 where the chip does not say

    def __str__(self) -> str:
        return f"{self.device}  {self.chip}  {self.name} ({self.vendor}), {self.memory / 2**20:.0f} MiB"


@dataclass(frozen=True)
class PluginRecord:
    """What became of one file that was considered as a plugin."""

    path: str
    source: str  # where it was looked for: "TORCH_FL_PLUGIN_PATH", "built-in", ...
    loaded: bool
    reason: str  # when skipped; when loaded: what of it does not work
    chip: str  # when loaded

    def __str__(self) -> str:
        state = f"loaded as {self.chip}" if self.loaded else "skipped"
        return f"{self.path}  [{self.source}]  {state}" + (f": {self.reason}" if self.reason else "")


def list_devices() -> list[DeviceRecord]:
    """Return a record for every device of every chip, in the order of their indices. Opens none of them."""
    return [_device_record(row) for row in _load.core().devices()]


def _device_record(row: dict[str, Any]) -> DeviceRecord:
    return DeviceRecord(
        device=f"{_load.DEVICE_TYPE}:{row['index']}",
        index=row["index"],
        local_index=row["local_index"],
        chip=row["chip"],
        vendor=row["vendor"],
        name=row["name"],
        driver_version=row["driver_version"],
        memory=row["total_memory"],
        max_allocation=row["max_allocation"],
        alignment=row["alignment"],
        capabilities=tuple(row["capabilities"]),
        dtypes=tuple(row["dtypes"]),
        compute_units=row["compute_units"],
        clock_mhz=row["clock_mhz"],
        peak_flops=row["peak_flops"],
        peak_bandwidth=row["peak_bandwidth"],
    )


def list_plugins() -> list[PluginRecord]:
    """Return a record for every plugin file that was found, in the order in which they were tried.

    Files that others could change come last: they were not tried.
    """
    names = ("path", "source", "loaded", "reason", "chip")
    return [PluginRecord(**{name: row[name] for name in names}) for row in _load.core().plugin_reports()]
