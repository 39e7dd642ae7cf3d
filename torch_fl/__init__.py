# SPDX-License-Identifier: Apache-2.0
"""Torch-FL: one out-of-tree PyTorch device, ``fl``, behind which any AI chip can live."""

from torch_fl import _load
from torch_fl._load import _autoload as _autoload
from torch_fl.chips import DeviceRecord, PluginRecord, list_devices, list_plugins
from torch_fl.routing import (
    CallCount,
    ConfigError,
    Counters,
    UnsupportedOpError,
    clear_dispatch_cache,
    config,
    counters,
    get_config,
    query_op,
    registered_ops_summary,
    reset_counters,
    set_config,
    timing,
)

__version__ = "0.1.0"

__all__ = [
    "CallCount",
    "ConfigError",
    "Counters",
    "DeviceRecord",
    "PluginRecord",
    "UnsupportedOpError",
    "clear_dispatch_cache",
    "config",
    "counters",
    "get_config",
    "list_devices",
    "list_plugins",
    "query_op",
    "registered_ops_summary",
    "reset_counters",
    "set_config",
    "timing",
]

_load.on_import()
