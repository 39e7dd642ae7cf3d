# SPDX-License-Identifier: Apache-2.0
"""What becomes of failures inside OpenCL: a loader that fails when told to stands before the real one."""

from __future__ import annotations

import ctypes as C
from collections.abc import Iterator
from typing import Any

import pytest
from opencl_host import DEVICE_LOST, INTERNAL, INVALID_ARGUMENT, OUT_OF_MEMORY, Chip, Plugin, PluginError

NOT_AVAILABLE, ALLOCATION_FAILURE, OUT_OF_RESOURCES, INVALID_WORK_GROUP_SIZE = -2, -4, -5, -54
KERNEL = "__kernel void k(__global int* a, ulong o) { a[o / 4] = 1; }"


@pytest.fixture
def fail(loader, plugins) -> Iterator[Any]:
    """Sets the code of a failure."""
    library = C.CDLL(loader)
    names = ["clFinish", "event", "clCreateBuffer", "clCreateContext", "clEnqueueNDRangeKernel"]
    variables = {name: C.c_int32.in_dll(library, f"fail_{name}") for name in names}

    def change(name: str, code: int) -> None:
        variables[name].value = code

    yield change
    for name in names:
        change(name, 0)


@pytest.fixture
def failing(loader, fail) -> Iterator[Chip]:
    chip = Chip(Plugin(TORCH_FL_OPENCL_LIBRARY=loader, TORCH_FL_OPENCL_MEMORY="buffer"), 0)
    yield chip
    for name in ("clFinish", "event"):
        fail(name, 0)
    chip.close()


def test_work_that_failed_later_is_reported_by_the_next_wait_once(failing, fail):
    a, stream = failing.alloc(64), failing.new_stream()
    event = failing.new_event()
    failing.fill(a, b"x", 1, stream)
    failing.record(event, stream)
    fail("event", OUT_OF_RESOURCES)
    for wait in (
        lambda: failing.check(failing.streams.event_query(failing.handle, event)),
        lambda: failing.wait(stream),
        failing.synchronize,
    ):
        with pytest.raises(PluginError, match=r"work enqueued earlier failed on .+CL_OUT_OF_RESOURCES \(-5\)") as error:
            wait()
        assert error.value.status == INTERNAL
    failing.wait(stream)  # told already
    fail("event", 0)
    failing.check(failing.streams.event_destroy(failing.handle, event))
    failing.check(failing.streams.destroy(failing.handle, stream))
    failing.free(a)


@pytest.mark.parametrize(
    "code, status", [(NOT_AVAILABLE, DEVICE_LOST), (ALLOCATION_FAILURE, OUT_OF_MEMORY), (-9999, INTERNAL)]
)
def test_statuses_of_a_failed_wait(failing, fail, code, status):
    a = failing.alloc(64)
    failing.fill(a, b"x", 1)
    fail("clFinish", code)
    with pytest.raises(PluginError, match=rf"clFinish failed on .+\({code}\)") as error:
        failing.wait()
    assert error.value.status == status
    fail("clFinish", 0)
    failing.free(a)


def test_the_drivers_memory_is_used_up(failing, fail):
    fail("clCreateBuffer", ALLOCATION_FAILURE)
    with pytest.raises(PluginError, match=r"clCreateBuffer failed on .+CL_MEM_OBJECT_ALLOCATION_FAILURE") as error:
        failing.alloc(64)
    assert error.value.status == OUT_OF_MEMORY


def test_a_launch_that_is_refused_leaves_the_stream_usable(failing, fail):
    module, a = failing.compile(KERNEL), failing.alloc(64)
    fail("clEnqueueNDRangeKernel", INVALID_WORK_GROUP_SIZE)
    with pytest.raises(PluginError, match=r"clEnqueueNDRangeKernel failed on .+kernel k") as error:
        failing.launch(module, "k", 1, a)
    assert error.value.status == INVALID_ARGUMENT
    fail("clEnqueueNDRangeKernel", 0)
    failing.launch(module, "k", 1, a)
    assert failing.read(a, 1, "int32")[0] == 1
    failing.release(module)
    failing.free(a)


def test_a_device_that_does_not_open_leaves_others_working(loader, fail):
    plugin = Plugin(TORCH_FL_OPENCL_LIBRARY=loader)
    fail("clCreateContext", NOT_AVAILABLE)
    with pytest.raises(PluginError, match=r"clCreateContext failed on .+CL_DEVICE_NOT_AVAILABLE"):
        Chip(plugin, 0)
    chip = Chip(plugin, plugin.count - 1)
    chip.free(chip.alloc(64))
    chip.close()
