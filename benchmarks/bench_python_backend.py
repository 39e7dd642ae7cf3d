# SPDX-License-Identifier: Apache-2.0
"""What a call costs on a chip that is a Python class, against numpy called directly and PyTorch's CPU.

python -m benchmarks.bench_python_backend
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common

common.environment()


def register() -> str:
    """A chip that multiplies and adds with numpy; returns its device."""
    import torch_fl

    @torch_fl.register_backend("bench")
    class Bench:
        operators = ("aten::mm", "aten::add.Tensor")

        def init_runtime(self) -> None:
            pass

        def dispatch(self, op: str, tensors: Any, params: Any) -> Any:
            a, b = tensors
            return a.numpy() @ b.numpy() if op == "aten::mm" else a.numpy() + b.numpy()

    return torch_fl.list_devices()[-1].device


def main() -> None:
    options = common.arguments(__doc__)
    import torch

    common.pin_threads()
    device = register()
    a = torch.ones(8, 8)
    x, n = a.to(device), a.numpy()
    rows = []
    for name, fl, cpu, direct in (
        ("mm (8, 8)", lambda: torch.mm(x, x), lambda: torch.mm(a, a), lambda: n @ n),
        ("add (8, 8)", lambda: torch.add(x, x), lambda: torch.add(a, a), lambda: n + n),
    ):
        assert torch.equal(fl().cpu(), cpu())
        times = common.interleave({"fl": fl, "cpu": cpu, "numpy": direct}, options.repeats)
        detail = ", ".join(f"{side} {common.median(values) / 1000:.2f} us" for side, values in times.items())
        rows.append(common.Row(name, common.difference(times, "fl", "numpy") / 1000, "us more", detail=detail))
    common.finish("a Python class as a chip, against numpy called directly", rows, options)


if __name__ == "__main__":
    main()
