# SPDX-License-Identifier: Apache-2.0
"""Allocations, copies in all directions, fills, pinned and mapped memory."""

from __future__ import annotations

import ctypes as C
import itertools

import numpy as np
import pytest
from opencl_chips import CHIPS
from opencl_host import (
    HOST_COHERENT,
    INVALID_ARGUMENT,
    ON_DEVICE,
    OUT_OF_MEMORY,
    TO_DEVICE,
    TO_HOST,
    UNSUPPORTED,
    PluginError,
)


def noise(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, count, np.uint8)


def test_allocations_are_aligned_and_apart(chip):
    sizes = [64, 128, 4096, 1 << 20, 3 << 20]
    addresses = [chip.alloc(size) for size in sizes]
    for address in addresses:
        assert address != 0
        assert address % chip.properties.alignment == 0
    spans = sorted(zip(addresses, sizes))
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(spans))
    chip.free(*addresses)


def test_many_allocations_come_and_go(chip):
    kept = {}
    for i in range(3000):  # more than the slots that wait for their turn
        kept[i] = chip.alloc(64)
        if i >= 10:
            chip.free(kept.pop(i - 10))
    for i, address in kept.items():
        chip.fill(address, bytes([i % 256]), 64)
    assert all((chip.read(a, 64, np.uint8) == i % 256).all() for i, a in kept.items())
    chip.free(*kept.values())


@pytest.mark.parametrize(
    "offset, size", [(0, 1), (1, 1), (3, 61), (64, 64), (129, 7777), (5, 1 << 20), (64, (9 << 20) + 7)]
)
def test_copies_in_all_directions_at_odd_places(chip, offset, size):
    data = noise(size)
    a, b = chip.alloc(size + 4096), chip.alloc(size + 4096)
    chip.fill(a, b"\xaa", size + 4096)
    chip.fill(b, b"\xbb", size + 4096)
    chip.write(a + offset, data)
    chip.copy(b + 2 * offset, a + offset, size, ON_DEVICE)
    found = chip.read(b, size + 4096, np.uint8)
    expected = np.full(size + 4096, 0xBB, np.uint8)
    expected[2 * offset : 2 * offset + size] = data
    np.testing.assert_array_equal(found, expected)
    around = chip.read(a, size + 4096, np.uint8)
    assert (around[:offset] == 0xAA).all()
    assert (around[offset + size :] == 0xAA).all()
    chip.free(a, b)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("count", [1, 3, 1000])
def test_fill_repeats_patterns(chip, size, count):
    pattern = noise(size)
    a = chip.alloc(16 * 1024 + 256)
    chip.fill(a, b"\x00", 16 * 1024 + 256)
    chip.fill(a + 64 + size, pattern.tobytes(), count)
    found = chip.read(a, 16 * 1024 + 256, np.uint8)
    expected = np.zeros_like(found)
    expected[64 + size : 64 + size + size * count] = np.tile(pattern, count)
    np.testing.assert_array_equal(found, expected)
    chip.free(a)


def test_fill_reads_its_pattern_during_the_call(chip):
    a = chip.alloc(4096)
    pattern = C.create_string_buffer(b"\x05" * 16, 16)
    chip.check(chip.memory.fill(chip.handle, None, a, pattern, 16, 256))
    pattern.raw = b"\x09" * 16
    assert (chip.read(a, 4096, np.uint8) == 5).all()
    chip.free(a)


def test_fill_refuses_other_patterns(chip):
    a = chip.alloc(64)
    for address, pattern in ((a, b"abc"), (a, b"x" * 32), (a + 1, b"ab")):
        with pytest.raises(PluginError, match="a pattern has 1, 2, 4, 8 or 16 bytes"):
            chip.fill(address, pattern, 1)
    chip.free(a)


