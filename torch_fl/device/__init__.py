# SPDX-License-Identifier: Apache-2.0
"""The module ``torch.fl``: devices, streams, events, memory and random numbers, as ``torch.cuda`` has them.

PyTorch's own Python code looks many of these names up, so they follow its conventions, not ours.
"""

from typing import Any

from torch_fl.device import _utils as _utils
from torch_fl.device import memory, random, streams
from torch_fl.device._devices import (
    DeviceProperties,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_amp_supported_dtype,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    set_device,
    synchronize,
)
from torch_fl.device._devices import (
    _is_in_bad_fork as _is_in_bad_fork,
)
from torch_fl.device._devices import (
    _lazy_init as _lazy_init,
)
from torch_fl.device.memory import (
    empty_cache,
    empty_host_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from torch_fl.device.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_fl.device.streams import (
    Event,
    Stream,
    current_stream,
    default_stream,
    is_current_stream_capturing,
    set_stream,
    stream,
)

__all__ = [
    "DeviceProperties",
    "Event",
    "Stream",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "empty_host_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "random",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "streams",
    "synchronize",
]


def __getattr__(name: str) -> Any:
    """Look up names whose value is known only once the chips are loaded."""
    if name == "default_generators":
        return random.default_generators()
    if name == "_initialized":  # torch.utils.checkpoint saves random states only when it is true
        return is_initialized()
    raise AttributeError(f"module 'torch.fl' has no attribute {name!r}")
