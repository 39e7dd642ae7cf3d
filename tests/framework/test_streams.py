# SPDX-License-Identifier: Apache-2.0
"""Streams and events."""

from __future__ import annotations

import pytest
import torch

from tests.framework.helpers import needs_two_devices


def test_current_stream_follows_context() -> None:
    """A stream is current inside its context and the old one again after it."""
    before = torch.accelerator.current_stream()
    stream = torch.Stream("fl")
    with stream:
        assert torch.accelerator.current_stream() == stream
    assert torch.accelerator.current_stream() == before
    assert stream != before


def test_fl_stream_api() -> None:
    """torch.fl.stream, Stream and Event work as their namesakes of torch.cuda do."""
    stream = torch.fl.Stream()
    with torch.fl.stream(stream):
        x = torch.ones(1000, device="fl") * 2
        event = torch.fl.Event()
        event.record()
    event.synchronize()
    assert event.query()
    assert torch.equal(x.cpu(), torch.full((1000,), 2.0))


def test_set_stream() -> None:
    """set_stream changes the current stream of the calling thread."""
    stream = torch.Stream("fl")
    torch.accelerator.set_stream(stream)
    try:
        assert torch.accelerator.current_stream() == stream
        assert torch.ones(3, device="fl").sum().item() == 3
    finally:
        torch.accelerator.set_stream(torch.fl.default_stream())


@needs_two_devices
def test_stream_of_another_device() -> None:
    """Entering a stream of another device makes that device current, and leaves it again."""
    stream = torch.Stream("fl:1")
    with stream:
        assert torch.accelerator.current_device_index() == 1
        assert torch.empty(1, device="fl").device.index == 1
    assert torch.accelerator.current_device_index() == 0


def test_event_orders_streams() -> None:
    """Work on one stream that waits for another's event sees the other's results."""
    producer, consumer = torch.Stream("fl"), torch.Stream("fl")
    for _ in range(20):
        with producer:
            x = torch.zeros(100_000, device="fl")
            for _ in range(5):
                x += 1
            event = producer.record_event()
        consumer.wait_event(event)
        with consumer:
            y = x * 2
            consumer.synchronize()
        assert y.cpu().eq(10).all()
        x.record_stream(consumer)


def test_wait_stream_and_query() -> None:
    """After synchronize a stream reports that it is idle."""
    first, second = torch.Stream("fl"), torch.Stream("fl")
    with first:
        x = torch.full((50_000,), 3.0, device="fl")
    second.wait_stream(first)
    with second:
        y = x + 1
    second.synchronize()
    first.synchronize()  # its event has happened, but that does not say that the stream is idle
    assert first.query()
    assert second.query()
    assert y.cpu().eq(4).all()


def test_elapsed_time() -> None:
    """Two timed events give milliseconds between them; untimed ones are refused."""
    start, end = torch.Event("fl", enable_timing=True), torch.Event("fl", enable_timing=True)
    start.record()
    x = torch.randn(256, 256, device="fl")
    for _ in range(10):
        x = (x @ x).tanh()
    end.record()
    end.synchronize()
    assert 0 < start.elapsed_time(end) < 60_000
    with pytest.raises(ValueError, match="enable_timing"):
        torch.Event("fl").elapsed_time(end)


MAKERS = [torch.Event, torch.fl.Event]


@pytest.mark.parametrize("first", MAKERS)
@pytest.mark.parametrize("second", MAKERS)
def test_events_of_both_names_mix(first: type, second: type) -> None:
    """torch.fl.Event is good wherever a torch.Event is, and beside one."""
    start, end = (kind(device="fl", enable_timing=True) for kind in (first, second))
    stream, other = torch.fl.Stream(), torch.Stream("fl")
    assert stream.record_event(start) is start
    other.wait_event(start)
    assert other.record_event(end) is end
    stream.wait_event(end)
    other.wait_stream(stream)
    stream.wait_stream(other)
    end.synchronize()
    assert start.elapsed_time(end) >= 0
    assert isinstance(start, torch.fl.Event)
    assert isinstance(start, torch.Event)


def test_event_types() -> None:
    """torch.fl.Event tells its device's events from everything else."""
    assert issubclass(torch.fl.Event, torch.Event)
    assert isinstance(torch.fl.Stream().record_event(), torch.fl.Event)
    assert not isinstance(torch.fl.Stream(), torch.fl.Event)
    assert torch.fl.Event(device="fl:0").device.type == "fl"


def test_events_before_record() -> None:
    """An event that was never recorded counts as done and can be waited for."""
    event = torch.Event("fl")
    assert event.query()
    event.synchronize()
    torch.accelerator.current_stream().wait_event(event)


@needs_two_devices
def test_event_of_another_device() -> None:
    """A stream can wait for an event of another device; recording it elsewhere is refused."""
    with torch.Stream("fl:1") as stream:
        x = torch.ones(10_000, device="fl:1").mul_(5)
        event = stream.record_event()
    torch.accelerator.current_stream("fl:0").wait_event(event)
    assert x.to("fl:0").cpu().eq(5).all()
    with pytest.raises(RuntimeError, match="device"):
        event.record(torch.accelerator.current_stream("fl:0"))


def test_many_streams() -> None:
    """Streams come from a pool: asking for many works and each computes right."""
    results = []
    for i in range(100):
        with torch.Stream("fl"):
            results.append(torch.full((100,), float(i), device="fl").add_(1))
    torch.accelerator.synchronize()
    for i, result in enumerate(results):
        assert result.cpu().eq(i + 1).all()


def test_priority_and_native_handle() -> None:
    """High-priority streams exist and a stream has a native handle."""
    stream = torch.Stream("fl", priority=-1)
    with stream:
        assert torch.ones(2, device="fl").sum().item() == 2
    assert isinstance(stream.native_handle, int)


def test_memory_of_a_side_stream_is_not_reused_early() -> None:
    """record_stream keeps a freed block away from others until the recorded stream has passed."""
    side = torch.Stream("fl")
    for i in range(50):
        x = torch.full((200_000,), float(i), device="fl")
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            y = x * 1.0
        x.record_stream(side)
        del x
        torch.full((200_000,), -1.0, device="fl")  # would land in x's memory
        side.synchronize()
        assert y.cpu().eq(i).all()


def test_record_stream_of_another_device() -> None:
    """record_stream refuses a stream that cannot run on the tensor."""
    if torch.accelerator.device_count() < 2:
        pytest.skip("needs two devices")
    with pytest.raises(RuntimeError, match="fl:0"):
        torch.ones(2, device="fl:0").record_stream(torch.Stream("fl:1"))
