# SPDX-License-Identifier: Apache-2.0
"""What the constraints of a convolution cost on each call that has to look at them.

They are compiled once, when the descriptor is loaded, and evaluated without Python. Target: under 100 ns a call.

    python -m benchmarks.bench_constraints
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["TORCH_FL_PLUGIN_PATH"] = ""

TARGET_NS = 100.0
ROUNDS, REPEATS = 7, 200_000
DESCRIPTOR = """
name: bench
runtime_so: libnone.so
supported_ops:
  - name: aten::convolution
    impl: vendor_convolution
    dtype_support: [float16, float32]
    constraints:
      dtypes: [float16, float32]
      arguments:
        input: {ndim: 4, size_multiple: {1: 8}}
        stride: {values: [1, 2, 4]}
        padding: {min: 0, max: 3}
        dilation: 1
        transposed: false
        groups: 1
      require: ["input.size(1) == weight.size(1)"]
"""


def tensor(*sizes: int) -> dict[str, Any]:
    import math

    return {"sizes": list(sizes), "strides": [math.prod(sizes[d + 1 :]) for d in range(len(sizes))], "dtype": 6}


def main() -> int:
    import torch_fl._C as core
    from torch_fl.chips import descriptor
    from torch_fl.chips.descriptor.lower import lower

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bench.yaml")
        path.write_text(DESCRIPTOR)
        rules = dict(lower(descriptor.load(path))["rules"])["aten::convolution"]
    image, weight, bias = tensor(8, 64, 56, 56), tensor(128, 64, 3, 3), tensor(128)
    args = [image, weight, bias, [2, 2], [1, 1], [1, 1], False, [0, 0], 1]
    out = [tensor(8, 128, 28, 28)]
    args_broken = [*args[:3], [2, 3], *args[4:]]
    reason, _ = core.check_rules(rules, args_broken, out, {"compute_dtype": 6}, 1)
    print(f"{len(rules['checks'])} checks; with stride (2, 3): {reason}")
    times = []
    for _ in range(ROUNDS):
        reason, nanoseconds = core.check_rules(rules, args, out, {"compute_dtype": 6}, REPEATS)
        assert reason == "", reason
        times.append(nanoseconds)
    best = min(times)
    print(f"a call that meets them: {best:.0f} ns of processor time (best of {ROUNDS}), target {TARGET_NS:.0f} ns")
    return 0 if best < TARGET_NS else 1


if __name__ == "__main__":
    sys.exit(main())
