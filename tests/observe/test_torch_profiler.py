# SPDX-License-Identifier: Apache-2.0
"""torch.profiler on the chip: every kernel with the operator that caused it, in rows, tables and traces."""

from __future__ import annotations

import collections
import re
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler

from tests.framework.helpers import needs_two_devices, run_child
from tests.harness import chrome_trace, device
from tests.harness.device import DEVICE
from tests.models.resnet import ResNet18

device.load()
BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
SLACK_US = 50.0  # PyTorch's operators are timed by another clock, which it converts itself


def traced(prof: profile, folder: Path) -> list[dict[str, Any]]:
    """The events of the trace, which must be one that viewers open."""
    path = folder / "trace.json"
    prof.export_chrome_trace(str(path))
    trace = chrome_trace.load(path)
    assert chrome_trace.problems(trace) == []
    return list(trace["traceEvents"])


def of(events: list[dict[str, Any]], *categories: str) -> list[dict[str, Any]]:
    return [event for event in events if event.get("cat") in categories and event["ph"] == "X"]


def operators(events: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {event["args"]["External id"]: event for event in of(events, "cpu_op")}


@pytest.fixture(scope="module")
def resnet() -> Callable[[], None]:
    """One step of training, run before so that everything is compiled."""
    torch.manual_seed(0)
    model = ResNet18(width=8).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    batch = (torch.randn(4, 3, 32, 32).to(DEVICE), torch.randint(0, 10, (4,)).to(DEVICE))

    def step() -> None:
        optimizer.zero_grad()
        model.loss(batch).backward()
        optimizer.step()

    step()
    return step


def test_every_kernel_of_a_training_step_has_its_operator(resnet: Callable[[], None], tmp_path: Path) -> None:
    """All kernels, copies and fills lead to an operator, of the right name, that began before them."""
    with profile(activities=BOTH) as prof:
        resnet()
    events = traced(prof, tmp_path)
    work, by_id = of(events, *WORK), operators(events)
    kernels = collections.Counter(event["args"]["op"] for event in of(work, "kernel"))
    assert (
        kernels["aten::convolution"]
        == kernels["aten::convolution_backward"]
        == kernels["aten::native_batch_norm"]
        == 20
    )
    for event in work:
        operator = by_id[event["args"]["External id"]]
        assert event["ts"] >= operator["ts"] - SLACK_US, (event, operator)
        kernel = event["args"].get("op")
        if kernel is not None:
            assert event["name"] in (f"{kernel} [sim]", f"{kernel} [portable]")
            assert base_name(kernel) == base_name(operator["name"])


def base_name(name: str) -> str:
    """Without the overload, and what tells an operator's forms apart."""
    return name.split(".")[0].removesuffix("_").removesuffix("_overrideable")


def test_the_launch_of_each_kernel_is_inside_its_operator(resnet: Callable[[], None], tmp_path: Path) -> None:
    with profile(activities=BOTH) as prof:
        resnet()
    events = traced(prof, tmp_path)
    by_id = operators(events)
    launches = {e["args"]["correlation"]: e for e in of(events, "privateuse1_runtime") if "correlation" in e["args"]}
    for event in of(events, *WORK):
        launch = launches[event["args"]["correlation"]]
        operator = by_id[launch["args"]["External id"]]
        assert launch["tid"] == operator["tid"]
        assert operator["ts"] - SLACK_US <= launch["ts"] <= operator["ts"] + operator["dur"] + SLACK_US
        assert event["ts"] >= launch["ts"] - 1.0
    arrows = collections.Counter(event["ph"] for event in events if event.get("name") == "ac2g")
    assert arrows["s"] >= len(of(events, *WORK)) <= arrows["f"]


def test_backward_kernels_belong_to_backward_operators(tmp_path: Path) -> None:
    x = torch.randn(16, 16, device=DEVICE, requires_grad=True)
    with profile(activities=BOTH) as prof:
        x.sigmoid().sum().backward()
    events = traced(prof, tmp_path)
    by_id = operators(events)
    (backward,) = [e for e in of(events, "kernel") if e["args"].get("op") == "aten::sigmoid_backward"]
    assert by_id[backward["args"]["External id"]]["name"] == "aten::sigmoid_backward"


def test_the_table_has_device_times(resnet: Callable[[], None]) -> None:
    with profile(activities=BOTH) as prof:
        resnet()
    averages = {row.key: row for row in prof.key_averages()}
    rows = [row for key, row in averages.items() if "convolution" in key and row.device_type == DeviceType.CPU]
    assert rows
    assert all(row.device_time_total > 0 for row in rows)
    kernels = [event for event in prof.events() if event.device_type == DeviceType.PrivateUse1]
    total = sum(event.device_time for event in kernels)
    counted = sum(row.self_device_time_total for row in prof.key_averages() if row.device_type == DeviceType.CPU)
    assert counted == pytest.approx(total, rel=0.01)
    table = prof.key_averages().table(sort_by="self_device_time_total", row_limit=5)
    assert "Self FL" in table, table


def test_memory_of_the_device(resnet: Callable[[], None], tmp_path: Path) -> None:
    with profile(activities=BOTH, profile_memory=True) as prof:
        with record_function("allocating"):
            x = torch.empty(1 << 20, dtype=torch.uint8, device=DEVICE)
        x.fill_(1)
        del x
    assert max(row.device_memory_usage for row in prof.key_averages()) >= 1 << 20
    memory = [event for event in traced(prof, tmp_path) if event["name"] == "[memory]"]
    sizes = [event["args"]["Bytes"] for event in memory]
    assert {1 << 20, -(1 << 20)} <= set(sizes)


def test_copies_and_fills_say_how_much(tmp_path: Path) -> None:
    host = torch.randn(1 << 16)
    with profile(activities=BOTH) as prof:
        x = host.to(DEVICE)
        x.cpu()
        x.clone()
        torch.zeros(1 << 16, device=DEVICE)
    events = traced(prof, tmp_path)
    names = {event["name"]: event["args"]["bytes"] for event in of(events, "gpu_memcpy", "gpu_memset")}
    assert names["Memcpy HtoD"] == names["Memcpy DtoH"] == 1 << 18
    assert names.get("Memcpy DtoD", 1 << 18) == 1 << 18
    assert names.get("Memset", 1 << 18) == 1 << 18


def test_rows_are_devices_and_streams(tmp_path: Path) -> None:
    stream = torch.Stream(DEVICE)
    with profile(activities=BOTH) as prof:
        torch.ones(8, device=DEVICE).sum()
        with stream:
            torch.ones(8, device=DEVICE).sum()
        stream.synchronize()
    events = traced(prof, tmp_path)
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    used = {(event["pid"], event["tid"]) for event in of(events, *WORK)}
    names = [rows[row] for row in used]
    assert "stream 0 (default)" in names
    assert any(re.fullmatch(r"stream [1-9]\d*", name) for name in names)
    labels = [e["args"]["labels"] for e in events if e["ph"] == "M" and e["name"] == "process_labels"]
    assert any(label.startswith("fl:0 ") for label in labels), labels
    assert not any(label.startswith("GPU") for label in labels), labels
    assert any(event["name"] == "flStreamSynchronize" for event in of(events, "privateuse1_runtime"))


def test_sessions_one_after_another_share_nothing() -> None:
    x = torch.ones(8, device=DEVICE)
    for count in (1, 3, 2):
        with profile(activities=BOTH) as prof:
            for _ in range(count):
                x.sigmoid()
        kernels = [e for e in prof.events() if e.device_type == DeviceType.PrivateUse1 and "sigmoid" in e.name]
        assert len(kernels) == count
        x.sigmoid()  # of nobody


def test_schedule_and_tensorboard(tmp_path: Path) -> None:
    x = torch.ones(8, device=DEVICE)
    with profile(
        activities=BOTH,
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=tensorboard_trace_handler(str(tmp_path)),
    ) as prof:
        for step in range(8):
            for _ in range(step + 1):
                x.sigmoid()
            prof.step()
    files = sorted(tmp_path.glob("*.pt.trace.json"))
    assert len(files) == 2
    counts = []
    for file in files:
        trace = chrome_trace.load(file)
        assert chrome_trace.problems(trace) == []
        counts.append(sum("sigmoid" in event["name"] for event in of(trace["traceEvents"], "kernel")))
    assert sorted(counts) == [3 + 4, 7 + 8]


def test_device_alone_and_host_alone() -> None:
    """Either activity can be asked for without the other, and the host's alone arms nothing."""
    x = torch.ones(8, device=DEVICE)
    with profile(activities=[ProfilerActivity.PrivateUse1]) as prof:
        x.sigmoid()
    assert any(event.device_type == DeviceType.PrivateUse1 for event in prof.events())
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        x.sigmoid()
    assert not any(event.device_type == DeviceType.PrivateUse1 for event in prof.events())
    assert not any(event.name.startswith("fl") for event in prof.events())


def test_threads_are_told_apart(tmp_path: Path) -> None:
    """Each thread's kernels lead to its own operators."""
    x = torch.ones(64, device=DEVICE)
    with profile(
        activities=BOTH, experimental_config=torch.profiler._ExperimentalConfig(profile_all_threads=True)
    ) as prof:
        threads = [threading.Thread(target=lambda op=op: [op(x) for _ in range(20)]) for op in (torch.exp, torch.cos)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = traced(prof, tmp_path)
    by_id = operators(events)
    kernels = [e for e in of(events, "kernel") if e["args"].get("op") in ("aten::exp", "aten::cos")]
    assert len(kernels) == 40
    assert all(by_id[e["args"]["External id"]]["name"] == e["args"]["op"] for e in kernels)


@needs_two_devices
def test_two_devices_at_once(tmp_path: Path) -> None:
    a, b = torch.ones(8, device="fl:0"), torch.ones(8, device="fl:1")
    with profile(activities=BOTH) as prof:
        a.sigmoid(), b.sigmoid()
        a.to("fl:1")
    events = traced(prof, tmp_path)
    assert {event["pid"] for event in of(events, "kernel")} == {0, 1}
    assert any(event["name"] == "Memcpy PtoP" for event in of(events, "gpu_memcpy"))


CHILD = """
    import json, os, sys, torch
    from torch.profiler import ProfilerActivity, profile
    def kernels(prof):
        return [e for e in prof.events() if e.device_type == torch.autograd.DeviceType.PrivateUse1]
    both = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    x = torch.ones(64, 64, device="fl")
"""


def child(code: str, **environment: str) -> str:
    return run_child(textwrap.dedent(CHILD) + textwrap.dedent(code), **environment).stdout


@pytest.mark.parametrize("inline", ["0", "1"])
@pytest.mark.parametrize("kernels", ["0", "2"])
def test_modes_of_the_simulator(inline: str, kernels: str) -> None:
    """Workers or the calling thread, kernels of the plugin's or portable ones."""
    out = child(
        """
        x.sigmoid()
        with profile(activities=both) as prof:
            x.sigmoid()
        print([e.name for e in kernels(prof)])
        """,
        SIMCHIP_INLINE=inline,
        SIMCHIP_HIDE_KERNELS=kernels,
    )
    assert out.strip() == str(["aten::sigmoid" + (" [portable]" if kernels == "2" else " [sim]")])


def test_work_that_waits_in_the_queue_is_timed_when_it_runs() -> None:
    """The time of a kernel is not the time that it waited for the ones before it."""
    out = child(
        """
        x.sigmoid(); torch.fl.synchronize()
        with profile(activities=both) as prof:
            for _ in range(20): x.sigmoid()
        times = [(e.time_range.start, e.time_range.end) for e in kernels(prof)]
        assert len(times) == 20, times
        assert all(a[1] <= b[0] for a, b in zip(times, times[1:])), times
        gaps = [b[0] - a[1] for a, b in zip(times, times[1:])]
        print(sorted(gaps)[10] > 1500, sorted(e - s for s, e in times)[10] < 1500)
        """,
        SIMCHIP_SLOW_STREAM_US="2000",
        SIMCHIP_INLINE="0",
    )
    assert out.strip() == "True True"


def test_a_clock_that_drifts_is_followed() -> None:
    """Kernels stay beside their launches on a device whose clock is 2% too fast."""
    out = child(
        """
        import time
        x.sigmoid(); torch.fl.synchronize()
        with profile(activities=both) as prof:
            for _ in range(5):
                x.sigmoid(); torch.fl.synchronize(); time.sleep(0.1)
        work = kernels(prof)
        ops = [e for e in prof.events() if e.name == "aten::sigmoid" and e not in work]
        starts = [sorted(e.time_range.start for e in events) for events in (ops, work)]
        print(sorted(abs(op - kernel) for op, kernel in zip(*starts, strict=True))[2] < 3000)  # 0.2 s later: 4 ms
        """,
        SIMCHIP_CLOCK_DRIFT_PPM="20000",
    )
    assert out.strip() == "True"


def test_a_chip_with_streams_and_no_table_says_so() -> None:
    result = run_child(
        """
        import torch
        from torch.profiler import ProfilerActivity, profile
        x = torch.ones(8, device="fl")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
            x.sigmoid()
        events = prof.events()
        print(any(e.device_type == torch.autograd.DeviceType.PrivateUse1 for e in events))
        print(any(e.name == "flLaunchKernel" for e in events))
        """,
        SIMCHIP_HIDE_PROFILER="1",
    )
    assert result.stdout.split() == ["False", "True"]
    assert "no profiler table" in result.stdout + result.stderr


def test_a_python_chip_shows_kernels() -> None:
    """A chip without streams is timed by the host."""
    out = child(
        """
        import time, torch_fl
        @torch_fl.register_backend("mychip")
        class MyChip:
            def init_runtime(self): return {"name": "My Chip", "driver_version": "1"}
            def dispatch(self, op_name, tensors, params):
                if op_name != "aten::mm": return None
                time.sleep(0.02)
                a, b = (t.numpy() for t in tensors)
                return a @ b
        a = torch.ones(4, 4).to(torch_fl.list_devices()[-1].device)
        a @ a
        with profile(activities=both) as prof:
            x.sigmoid()
            a @ a
        found = kernels(prof)
        (mm,) = [e for e in found if e.name == "aten::mm [mychip]"]
        assert 20_000 <= mm.device_time < 1_000_000, mm
        assert mm.device_index != x.device.index and any("sigmoid" in e.name for e in found)
        """
    )
    assert out == ""


def test_a_lost_device_does_not_end_the_profile() -> None:
    out = child(
        """
        y = torch.ones(8, device="fl:1")
        torch.fl.set_device(1)  # the profiler awaits the current device at its end
        with profile(activities=both) as prof:
            y.sigmoid()
            try:
                for _ in range(8): x.sigmoid(); torch.fl.synchronize(0)
            except RuntimeError as error:
                print("lost" in str(error))
            y.sigmoid()
        print(len([e for e in kernels(prof) if e.device_index == 1]))
        """,
        SIMCHIP_LOSE_DEVICE="0:4",
    )
    assert out.split() == ["True", "2"]


def test_fork_while_a_profile_runs() -> None:
    child(
        """
        prof = profile(activities=both); prof.start(); x.sigmoid()
        pid = os.fork()
        if pid == 0:
            torch.ones(3) + 1
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        prof.stop()
        assert kernels(prof)
        """
    )


def test_the_parser_finds_what_is_wrong(tmp_path: Path) -> None:
    good = {"ph": "X", "name": "a", "cat": "kernel", "pid": 1, "tid": 1, "ts": 0.0, "dur": 10.0}
    assert chrome_trace.problems({"traceEvents": [good, {**good, "ts": 1.0, "dur": 2.0}]}) == []
    for bad in (
        {**good, "dur": -1.0},
        {**good, "ts": "0"},
        {**good, "ph": "?"},
        {**good, "ts": 5.0},
        {"ph": "f", "name": "ac2g", "cat": "ac2g", "id": 3, "pid": 1, "tid": 1, "ts": 0.0},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {}},
    ):
        assert len(chrome_trace.problems({"traceEvents": [good, bad]})) == 1, bad
    (tmp_path / "nan.json").write_text('{"traceEvents": [NaN]}')
    with pytest.raises(ValueError, match="NaN is no JSON"):
        chrome_trace.load(tmp_path / "nan.json")
