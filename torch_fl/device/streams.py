# SPDX-License-Identifier: Apache-2.0
"""Streams and events of ``torch.fl``: PyTorch's own, with the device filled in."""

from __future__ import annotations

from typing import Any

import torch

from torch_fl import _load
from torch_fl.device._utils import DeviceLike, _get_device_index


def _device(device: DeviceLike) -> torch.device:
    return torch.device(_load.DEVICE_TYPE, _get_device_index(device, optional=True))


class Stream(torch.Stream):
    """A queue of work on one device. Streams of a negative ``priority`` go first, where the chip knows priorities."""

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **known: int) -> Stream:
        """Take a stream of the device's pool, or wrap the one that ``stream_id`` and its companions name."""
        if "stream_id" in known:
            return super().__new__(cls, **known)
        return super().__new__(cls, _device(device), priority=priority)

    def __repr__(self) -> str:
        return f"<torch.fl.Stream device={self.device} stream_id={self.stream_id}>"


class _EventMeta(type):
    """Makes an event of this device count as a ``torch.fl.Event``."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == _load.DEVICE_TYPE


class Event(torch.Event, metaclass=_EventMeta):
    """A mark in a stream that others can wait for, and, with ``enable_timing``, measure from.

    Calling it gives a plain ``torch.Event``: ``elapsed_time`` and ``record_event`` refuse any subclass of that.
    """

    def __new__(  # type: ignore[misc]
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, device: DeviceLike = None
    ) -> torch.Event:
        """Make an event; the stream that first records it decides its device unless one is given."""
        where = _load.DEVICE_TYPE if device is None else _device(device)
        return torch.Event(where, enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


def _wrap(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def current_stream(device: DeviceLike = None) -> Stream:
    """Return the calling thread's current stream on a device (default: the current one)."""
    return _wrap(torch._C._accelerator_getStream(_get_device_index(device, optional=True)))


def default_stream(device: DeviceLike = None) -> Stream:
    """Return the stream that a device has before anybody sets one."""
    kind = int(torch._C._accelerator_getStream(_get_device_index(device, optional=True)).device_type)
    return Stream(stream_id=0, device_index=_get_device_index(device, optional=True), device_type=kind)


def set_stream(stream: torch.Stream | None) -> None:
    """Make a stream, and its device, the calling thread's current ones. None changes nothing."""
    if stream is not None:
        torch._C._accelerator_setStream(stream)


class StreamContext:
    """Context manager that makes a stream current and restores device and stream afterwards."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> torch.Stream | None:
        return None if self.stream is None else self.stream.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__(*error)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return a context manager that makes a stream current; None changes nothing."""
    return StreamContext(stream)


def is_current_stream_capturing() -> bool:
    """Return whether the current stream records a graph."""
    return bool(current_stream().is_capturing())
