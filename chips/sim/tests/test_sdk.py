# SPDX-License-Identifier: Apache-2.0
"""The simulator itself: addresses, streams, events, exit, fork, limits and faults. Each case is a process of its own."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

import harness
import pytest

HERE = pathlib.Path(__file__).resolve().parent
PRELUDE = """
import ctypes as C, os, sys, time, torch
from harness import *
chip = Chip()
def threads(): return len(os.listdir("/proc/self/task"))
def add(n=16):
    x, out = torch.ones(n), torch.empty(n)
    chip.run("aten::add.Tensor", [x, x, 1], [out], torch.float32)
    return out
def fails(action):
    try:
        action()
    except PluginError as error:
        return error
    raise AssertionError("did not fail")
def new_stream(device=None):
    s = C.c_void_p()
    call = chip.stream_call("create", C.c_void_p, C.c_int32, C.POINTER(C.c_void_p))
    chip.check(call(device or chip.device, 0, C.byref(s)))
    return s
def new_event():
    e = C.c_void_p()
    chip.check(chip.stream_call("event_create", C.c_void_p, C.c_uint32, C.POINTER(C.c_void_p))(chip.device, 1, C.byref(e)))
    return e
def stream_op(name, *args):
    return chip.stream_call(name, C.c_void_p, *[C.c_void_p for _ in args])(chip.device, *args)
def fill(stream, address, byte, count):
    pattern = (C.c_uint8 * 1)(byte)
    call = chip.memory_call("fill", C.c_void_p, C.c_void_p, C.c_uint64, C.c_void_p, C.c_uint32, C.c_uint64)
    chip.check(call(chip.device, stream, address, C.addressof(pattern), 1, count))
def copy_async(stream, dst, src, size, kind):
    call = chip.memory_call("copy", C.c_void_p, C.c_void_p, C.c_uint64, C.c_uint64, C.c_uint64, C.c_int32)
    chip.check(call(chip.device, stream, dst, src, size, kind))
def open_device(index):
    d = C.c_void_p()
    chip.check(chip.device_call("open", C.c_int32, C.POINTER(C.c_void_p))(index, C.byref(d)))
    return d
