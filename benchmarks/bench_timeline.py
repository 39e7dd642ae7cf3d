# SPDX-License-Identifier: Apache-2.0
"""What device events cost a small operator: under torch.profiler, beyond what the profiler costs without them.

python -m benchmarks.bench_timeline

What they cost while no profiler runs is within bench_small_ops: one load.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import bench_small_ops, common

TARGET_NS = 1500.0
CHUNKS, CALLS = 40, 50


def nanoseconds(call: Callable[[], object], activities: list[object]) -> float:
    """One call's time within a profile of these activities: the quickest of many short runs, as the effect is small."""
    from torch.profiler import profile

    runs = []
    with profile(activities=activities):
        for _ in range(CHUNKS):
            start = perf_counter_ns()
            for _ in range(CALLS):
                call()
            runs.append((perf_counter_ns() - start) / CALLS)
    return min(runs)


def main() -> None:
    options = common.arguments(__doc__, repeats=5)
    from torch.profiler import ProfilerActivity

    common.pin_threads()
    host, both = [ProfilerActivity.CPU], [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    rows = []
    for name, call in bench_small_ops.cases("fl").items():
        times: dict[int, list[float]] = {1: [], 2: []}
        for turn in range(options.repeats):
            for activities in (host, both) if turn % 2 == 0 else (both, host):
                times[len(activities)].append(nanoseconds(call, activities))
        without, extra = min(times[1]), min(times[2]) - min(times[1])
        rows.append(
            common.Row(name, extra, "ns", TARGET_NS, f"beside {without:.0f} ns under the profiler without them")
        )
    common.finish("device events of an operator under torch.profiler", rows, options)


if __name__ == "__main__":
    main()
