# SPDX-License-Identifier: Apache-2.0
"""Order within and between streams, and the meaning of events."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from opencl_host import NOT_READY, OK, TIMED, TO_HOST, PluginError

# Takes long by itself: a chain of dependent steps that no compiler can shorten.
SLOW = """
__kernel void slow(__global uint* out, ulong offset, ulong steps) {
  out = (__global uint*)((__global char*)out + offset);
  uint x = out[0];
  for (ulong i = 0; i < steps; ++i) x = x * 1664525u + 1013904223u + (x >> 7);
  out[0] = x;
}
"""
STEPS = 10_000_000


@pytest.fixture
def slow(chip):
    module = chip.compile(SLOW)
    a = chip.alloc(64)
    chip.fill(a, b"\0", 64)
    chip.launch(module, "slow", 1, a, np.uint64(1), local=(1,))  # compiled by now
    chip.synchronize()
    yield (
        lambda stream=None, steps=STEPS: chip.launch(module, "slow", 1, a, np.uint64(steps), local=(1,), stream=stream),
        a,
    )
    chip.synchronize()
    chip.release(module)
    chip.free(a)


def test_launches_do_not_wait(chip, slow):
    run, _ = slow
    start = time.perf_counter()
    run()
    enqueued = time.perf_counter() - start
    chip.wait()
    total = time.perf_counter() - start
    assert enqueued < total / 2


def test_work_on_one_stream_is_in_order(chip, slow):
    run, a = slow
    stream = chip.new_stream()
    before = chip.read(a, 1, np.uint32)[0]
    run(stream)
    after = np.zeros(1, np.uint32)
    chip.copy(after.ctypes.data, a, 4, TO_HOST, stream)
    chip.wait(stream)
    assert after[0] != before
    chip.check(chip.streams.destroy(chip.handle, stream))


def test_a_stream_waits_for_an_event_of_another(chip, slow):
    """A long kernel on one stream; a copy on another that must see its result."""
    run, a = slow
    one, two = chip.new_stream(), chip.new_stream()
    event = chip.new_event()
    before = chip.read(a, 1, np.uint32)[0]
    run(one)
    chip.record(event, one)
    assert chip.streams.event_query(chip.handle, event) == NOT_READY
    chip.check(chip.streams.event_wait(chip.handle, event, two))
    seen = np.zeros(1, np.uint32)
    chip.copy(seen.ctypes.data, a, 4, TO_HOST, two)
    chip.wait(two)
    assert chip.streams.event_query(chip.handle, event) == OK
    assert seen[0] != before
    assert seen[0] == chip.read(a, 1, np.uint32)[0]
    chip.check(chip.streams.event_destroy(chip.handle, event))
    for stream in (one, two):
        chip.check(chip.streams.destroy(chip.handle, stream))


def test_no_stream_stays_pending(chip, slow):
    """Runtimes may run queues one after the other (both do, on a CPU); none may be left waiting for a flush."""
    run, _ = slow
    one, two = chip.new_stream(), chip.new_stream()
    b = chip.alloc(64)
    run(one)
    chip.fill(b, b"\1", 64, two)
    deadline = time.monotonic() + 10
    while NOT_READY in [chip.streams.query(chip.handle, s) for s in (one, two)]:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert (chip.read(b, 64, np.uint8) == 1).all()
    chip.free(b)
    for stream in (one, two):
        chip.check(chip.streams.destroy(chip.handle, stream))


def test_query_of_a_stream(chip, slow):
    run, _ = slow
    stream = chip.new_stream()
    assert chip.streams.query(chip.handle, stream) == OK
    run(stream)
    assert chip.streams.query(chip.handle, stream) == NOT_READY
    assert chip.streams.query(chip.handle, stream) == NOT_READY
    chip.wait(stream)
    assert chip.streams.query(chip.handle, stream) == OK
    chip.check(chip.streams.destroy(chip.handle, stream))


def test_a_query_alone_gets_work_done(chip, slow):
    """Nobody waits: whoever asks must flush."""
    run, _ = slow
    event = chip.new_event()
    run(None, 1000)
    chip.record(event)
    deadline = time.monotonic() + 10
    while chip.streams.event_query(chip.handle, event) == NOT_READY:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    chip.check(chip.streams.event_destroy(chip.handle, event))


def test_an_event_that_was_never_recorded_is_done(chip):
    event = chip.new_event()
    assert chip.streams.event_query(chip.handle, event) == OK
    chip.check(chip.streams.event_synchronize(chip.handle, event))
    chip.check(chip.streams.event_wait(chip.handle, event, None))
    chip.check(chip.streams.event_destroy(chip.handle, event))


def test_recording_again_moves_the_event(chip, slow):
    run, _ = slow
    event = chip.new_event()
    chip.record(event)
    chip.check(chip.streams.event_synchronize(chip.handle, event))
    run()
    assert chip.streams.event_query(chip.handle, event) == OK
    chip.record(event)
    assert chip.streams.event_query(chip.handle, event) == NOT_READY
    chip.check(chip.streams.event_synchronize(chip.handle, event))
    assert chip.streams.event_query(chip.handle, event) == OK
    chip.check(chip.streams.event_destroy(chip.handle, event))


def test_a_wait_refers_to_the_record_before_it(chip, slow):
    """The waiting stream is not held up by a record that came after the wait."""
    run, _ = slow
    one, two = chip.new_stream(), chip.new_stream()
    event, done = chip.new_event(), chip.new_event()
    chip.record(event, one)
    chip.check(chip.streams.event_wait(chip.handle, event, two))
    chip.record(done, two)
    run(one, 3 * STEPS)
    chip.record(event, one)
    chip.check(chip.streams.event_synchronize(chip.handle, done))
    assert chip.streams.event_query(chip.handle, done) == OK
    chip.synchronize()
    for e in (event, done):
        chip.check(chip.streams.event_destroy(chip.handle, e))
    for stream in (one, two):
        chip.check(chip.streams.destroy(chip.handle, stream))


def test_elapsed_time(chip, slow):
    run, _ = slow
    start, middle, end = (chip.new_event(TIMED) for _ in range(3))
    chip.record(start)
    host_start = time.perf_counter_ns()
    run()
    chip.record(middle)
    run()
    chip.record(end)
    chip.wait()
    host_ns = time.perf_counter_ns() - host_start
    first, second = chip.elapsed(start, middle), chip.elapsed(middle, end)
    assert first > 1_000_000
    assert second > 1_000_000
    assert chip.elapsed(start, end) == first + second
    assert first + second < host_ns * 1.2 + 2_000_000
    assert chip.elapsed(end, start) == -(first + second)
    for event in (start, middle, end):
        chip.check(chip.streams.event_destroy(chip.handle, event))


def test_elapsed_time_needs_timed_and_recorded_events(chip):
    timed, untimed = chip.new_event(TIMED), chip.new_event()
    chip.record(untimed)
    with pytest.raises(PluginError, match="events that were recorded"):
        chip.elapsed(timed, timed)
    chip.record(timed)
    chip.wait()
    with pytest.raises(PluginError, match="FL_EVENT_TIMED"):
        chip.elapsed(timed, untimed)
    for event in (timed, untimed):
        chip.check(chip.streams.event_destroy(chip.handle, event))


def test_synchronising_the_device_waits_for_all_streams(chip, slow):
    run, _ = slow
    streams = [chip.new_stream() for _ in range(3)]
    for stream in streams:
        run(stream, STEPS // 3)
    chip.synchronize()
    assert all(chip.streams.query(chip.handle, s) == OK for s in streams)
    for stream in streams:
        chip.check(chip.streams.destroy(chip.handle, stream))


def test_the_default_stream_cannot_be_destroyed(chip):
    with pytest.raises(PluginError, match="default stream"):
        chip.check(chip.streams.destroy(chip.handle, None))


def test_threads_may_share_a_stream(chip):
    """A waiting thread sees its own work done, whatever others enqueue meanwhile."""
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            a, event = chip.alloc(4096), chip.new_event()
            for i in range(100):
                chip.fill(a, bytes([seed, i]), 2048)
                if i % 3 == 0:
                    chip.wait()
                elif i % 3 == 1:
                    chip.record(event)
                    chip.check(chip.streams.event_synchronize(chip.handle, event))
                else:
                    while chip.streams.query(chip.handle, None) == NOT_READY:
                        pass
                assert (chip.read(a, 2048, np.uint16) == seed + 256 * i).all()
            chip.check(chip.streams.event_destroy(chip.handle, event))
            chip.free(a)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
