# SPDX-License-Identifier: Apache-2.0
"""Operators that have no typed trampoline reach the router through the boxed fallback: at most 1.5 times the CPU.

The same operators as in bench_small_ops, with their trampolines replaced by the boxed fallback.

    python -m benchmarks.bench_boxed_ops
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import bench_small_ops, common

TARGET = 1.5
OPERATORS = ["add.Tensor", "mul.Tensor", "relu", "sum", "mm"]


def main() -> None:
    options = common.arguments(__doc__)
    common.pin_threads()
    cpu, fl = bench_small_ops.cases("cpu"), bench_small_ops.cases("fl")
    for call in fl.values():
        call()
    from torch_fl import _C

    for operator in OPERATORS:
        _C.route_boxed(operator)
    made = bench_small_ops.rows(cpu, fl, options.repeats, TARGET)
    common.finish("boxed operators, sim inline against the stock CPU", made, options)


if __name__ == "__main__":
    main()
