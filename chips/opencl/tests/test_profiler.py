# SPDX-License-Identifier: Apache-2.0
"""Kernel times: what torch.profiler says is what OpenCL's own events say, on the host's clock, with the operator."""

from __future__ import annotations

import ctypes as C
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Any

import numpy as np
import opencl_host
import pytest
from opencl_chips import MISSING
from opencl_host import Chip

ROOT = pathlib.Path(__file__).resolve().parents[3]
RUNTIMES = {"pocl": "portable computing language/", "intel": "intel(r) opencl/"}
KERNEL, COPY, FILL = range(3)
SOURCE = """
__kernel void spin(__global float* x, ulong offset, uint n) {
  float v = get_global_id(0);
  for (uint i = 0; i < n; ++i) v = v * 0.5f + 1.0f;
  x[get_global_id(0)] = v;
}
"""


class Event(C.Structure):
    _fields_ = [
        ("struct_size", C.c_uint32), ("kind", C.c_int32), ("name", C.c_char_p), ("device_index", C.c_int32),
        ("reserved", C.c_int32), ("stream", C.c_void_p), ("correlation", C.c_uint64), ("start_ns", C.c_int64),
        ("end_ns", C.c_int64), ("bytes", C.c_uint64),
    ]  # fmt: skip


SINK = C.CFUNCTYPE(None, C.c_void_p, C.POINTER(Event))


class ProfilerApi(C.Structure):
    _fields_ = [
        ("struct_size", C.c_uint32), ("start", C.CFUNCTYPE(C.c_int32, C.c_void_p)),
        ("stop", C.CFUNCTYPE(C.c_int32, C.c_void_p)), ("set_correlation", C.CFUNCTYPE(None, C.c_uint64)),
        ("flush", C.CFUNCTYPE(C.c_int32, C.c_void_p, SINK, C.c_void_p)),
        ("clock", C.CFUNCTYPE(C.c_int32, C.c_void_p, C.POINTER(C.c_int64), C.POINTER(C.c_int64))),
    ]  # fmt: skip


class Profiler:
    """The profiler table of a chip's plugin, started."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.api = C.cast(chip.plugin.tables.profiler, C.POINTER(ProfilerApi)).contents

    def __enter__(self) -> Profiler:
        self.chip.check(self.api.start(self.chip.handle))
        return self

    def __exit__(self, *error: Any) -> None:
        self.chip.check(self.api.stop(self.chip.handle))

    def flush(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []

        def sink(_: Any, event: Any) -> None:
            events.append({name: getattr(event.contents, name) for name, *_ in Event._fields_})

        self.chip.check(self.api.flush(self.chip.handle, SINK(sink), None))
        return events

    def clock(self) -> tuple[int, int]:
        device, host = C.c_int64(), C.c_int64()
        self.chip.check(self.api.clock(self.chip.handle, C.byref(device), C.byref(host)))
        return device.value, host.value


def test_commands_are_recorded_with_kind_name_and_correlation(chip: Chip) -> None:
    module = chip.compile(SOURCE)
    address = chip.alloc(4096)
    chip.fill(address, b"\0", 4096)  # before: of nobody
    with Profiler(chip) as profiler:
        profiler.api.set_correlation(11)
        chip.fill(address, b"\1", 4096)
        profiler.api.set_correlation(12)
        chip.launch(module, "spin", 64, address, np.uint32(10))
        profiler.api.set_correlation(0)
        chip.write(address, np.zeros(256, np.uint8))
        chip.synchronize()
        events = profiler.flush()
        assert [(e["kind"], e["correlation"], e["bytes"]) for e in events] == [
            (FILL, 11, 4096),
            (KERNEL, 12, 0),
            (COPY, 0, 256),
        ]
        assert events[1]["name"] == b"spin"
        assert all(e["start_ns"] <= e["end_ns"] for e in events)
        assert profiler.flush() == []
    chip.fill(address, b"\2", 4096)
    chip.synchronize()
    with Profiler(chip) as profiler:
        assert profiler.flush() == []
    chip.free(address)
    chip.release(module)


def test_work_in_flight_is_kept_for_the_next_flush(chip: Chip) -> None:
    module = chip.compile(SOURCE)
    address = chip.alloc(4096)
    with Profiler(chip) as profiler:
        for i in range(40):
            profiler.api.set_correlation(i + 1)
            chip.launch(module, "spin", 64, address, np.uint32(200_000))
        profiler.api.set_correlation(0)
        first = profiler.flush()
        chip.synchronize()
        events = first + profiler.flush()
    assert [e["correlation"] for e in events] == list(range(1, 41))
    chip.free(address)
    chip.release(module)


def test_the_clock_is_that_of_the_events(chip: Chip) -> None:
    """Kernels lie between the host's times around them, to within what the host can tell."""
    module = chip.compile(SOURCE)
    address = chip.alloc(4096)
    chip.launch(module, "spin", 64, address, np.uint32(10))
    chip.synchronize()
    with Profiler(chip) as profiler:
        pairs = [profiler.clock() for _ in range(5)]
        offset = min(host - device for device, host in pairs)
        for _ in range(10):
            before = time.monotonic_ns()
            chip.launch(module, "spin", 64, address, np.uint32(500_000))
            chip.synchronize()
            after = time.monotonic_ns()
            (event,) = profiler.flush()
            assert before - 300_000 <= event["start_ns"] + offset, "it began before it was launched"
            assert event["end_ns"] + offset <= after + 300_000, "it ended after it was awaited"
            assert event["end_ns"] - event["start_ns"] <= after - before + 1000
        time.sleep(0.2)
        device, host = profiler.clock()
    assert (device - pairs[0][0]) == pytest.approx(host - pairs[0][1], rel=0.01)
    chip.free(address)
    chip.release(module)


@pytest.fixture(scope="module")
def timed_loader(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc") or pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("timed") / "libtimed_opencl.so"
    source = opencl_host.HERE / "timed_opencl.c"
    command = [compiler, "-shared", "-fPIC", source, "-o", library, "-Wl,--no-as-needed", "-l:libOpenCL.so.1", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return str(library)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_torch_profiler_agrees_with_the_events(runtime: str, timed_loader: str, kernel_cache: str) -> None:
    """A training step: every kernel has its operator, and takes what its OpenCL event says, to within 5%."""
    pytest.importorskip("torch")
    if runtime in MISSING:
        pytest.skip(MISSING[runtime])
    settings = {
        "TORCH_FL_PLUGIN_PATH": opencl_host.library_path(),
        "TORCH_FL_OPENCL_LIBRARY": timed_loader,
        "TORCH_FL_OPENCL_DEVICES": RUNTIMES[runtime],
        "TORCH_FL_CACHE_DIR": kernel_cache,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
    }
    done = subprocess.run(
        [sys.executable, str(opencl_host.HERE / "profiled.py")],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    result = json.loads(done.stdout.split("RESULT")[-1])
    kernels, events = result["kernels"], result["events"]
    assert len(kernels) == len(events) > 60
    for kernel, (start, end) in zip(kernels, events, strict=True):
        assert kernel["operator"], kernel
        assert kernel["ns"] == pytest.approx(end - start, rel=0.05, abs=2), kernel  # the trace has whole nanoseconds
        assert kernel["start"] >= kernel["launched"] - 300, kernel
