# SPDX-License-Identifier: Apache-2.0
"""What ran where, when, why, and what it cost. See docs/profiling.md.

``with torch_fl.profiler.profile() as p: ...`` keeps a record for each operator call; ``torch_fl.profile_dispatch()`` is
the light form, from the counters that always run.
"""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch_fl import _load
from torch_fl._context import reusable
from torch_fl.observe.dispatch import DispatchProfile, profile_dispatch
from torch_fl.observe.layers import layer, layers_of
from torch_fl.observe.profile import Profile, Summary
from torch_fl.observe.records import GROUP_FIELDS, DeviceEvent, Group, Groups, MemorySample, Record

if TYPE_CHECKING:
    import torch

__all__ = [
    "GROUP_FIELDS",
    "DeviceEvent",
    "DispatchProfile",
    "Group",
    "Groups",
    "MemorySample",
    "Profile",
    "Record",
    "Summary",
    "layer",
    "profile",
    "profile_dispatch",
]


@reusable
def profile(
    capacity: int = 1_000_000,
    sites: bool = True,
    layers: torch.nn.Module | None = None,
    device_events: bool = True,
) -> Iterator[Profile]:
    """Record every operator call of all threads; the yielded profile is filled when the ``with`` block ends.

    Args:
        capacity: how many records to keep. When there are more calls the oldest go, and ``p.dropped`` counts them.
        sites: find the line of Python that made each call.
        layers: a model whose modules' names the records shall have.
        device_events: ask the chips when kernels, copies and fills ran, where they can tell.

    Raises:
        TypeError: ``capacity`` is no int, or ``layers`` no module.
        ValueError: ``capacity`` is below 1.
        RuntimeError: a profile is being recorded already.
    """
    room = _checked(capacity)
    core = _load.core()
    with contextlib.ExitStack() as hooks:
        if layers is not None:
            hooks.enter_context(layers_of(layers))
        result = Profile()
        started: list[None] = []
        try:
            # In one call from Python, so that Ctrl-C comes either before the start or after it is noted.
            started.extend(map(core.start_recording, (room,), (sites,), (device_events,)))
            yield result
        finally:
            if started:
                result._finish(core.stop_recording())


def _checked(capacity: int) -> int:
    try:
        room = min(operator.index(capacity), sys.maxsize)
    except TypeError:
        kind = type(capacity).__name__
        raise TypeError(f"profile: capacity must be an int, found {capacity!r} ({kind})") from None
    if room < 1:
        raise ValueError(f"profile: capacity must be at least 1, found {room}")
    return room
