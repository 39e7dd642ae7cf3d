# SPDX-License-Identifier: Apache-2.0
"""A cached allocation with its release: below 0.3 us.

python -m benchmarks.bench_allocation
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common

TARGET_US = 0.3
COUNT = 100_000


def extension() -> Any:
    """The timing loop in C++, compiled once and kept in torch's extension cache."""
    from torch.utils import cpp_extension

    source = Path(__file__).parent / "native" / "allocation.cpp"
    return cpp_extension.load("torch_fl_bench_allocation", [str(source)], extra_cflags=["-O2"])


def main() -> None:
    options = common.arguments(__doc__)
    common.environment(SIMCHIP_INLINE="1")
    import torch

    torch.empty(1, device="fl")
    native = extension()
    common.pin_threads()
    rows = []
    for size in (4, 1024, 65536, 1 << 20, 16 << 20):
        for held in (0, 100):
            times = [native.cached_allocation(COUNT, size, held) for _ in range(options.repeats)]
            rows.append(common.Row(f"{size} bytes, {held} others live", common.median(times) / 1e3, "us", TARGET_US))
    common.finish("a cached allocation with its release", rows, options)


if __name__ == "__main__":
    main()
