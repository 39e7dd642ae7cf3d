# SPDX-License-Identifier: Apache-2.0
"""Trains a small network under torch.profiler, and prints what it says of kernels beside what OpenCL's events say."""

from __future__ import annotations

import ctypes as C
import json
import os
import pathlib
import sys
import tempfile

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

import torch_fl


def events_of(loader: C.CDLL, first: int) -> list[tuple[int, int]]:
    loader.timed_count.restype = C.c_uint64
    times = []
    for i in range(first, loader.timed_count()):
        start, end = C.c_uint64(), C.c_uint64()
        assert loader.timed_read(C.c_uint64(i), C.byref(start), C.byref(end)) == 0
        times.append((start.value, end.value))
    return times


def main() -> None:
    loader = C.CDLL(os.environ["TORCH_FL_OPENCL_LIBRARY"])
    (device,) = [d for d in torch_fl.list_devices() if d.chip == "opencl"]
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3),
        torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16 * 30 * 30, 10),
    ).to(device.device)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(16, 3, 32, 32, device=device.device), torch.randint(0, 10, (16,), device=device.device)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    for _ in range(3):
        step()
    torch.accelerator.synchronize()
    loader.timed_count.restype = C.c_uint64
    first = loader.timed_count()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
        for _ in range(3):
            step()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json"
        prof.export_chrome_trace(str(path))
        trace = json.loads(path.read_text())["traceEvents"]
    operators = {e["args"]["External id"]: e for e in trace if e.get("cat") == "cpu_op" and "External id" in e["args"]}
    launches = {
        e["args"]["correlation"]: e for e in trace if e.get("name") == "flLaunchKernel" and "correlation" in e["args"]
    }
    kernels = [
        {
            "name": e["name"],
            "start": e["ts"],
            "ns": e["dur"] * 1000,
            "operator": operators.get(e["args"].get("External id"), {}).get("name"),
            "launched": launches[e["args"]["correlation"]]["ts"],
        }
        for e in trace
        if e.get("cat") == "kernel"
    ]
    assert len(kernels) == sum(e.device_type == DeviceType.PrivateUse1 and "Mem" not in e.name for e in prof.events())
    kernels.sort(key=lambda kernel: kernel["start"])
    events = sorted(events_of(loader, first))
    print("RESULT" + json.dumps({"kernels": kernels, "events": events}))


if __name__ == "__main__":
    sys.exit(main())
