# SPDX-License-Identifier: Apache-2.0
"""What torch-fl report expects of a kernel, and what the kernel then gives.

index_select is kept on the host, recorded, and its gain predicted; then the chip's kernel takes the calls. Predicted
and real gain must agree within 30 %, in three programs: one that reads a value in each step, one that the device is
the limit of, and one that has work of its own between steps.

    python -m benchmarks.bench_gain
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common

OP = "aten::index_select"
TARGET = 0.3
STEPS = 20
ROWS, WIDTH, PICKED = 100_000, 64, 512


def programs() -> dict[str, Callable[[], None]]:
    import torch

    table = torch.randn(ROWS, WIDTH, device="fl")
    index = torch.randint(0, ROWS, (PICKED,)).to("fl")
    up = torch.randn(WIDTH, 128, device="fl")
    large = torch.randn(256, 256, device="fl")

    def reading() -> None:
        for _ in range(STEPS):
            (torch.index_select(table, 0, index) @ up).relu().sum().item()

    def device_bound() -> None:
        for _ in range(STEPS):
            torch.index_select(table, 0, index) @ up
            large @ large
        torch.accelerator.synchronize()

    def with_own_work() -> None:
        for _ in range(STEPS):
            large @ large
            torch.index_select(table, 0, index) @ up
            time.sleep(1e-3)  # not computing: the simulated device computes on the same processors
        torch.accelerator.synchronize()

    return {"reading": reading, "device-bound": device_bound, "own work": with_own_work}


def predicted(program: Callable[[], None]) -> tuple[str, float]:
    """The operator that a report ranks first, and its gain in nanoseconds."""
    from torch_fl import profiler
    from torch_fl.observe.report import data

    with profiler.profile() as profile:
        program()
    candidates = data.collect(profile, "").candidates
    return (candidates[0].op, candidates[0].gain_ns) if candidates else ("", 0.0)


def wall(program: Callable[[], None]) -> float:
    start = time.perf_counter_ns()
    program()
    return time.perf_counter_ns() - start


def measure(program: Callable[[], None], repeats: int) -> dict[str, Any]:
    """Medians of interleaved turns."""
    import torch_fl

    host: list[float] = []
    kernel: list[float] = []
    gains: list[float] = []
    firsts: set[str] = set()
    for turn in range(repeats + 2):
        with torch_fl.config(route={OP: "host"}):  # in turns, since who comes first pays for cold memory
            if turn % 2 == 0:
                before = wall(program)
            first, gain = predicted(program)
            if turn % 2:
                before = wall(program)
        after = wall(program)
        if turn >= 2:  # the first turns warm up
            host.append(before)
            kernel.append(after)
            gains.append(gain)
            firsts.add(first)
    real = statistics.median(a - b for a, b in zip(host, kernel))
    return {
        "first": sorted(firsts),
        "predicted": statistics.median(gains),
        "real": real,
        "before": statistics.median(host),
        "after": statistics.median(kernel),
    }


def _only() -> str | None:
    """Take ``--program NAME`` out of the command line: measure only this one."""
    if "--program" not in sys.argv:
        return None
    at = sys.argv.index("--program")
    name = sys.argv[at + 1]
    del sys.argv[at : at + 2]
    return name


def main() -> None:
    common.environment()
    only = _only()
    options = common.arguments(__doc__, repeats=12)
    import torch_fl

    torch_fl.set_config("storm_share", 0)  # the storm is wanted
    rows = []
    for name, program in programs().items():
        if only not in (None, name):
            continue
        found = measure(program, options.repeats)
        off = abs(found["predicted"] / found["real"] - 1)
        detail = ", ".join(f"{key} {found[key] / 1e6:.2f} ms" for key in ("predicted", "real", "before", "after"))
        rows.append(common.Row(f"{name}: off by", off, "", TARGET, detail))
        rows.append(common.Row(f"{name}: ranked first", float(found["first"] == [OP]), "", 1.0, at_least=True))
    common.finish("gain", rows, options)


if __name__ == "__main__":
    main()