"""


@pytest.fixture(scope="session")
def library() -> str:
    return harness.library_path()


def run(library: str, code: str, timeout: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("SIMCHIP_")}
    env |= {"FL_SIM_LIBRARY": library, "PYTHONPATH": str(HERE), **environment}
    program = PRELUDE + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=timeout, check=False
    )


def passes(library: str, code: str, **environment: str) -> None:
    result = run(library, code, **environment)
    assert result.returncode == 0, result.stdout + result.stderr


def test_listing_starts_nothing(library: str) -> None:
    code = """
    import subprocess
    before = threads()
    count = C.c_int32()
    chip.check(chip.device_call("count", C.POINTER(C.c_int32))(C.byref(count)))
    assert count.value == 3 and threads() == before
    add()
    assert threads() == before + 1  # the default stream's worker
    """
    passes(library, code, SIMCHIP_DEVICES="3")


def test_inline_has_no_threads(library: str) -> None:
    passes(
        library,
        "before = threads(); new_stream(); assert add().eq(2).all() and threads() == before",
        SIMCHIP_INLINE="1",
    )


def test_the_host_cannot_run_ahead_without_end(library: str) -> None:
    code = """
    stream, address = new_stream(), chip.alloc(64)
    start = time.monotonic()
    for _ in range(1024 + 100):
        fill(stream, address, 1, 64)
    assert time.monotonic() - start > 0.1  # 100 commands of at least 2 ms had to end first
    """
    passes(library, code, SIMCHIP_SLOW_STREAM_US="2000")


def test_addresses_are_biased(library: str) -> None:
    code = "a = chip.alloc(64); assert a >> 56 == 1 and a % 64 == 0; C.string_at(a, 1)"
    assert run(library, code).returncode == -11, "a host dereference must crash"


def test_host_coherent_addresses(library: str) -> None:
    code = "a = chip.alloc(64); fill(None, a, 7, 64); chip.synchronize(); assert C.string_at(a, 64) == bytes([7]) * 64"
    passes(library, code, SIMCHIP_HOST_COHERENT="1")


def test_order_across_streams(library: str) -> None:
    code = """
    a, size = chip.alloc(4096), 4096
    host = (C.c_uint8 * size)()
    one, two, event = new_stream(), new_stream(), new_event()
    assert stream_op("query", one) == 0
    fill(one, a, 1, size); fill(one, a, 2, size)
    chip.check(stream_op("event_record", event, one))
    chip.check(stream_op("event_wait", event, two))
    copy_async(two, C.addressof(host), a, size, 1)
    assert stream_op("query", two) == 6 and stream_op("event_query", event) == 6
    chip.check(stream_op("synchronize", two))
    assert bytes(host) == bytes([2]) * size and stream_op("event_query", event) == 0
    chip.check(stream_op("destroy", one)); chip.check(stream_op("destroy", two)); chip.check(stream_op("event_destroy", event))
    """
    passes(library, code, SIMCHIP_SLOW_STREAM_US="20000")


def test_elapsed_time(library: str) -> None:
    code = """
    start, end, ns = new_event(), new_event(), C.c_int64()
    a = chip.alloc(64)
    chip.check(stream_op("event_record", start, None)); fill(None, a, 1, 64); chip.check(stream_op("event_record", end, None))
    chip.synchronize()
    call = chip.stream_call("event_elapsed", C.c_void_p, C.c_void_p, C.c_void_p, C.POINTER(C.c_int64))
    chip.check(call(chip.device, start, end, C.byref(ns)))
    assert 2_000_000 < ns.value < 10_000_000_000, ns.value
    """
    passes(library, code, SIMCHIP_SLOW_STREAM_US="2000")


def test_exit_with_work_queued(library: str) -> None:
    code = """
    a = chip.alloc(64)
    for _ in range(1000): fill(None, a, 1, 64)
    """
    result = run(library, code, timeout=20, SIMCHIP_SLOW_STREAM_US="100000")
    assert result.returncode == 0, result.stderr


def test_fork(library: str) -> None:
    code = """
    add()
    child = os.fork()
    if child == 0:
        error = fails(lambda: chip.alloc(64))
        assert "forked" in str(error), str(error)
        sys.exit(17)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    assert add().eq(2).all()
    """
    passes(library, code)


@pytest.mark.parametrize("inline", ["0", "1"])
def test_kernel_failure(library: str, inline: str) -> None:
    code = """
    add()
    error = fails(add)
    assert "aten::add.Tensor" in str(error) and error.status == 5, (str(error), error.status)
    assert add().eq(2).all()
    """
    passes(library, code, SIMCHIP_FAIL_KERNEL="aten::add.Tensor:2", SIMCHIP_INLINE=inline)


@pytest.mark.parametrize("inline", ["0", "1"])
def test_slow_kernel(library: str, inline: str) -> None:
    code = """
    x, out = torch.ones(1 << 16), torch.empty(1 << 16)
    def best(name, args):
        times = []
        for _ in range(15):
            start = time.perf_counter()
            chip.run(name, args, [out], torch.float32)
            times.append(time.perf_counter() - start)
        return min(times)
    add, mul = best("aten::add.Tensor", [x, x, 1]), best("aten::mul.Tensor", [x, x])
    assert add > 3 * mul, (add, mul)  # a hundred times the kernel, but the copies round it take as long as ever
    """
    passes(library, code, SIMCHIP_SLOW_KERNEL="aten::add.Tensor:10000", SIMCHIP_INLINE=inline)


@pytest.mark.parametrize("inline", ["0", "1"])
def test_lost_device(library: str, inline: str) -> None:
    code = """
    add()
    for _ in range(3):
        error = fails(add)
        assert error.status == 4 and "device 0" in str(error), (str(error), error.status)
    chip.device = open_device(1)
    assert add().eq(2).all()
    """
    passes(library, code, SIMCHIP_LOSE_DEVICE="0:2", SIMCHIP_INLINE=inline)


def test_out_of_memory(library: str) -> None:
    code = """
    a = chip.alloc(5 << 20)
    error = fails(lambda: chip.alloc(4 << 20))
    assert error.status == 2 and str(5 << 20) in str(error), str(error)
    chip.free(a)
    chip.free(chip.alloc(8 << 20))
    """
    passes(library, code, SIMCHIP_MEMORY_MB="8")
    passes(library, code.replace("chip.free(chip.alloc(8 << 20))", ""), SIMCHIP_OOM_AFTER_MB="8")


def test_failing_start(library: str) -> None:
    passes(library, 'assert "does not start" in str(fails(lambda: open_device(1)))', SIMCHIP_FAIL_INIT="1")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("a = chip.alloc(64); fill(None, a + 32, 1, 64)", "leave their allocation of 64 bytes"),
        ("copy_async(None, chip.alloc(64), chip.alloc(64) + (1 << 40), 64, 2)", "are in no allocation|leave their"),
        ("a = chip.alloc(64); C.memset(a + 64, 0, 1); chip.free(a)", "past the end of the allocation"),
        ("a = chip.alloc(64); C.memset(a - 1, 0, 1); chip.free(a)", "in front of the allocation"),
    ],
)
def test_checked_mode(library: str, code: str, message: str) -> None:
    result = run(library, code, SIMCHIP_CHECK="1", SIMCHIP_HOST_COHERENT="1", SIMCHIP_INLINE="1")
    assert result.returncode == -6
    assert any(part in result.stderr for part in message.split("|")), result.stderr


def test_double_free(library: str) -> None:
    passes(library, 'a = chip.alloc(64); chip.free(a); assert "not the address" in str(fails(lambda: chip.free(a)))')


def test_alignment(library: str) -> None:
    passes(library, "assert all(chip.alloc(n) % 65536 == 0 for n in (1, 100, 70000))", SIMCHIP_ALIGNMENT="65536")


def test_forbidden_element_type(library: str) -> None:
    code = """
    assert add().eq(2).all()
    out = torch.empty(2, dtype=torch.float64)
    chip.run("aten::add.Tensor", [out, out, 1], [out], torch.float64)
    """
    result = run(library, code, SIMCHIP_DTYPES="float32,int64")
    assert result.returncode == -6
    assert "aten::add.Tensor" in result.stderr


def test_hidden_kernels(library: str) -> None:
    passes(library, "assert chip.kernels == {}", SIMCHIP_HIDE_KERNELS="1")


def test_bad_settings_are_named(library: str) -> None:
    result = run(library, "pass", SIMCHIP_DEVICES="many")
    assert result.returncode == 0
    assert "SIMCHIP_DEVICES=many" in result.stderr


@pytest.mark.parametrize("inline", ["0", "1"])
def test_activities_while_the_profiler_is_started(library: str, inline: str) -> None:
    code = """
    class Activity(C.Structure):
        _fields_ = [("kind", C.c_int32), ("reserved", C.c_int32), ("name", C.c_char_p), ("stream", C.c_void_p),
                    ("correlation", C.c_uint64), ("start", C.c_int64), ("end", C.c_int64), ("bytes", C.c_uint64)]
    sdk = C.CDLL(os.path.join(os.path.dirname(os.environ["FL_SIM_LIBRARY"]), "libsimchip.so"))
    device, room = C.c_void_p(getattr(chip.device, "value", chip.device)), (Activity * 70000)()
    def correlate(number): sdk.simProfilerSetCorrelation(C.c_uint64(number))
    def read():
        chip.synchronize()
        count, dropped = C.c_uint64(70000), C.c_uint64()
        assert sdk.simProfilerRead(device, room, C.byref(count), C.byref(dropped)) == 0
        return room[: count.value], dropped.value
    address, stream = chip.alloc(64), new_stream()
    fill(None, address, 1, 64)  # of nobody
    assert sdk.simProfilerStart(device) == 0
    correlate(7); fill(stream, address, 2, 64); correlate(8); add(); correlate(0)
    activities, dropped = read()
    assert not dropped and all(0 < a.start <= a.end for a in activities)
    (filled,) = [a for a in activities if a.kind == 2]
    assert (filled.correlation, filled.bytes, filled.stream) == (7, 64, stream.value)
    (kernel,) = [a for a in activities if a.kind == 0]
    assert (kernel.correlation, kernel.name, kernel.stream) == (8, b"aten::add.Tensor", None)
    for _ in range(65536 + 50):
        fill(None, address, 3, 64)
    activities, dropped = read()
    assert (len(activities), dropped) == (65536, 50)
    assert sdk.simProfilerStop(device) == 0
    fill(None, address, 4, 64)
    assert read() == ([], 0)
    """
    passes(library, code, SIMCHIP_INLINE=inline)
