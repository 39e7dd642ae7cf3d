# SPDX-License-Identifier: Apache-2.0
"""Where operator calls run: settings, what would happen and why, what did happen."""

from torch_fl.routing.counters import CallCount, Counters, counters, reset_counters, timing
from torch_fl.routing.errors import ConfigError, UnsupportedOpError
from torch_fl.routing.query import OpQuery, clear_dispatch_cache, query_op, registered_ops_summary
from torch_fl.routing.settings import config, get_config, set_config

__all__ = [
    "CallCount",
    "ConfigError",
    "Counters",
    "OpQuery",
    "UnsupportedOpError",
    "clear_dispatch_cache",
    "config",
    "counters",
    "get_config",
    "query_op",
    "registered_ops_summary",
    "reset_counters",
    "set_config",
    "timing",
]
