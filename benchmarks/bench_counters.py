# SPDX-License-Identifier: Apache-2.0
"""What counting every call costs: below 2 % of a small operator.

python -m benchmarks.bench_counters
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import bench_small_ops, common

TARGET_PERCENT = 2.0


def main() -> None:
    options = common.arguments(__doc__, repeats=41)
    from torch_fl import _C

    common.pin_threads()
    rows = []
    for name, call in bench_small_ops.cases("fl").items():
        turns: dict[bool, list[float]] = {True: [], False: []}
        for turn in range(options.repeats):
            for on in (True, False) if turn % 2 == 0 else (False, True):
                _C.set_counting(on)
                turns[on] += common.interleave({"x": call}, 1, seconds=0.01)["x"]
        _C.set_counting(True)
        cost = statistics.median(a - b for a, b in zip(turns[True], turns[False], strict=True))
        base = common.median(turns[False])
        rows.append(common.Row(name, 100 * cost / base, "%", TARGET_PERCENT, f"{cost:.1f} ns of {base:.0f} ns"))
    total = common.Row("median of all", common.median([row.value for row in rows]), "%", TARGET_PERCENT)
    for row in rows:
        row.target = None  # single operators scatter by more than the effect; their median is judged
    common.finish("cost of the counters", [*rows, total], options)


if __name__ == "__main__":
    main()