def test_pinned_memory(chip):
    size = 100_003
    pointer = C.c_void_p()
    chip.check(chip.memory.host_alloc(chip.handle, size, C.byref(pointer)))
    pinned = np.ctypeslib.as_array(C.cast(pointer, C.POINTER(C.c_uint8)), (size,))
    data = noise(size)
    pinned[:] = data
    a = chip.alloc(size)
    chip.copy(a, pointer.value, size, TO_DEVICE)
    chip.wait()
    pinned[:] = 0
    chip.copy(pointer.value, a, size, TO_HOST)
    chip.wait()
    np.testing.assert_array_equal(pinned, data)
    chip.check(chip.memory.host_free(chip.handle, pointer))
    chip.free(a)


def test_mapping_reads_and_writes_device_memory(chip, kind):
    a = chip.place(np.arange(1000, dtype=np.int32))
    pointer = C.c_void_p()
    if kind == "usm-device":
        with pytest.raises(PluginError, match="cannot be mapped; copy it") as error:
            chip.check(chip.memory.map(chip.handle, a + 40, 400, C.byref(pointer)))
        assert error.value.status == UNSUPPORTED
        return chip.free(a)
    chip.check(chip.memory.map(chip.handle, a + 40, 400, C.byref(pointer)))
    view = np.ctypeslib.as_array(C.cast(pointer, C.POINTER(C.c_int32)), (100,))
    np.testing.assert_array_equal(view, np.arange(10, 110))
    view[:] = -view
    chip.check(chip.memory.unmap(chip.handle, a + 40, pointer))
    expected = np.arange(1000, dtype=np.int32)
    expected[10:110] *= -1
    np.testing.assert_array_equal(chip.read(a, 1000, np.int32), expected)
    return chip.free(a)


def test_the_host_may_follow_addresses_where_it_is_promised(chip):
    if not chip.properties.capabilities & HOST_COHERENT:
        return
    a = chip.alloc(4096)
    view = np.ctypeslib.as_array(C.cast(a, C.POINTER(C.c_uint8)), (4096,))
    chip.fill(a, b"\x07", 4096)
    chip.wait()
    assert (view == 7).all()
    view[:] = noise(4096)
    np.testing.assert_array_equal(chip.read(a, 4096, np.uint8), noise(4096))
    chip.free(a)


def test_an_allocation_beyond_the_limit_is_out_of_memory(chip):
    with pytest.raises(PluginError, match=r"CL_INVALID_BUFFER_SIZE \(-61\): an allocation of \d+ bytes") as error:
        chip.alloc(chip.properties.max_allocation + (1 << 20))
    assert error.value.status == OUT_OF_MEMORY
    assert chip.properties.name.decode()[:20] in error.value.message
    chip.free(chip.alloc(64))


def test_buffers_check_their_addresses(chip, kind):
    if kind != "buffer":
        return  # pointers cannot be checked
    a = chip.alloc(256)
    step = chip.properties.size_granularity
    size = (256 + step - 1) // step * step
    for address, count in ((a, size + 1), (a + size, 1), (a - 1, 1), (0, 1), (12345, 1), (1 << 62, 1)):
        with pytest.raises(PluginError, match=r"no allocation of .+ holds \d+ bytes from address") as error:
            chip.fill(address, b"x", count)
        assert error.value.status == INVALID_ARGUMENT
    with pytest.raises(PluginError, match="where no allocation begins"):
        chip.free(a + 64)
    chip.free(a)
    with pytest.raises(PluginError, match="where no allocation begins"):
        chip.free(a)


def test_copies_between_devices(plugins):
    """Directly where the host may read both memories; else the plugin declines and the host goes by itself."""
    data = noise(100_001)
    for plugin in plugins.values():
        chips = [c for c in CHIPS.values() if c.plugin is plugin]
        for src in chips:
            for dst in chips:
                a, b = src.place(data), dst.alloc(200_000)
                direct = src is dst or src.properties.capabilities & dst.properties.capabilities & HOST_COHERENT
                status = src.memory.copy_peer(dst.handle, b + 3, src.handle, a + 1, 100_000, None)
                assert status == (0 if direct else UNSUPPORTED)
                src.wait()
                if direct:
                    np.testing.assert_array_equal(dst.read(b + 3, 100_000, np.uint8), data[1:])
                src.free(a)
                dst.free(b)
