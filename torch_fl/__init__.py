# SPDX-License-Identifier: Apache-2.0
"""Torch-FL: one out-of-tree PyTorch device, ``fl``, behind which any AI chip can live."""

import importlib
from typing import TYPE_CHECKING, Any

from torch_fl import _load
from torch_fl._load import _autoload as _autoload
from torch_fl.configuration.settings import config, config_sources, get_config, set_config
from torch_fl.routing.errors import ConfigError, UnsupportedOpError

if TYPE_CHECKING:
    from torch_fl import profiler
    from torch_fl.chips.python_backend import MemoryAllocator, TensorView, register_backend
    from torch_fl.chips.records import DeviceRecord, PluginRecord, list_devices, list_plugins
    from torch_fl.configuration.auto import auto
    from torch_fl.configuration.devices import exclude_device, set_default_device, set_preferred_device
    from torch_fl.configuration.precision import set_precision
    from torch_fl.device.names import alias_cuda, unalias_cuda
    from torch_fl.observe.align import AlignReport, align
    from torch_fl.observe.dispatch import profile_dispatch
    from torch_fl.observe.storm import FallbackStormWarning
    from torch_fl.routing.counters import (
        AdapterStats,
        CallCount,
        Counters,
        adapter_stats,
        counters,
        reset_counters,
        timing,
    )
    from torch_fl.routing.overrides import override_function
    from torch_fl.routing.query import (
        Explanation,
        OpQuery,
        clear_dispatch_cache,
        explain,
        query_op,
        registered_ops_summary,
    )

__version__ = "0.1.0"

__all__ = [
    "AdapterStats",
    "AlignReport",
    "CallCount",
    "ConfigError",
    "Counters",
    "DeviceRecord",
    "Explanation",
    "FallbackStormWarning",
    "MemoryAllocator",
    "OpQuery",
    "PluginRecord",
    "TensorView",
    "UnsupportedOpError",
    "adapter_stats",
    "alias_cuda",
    "align",
    "auto",
    "clear_dispatch_cache",
    "config",
    "config_sources",
    "counters",
    "exclude_device",
    "explain",
    "get_config",
    "list_devices",
    "list_plugins",
    "override_function",
    "profile_dispatch",
    "profiler",
    "query_op",
    "register_backend",
    "registered_ops_summary",
    "reset_counters",
    "set_config",
    "set_default_device",
    "set_precision",
    "set_preferred_device",
    "timing",
    "unalias_cuda",
]

# Every `import torch` pays for what is imported here; what only answers questions waits until it is asked for.
_LATER = {
    "torch_fl.chips.python_backend": ("MemoryAllocator", "TensorView", "register_backend"),
    "torch_fl.chips.records": ("DeviceRecord", "PluginRecord", "list_devices", "list_plugins"),
    "torch_fl.device.names": ("alias_cuda", "unalias_cuda"),
    "torch_fl.configuration.auto": ("auto",),
    "torch_fl.configuration.devices": ("exclude_device", "set_default_device", "set_preferred_device"),
    "torch_fl.configuration.precision": ("set_precision",),
    "torch_fl.observe.align": ("AlignReport", "align"),
    "torch_fl.observe.dispatch": ("profile_dispatch",),
    "torch_fl.observe.storm": ("FallbackStormWarning",),
    "torch_fl.routing.counters": (
        *("AdapterStats", "CallCount", "Counters"),
        *("adapter_stats", "counters", "reset_counters", "timing"),
    ),
    "torch_fl.routing.overrides": ("override_function",),
    "torch_fl.routing.query": (
        *("Explanation", "OpQuery"),
        *("clear_dispatch_cache", "explain", "query_op", "registered_ops_summary"),
    ),
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name == "profiler":
        return importlib.import_module("torch_fl.profiler")
    for module, names in _LATER.items():
        if name in names:
            value = getattr(importlib.import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'torch_fl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_load.on_import()
