# SPDX-License-Identifier: Apache-2.0
"""torch_fl.record_calls: what ran, where, when."""

from __future__ import annotations

import contextlib
import json
import threading
import time

import pytest
import torch

import torch_fl


def test_records_every_call_in_order_with_route_and_time() -> None:
    x = torch.randn(8, 8, device="fl")
    before = time.monotonic_ns()
    with torch_fl.record_calls() as log:
        assert log == []  # filled at the end
        y = x @ x
        torch.poisson(y.relu())  # the chip has no kernel for it
    after = time.monotonic_ns()
    assert [call.name for call in log] == ["aten::mm", "aten::relu", "aten::poisson"]
    assert [call.route for call in log] == ["kernel", "kernel", "host"]
    assert {(call.chip, call.device, call.failed) for call in log} == {("sim", x.device.index, False)}
    assert "no kernel" in log[2].reason
    assert log[2].bytes == 2 * 64 * 4
    assert log[0].bytes == 0
    assert all(before <= call.start_ns and call.start_ns + call.ns <= after and call.ns > 0 for call in log)
    assert json.loads(json.dumps(log.as_dicts()))[0]["op"] == "aten::mm"
    assert "aten::poisson" in str(log)


def test_nothing_outside_the_block() -> None:
    x = torch.ones(2, device="fl")
    with torch_fl.record_calls() as log:
        pass
    x.add(1)
    assert log == []


def test_calls_that_raise_are_recorded() -> None:
    x = torch.ones(2, device="fl")
    with torch_fl.record_calls() as log, torch_fl.config(fallback="deny"), pytest.raises(torch_fl.UnsupportedOpError):
        torch.poisson(x)
    assert [(call.name, call.failed) for call in log] == [("aten::poisson", True)]
    with contextlib.suppress(ZeroDivisionError), torch_fl.record_calls() as log:
        x.neg()
        raise ZeroDivisionError
    assert [call.name for call in log] == ["aten::neg"]


def test_capacity() -> None:
    x = torch.ones(2, device="fl")
    with torch_fl.record_calls(capacity=3) as log:
        for _ in range(4):
            x.neg()
        x.exp()
    assert [call.op for call in log] == ["aten::neg", "aten::neg", "aten::exp"]
    assert log.dropped == 2
    assert "2 earlier calls were dropped" in str(log)
    for bad in (0, -1):
        with pytest.raises(ValueError, match="at least 1"), torch_fl.record_calls(capacity=bad):
            pass


@pytest.mark.parametrize("bad", [1.5, "x", None])
def test_capacity_is_a_number(bad: object) -> None:
    with (
        pytest.raises(TypeError, match=rf"capacity must be an int, found {bad!r} \({type(bad).__name__}\)"),
        torch_fl.record_calls(capacity=bad),  # type: ignore[arg-type]
    ):
        pass


def test_a_capacity_beyond_all_memory() -> None:
    with torch_fl.record_calls(capacity=2**70) as log:
        torch.ones(2, device="fl").neg()
    assert "aten::neg" in [call.op for call in log]


def test_a_recording_can_be_kept_and_entered_again() -> None:
    x = torch.ones(2, device="fl")
    recording = torch_fl.record_calls()
    with recording as first:
        x.neg()
    with recording as second:
        x.exp()
    assert [[call.op for call in log] for log in (first, second)] == [["aten::neg"], ["aten::exp"]]


def test_one_recording_at_a_time() -> None:
    with torch_fl.record_calls(), pytest.raises(RuntimeError, match="recorded already"), torch_fl.record_calls():
        pass
    with torch_fl.record_calls() as log:
        torch.ones(2, device="fl").neg()
    assert [call.op for call in log if call.op == "aten::neg"] == ["aten::neg"]


def test_calls_of_all_threads() -> None:
    x = torch.ones(2, device="fl")

    together = threading.Barrier(4)  # a thread that is over gives its number away

    def work() -> None:
        together.wait()
        for _ in range(50):
            x.neg()

    with torch_fl.record_calls() as log:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(log) == 200
    assert len({call.thread for call in log}) == 4
