# SPDX-License-Identifier: Apache-2.0
"""Memory of a Python chip."""

from __future__ import annotations

import mmap
import os
from typing import Any


class MemoryAllocator:
    """Where the memory of a device comes from. Caching, streams and statistics are the core's, above it.

    The attributes are read when the backend is registered; the methods are called when the core wants a new segment
    or gives one back. They must not use the device whose memory they are about.
    """

    alignment: int = 64
    """Every address is a multiple of it: a power of two, in bytes."""

    total_memory: int = 1 << 30
    """Bytes of the device."""

    max_allocation: int = 0
    """Largest single allocation in bytes; 0: `total_memory`."""

    host_coherent: bool = True
    """The host may read and write at the addresses. If not, `copy_in` and `copy_out` move the data."""

    def padded_size(self, nbytes: int) -> int:
        """Return how many bytes `allocate` shall be asked for, where `nbytes` are wanted."""
        return nbytes

    def allocate(self, nbytes: int) -> Any:
        """Return `nbytes` of memory: an address, or an object with a writable buffer, kept until it is freed.

        Raise MemoryError if there is not so much.
        """
        raise NotImplementedError(f"{type(self).__name__} must have a method allocate(nbytes)")

    def free(self, address: int) -> None:
        """Take memory back. Not called for buffer objects, which are dropped."""

    def allocate_pinned(self, nbytes: int) -> Any:
        """Return pinned host memory, as `allocate` does. Without this method, ordinary host memory is used."""
        raise NotImplementedError

    def free_pinned(self, address: int) -> None:
        """Take pinned memory back. Not called for buffer objects."""

    def copy_in(self, address: int, data: memoryview) -> None:
        """Copy bytes of the host to the device."""
        raise NotImplementedError(f"{type(self).__name__} is not host-coherent and must have copy_in(address, data)")

    def copy_out(self, address: int, into: memoryview) -> None:
        """Copy bytes of the device to the host."""
        raise NotImplementedError(f"{type(self).__name__} is not host-coherent and must have copy_out(address, into)")

    def copy_within(self, destination: int, source: int, nbytes: int) -> None:
        """Copy bytes inside the device. Without this method, they go through the host."""
        staging = bytearray(nbytes)
        self.copy_out(source, memoryview(staging))
        self.copy_in(destination, memoryview(staging))


class HostMemoryAllocator(MemoryAllocator):
    """Memory of the host; what a backend has if it says nothing."""

    def __init__(self, total_memory: int | None = None) -> None:
        self.total_memory = total_memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def allocate(self, nbytes: int) -> Any:
        """Return anonymous pages."""
        try:
            return mmap.mmap(-1, nbytes)
        except (OSError, OverflowError) as error:
            raise MemoryError(f"the host has no {nbytes} bytes: {error}") from None
