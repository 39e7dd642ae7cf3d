# SPDX-License-Identifier: Apache-2.0
"""Latency of small operators as Python sees it, on sim executing inline, against the stock CPU: at most 0.9 times.

python -m benchmarks.bench_small_ops
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common

common.environment(SIMCHIP_INLINE="1")
TARGET = 0.9
Cases = dict[str, Callable[[], Any]]


def cases(device: str) -> Cases:
    """The calls, each on tensors of `device`."""
    import torch

    made: Cases = {}
    for shape in ((1,), (4, 64)):
        x, y = torch.ones(shape, device=device), torch.ones(shape, device=device)
        for name, call in (
            ("add", partial(torch.add, x, y)),
            ("mul", partial(torch.mul, x, y)),
            ("relu", partial(torch.relu, x)),
            ("sum", partial(torch.sum, x)),
        ):
            made[f"{name} {shape}"] = call
    a = torch.ones(4, 4, device=device)
    made["mm (4, 4)"] = partial(torch.mm, a, a)
    return made


def rows(cpu: Cases, fl: Cases, repeats: int, target: float) -> list[common.Row]:
    """Time each case on both devices, in turn."""
    import torch

    import torch_fl

    made = []
    for name in cpu:
        torch_fl.reset_counters()
        times = common.interleave({"cpu": cpu[name], "fl": fl[name]}, repeats, settle=torch.accelerator.synchronize)
        routes = ",".join(torch_fl.counters().by("route"))
        detail = f"fl {common.median(times['fl']):.0f} ns, cpu {common.median(times['cpu']):.0f} ns, route {routes}"
        made.append(common.Row(name, common.ratio(times, "fl", "cpu"), "x cpu", target, detail))
    return made


def main() -> None:
    options = common.arguments(__doc__)
    common.pin_threads()
    cpu, fl = cases("cpu"), cases("fl")
    for name in cpu:
        cpu[name](), fl[name]()  # the first call plans, and may load PyTorch's Python shape rules: not what is timed
    made = rows(cpu, fl, options.repeats, TARGET)
    common.finish("small operators, sim inline against the stock CPU", made, options)


if __name__ == "__main__":
    main()
