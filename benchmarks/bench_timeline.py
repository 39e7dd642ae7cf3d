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
CALLS = 3000


def nanoseconds(call: Callable[[], object], activities: list[object]) -> float:
    """One call's time within a profile of these activities; of its own end nothing."""
    from torch.profiler import profile

    with profile(activities=activities):
        start = perf_counter_ns()
        for _ in range(CALLS):
            call()
        return (perf_counter_ns() - start) / CALLS


def main() -> None:
    options = common.arguments(__doc__, repeats=7)
    from torch.profiler import ProfilerActivity

    common.pin_threads()
    host, both = [ProfilerActivity.CPU], [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    rows = []
    for name, call in bench_small_ops.cases("fl").items():
        without, extra = [], []
        for turn in range(options.repeats):
            order = (host, both) if turn % 2 == 0 else (both, host)
            times = {len(activities): nanoseconds(call, activities) for activities in order}
            without.append(times[1])
            extra.append(times[2] - times[1])
        note = f"beside {common.median(without):.0f} ns under the profiler without them"
        rows.append(common.Row(name, common.median(extra), "ns", TARGET_NS, note))
    common.finish("device events of an operator under torch.profiler", rows, options)


if __name__ == "__main__":
    main()
