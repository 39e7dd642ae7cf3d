# SPDX-License-Identifier: Apache-2.0
"""What records cost: at most 1.5 us a call; a million calls stay under 300 MB and are written in under 10 s.

python -m benchmarks.bench_records
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import bench_small_ops, common

TARGET_US, TARGET_MB, TARGET_SECONDS = 1.5, 300.0, 10.0
CALLS = 1_000_000


def memory_mb(what: str) -> float:
    """Memory of this process: VmRSS now, VmHWM at most so far."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition(f"{what}:")[2].split()[0]) / 1e3


def cost_rows(options: argparse.Namespace, device_events: bool) -> list[common.Row]:
    """The cost of a record, calls with and without in turns."""
    import torch_fl

    rows = []
    for name, call in bench_small_ops.cases("fl").items():
        turns: dict[bool, list[float]] = {True: [], False: []}
        for turn in range(options.repeats):
            for on in (True, False) if turn % 2 == 0 else (False, True):
                if on:
                    with torch_fl.profiler.profile(device_events=device_events):
                        turns[on] += common.interleave({"x": call}, 1, seconds=0.01)["x"]
                else:
                    turns[on] += common.interleave({"x": call}, 1, seconds=0.01)["x"]
        costs = [a - b for a, b in zip(turns[True], turns[False], strict=True)]
        base = common.median(turns[False])
        rows.append(common.Row(name, common.median(costs) / 1e3, "us", None, f"of {base / 1e3:.2f} us"))
    what = "records and device events" if device_events else "records"
    target = None if device_events else TARGET_US
    total = common.Row(f"{what}, median", common.median([row.value for row in rows]), "us a call", target)
    return [total] if device_events else [*rows, total]


def deep_row(options: argparse.Namespace) -> common.Row:
    """The same inside modules: the line that made the call is some frames away."""
    import torch

    import torch_fl

    model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.ReLU()) for _ in range(4))).to("fl")
    x = torch.ones(4, 64, device="fl")
    turns: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(options.repeats):
        with torch_fl.profiler.profile(device_events=False):
            turns[True] += common.interleave({"x": lambda: model(x)}, 1, seconds=0.01)["x"]
        turns[False] += common.interleave({"x": lambda: model(x)}, 1, seconds=0.01)["x"]
    cost = common.median([a - b for a, b in zip(turns[True], turns[False], strict=True)]) / 4
    return common.Row("records, inside modules", cost / 1e3, "us a call", TARGET_US)


def long_run_rows(device_events: bool) -> list[common.Row]:
    """A million calls: memory, and both files."""
    import torch

    import torch_fl

    x = torch.ones(4, 64, device="fl")
    calls = (x.neg, x.exp, x.relu, x.abs)
    for call in calls:
        call()
    gc.collect()
    before = memory_mb("VmRSS")
    with torch_fl.profiler.profile(capacity=CALLS, device_events=device_events) as p:
        for _ in range(CALLS // len(calls)):
            for call in calls:
                call()
    assert len(p.records) == CALLS, len(p.records)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        p.export_json_lines(Path(folder) / "p.jsonl")
        p.export_chrome_trace(Path(folder) / "p.json")
        seconds = time.perf_counter() - start
        sizes = [file.stat().st_size / 1e6 for file in sorted(Path(folder).iterdir(), key=lambda file: file.suffix)]
    start = time.perf_counter()
    p.groups(("op", "site"))
    memory = memory_mb("VmHWM") - before  # with what writing and adding up need
    grouped = time.perf_counter() - start
    what = f"a million calls, {len(p.events)} device events"
    return [
        common.Row(f"{what}: memory", memory, "MB", TARGET_MB),
        common.Row(f"{what}: both files", seconds, "s", TARGET_SECONDS, " and ".join(f"{s:.0f} MB" for s in sizes)),
        common.Row(f"{what}: sums by operator and line", grouped, "s"),
    ]


def main() -> None:
    options = common.arguments(__doc__, repeats=21)
    common.pin_threads()
    rows = [*cost_rows(options, False), deep_row(options), *cost_rows(options, True)]
    for device_events in (False, True):  # each with the memory of a process of its own
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            rows += pool.submit(long_run_rows, device_events).result()
    common.finish("records of calls, on sim inline", rows, options)


if __name__ == "__main__":
    main()
