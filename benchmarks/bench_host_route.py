# SPDX-License-Identifier: Apache-2.0
"""What the host route costs.

Host-coherent: sim says that the host may address its memory; then at most 1.0 us more than the CPU itself.
Staged: memory is copied both ways; no slower than at::native::cpu_fallback doing the same.

    python -m benchmarks.bench_host_route
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common

COHERENT_TARGET_US = 1.0
STAGED_TARGET = 1.0
SHAPES = ((1,), (4, 64), (256, 256))


def cases(device: str) -> dict[str, Callable[[], Any]]:
    """Calls for which no kernel is in reach (the kernels are hidden)."""
    import torch

    made: dict[str, Callable[[], Any]] = {}
    for shape in SHAPES:
        x, y = torch.ones(shape, device=device), torch.ones(shape, device=device)
        made[f"add {shape}"] = partial(torch.add, x, y)
        made[f"neg {shape}"] = partial(torch.neg, x)
        made[f"add_ {shape}"] = partial(x.add_, y)
        made[f"sum {shape}"] = partial(torch.sum, x, 0)
    return made


def measure(mode: str, repeats: int) -> dict[str, tuple[float, str]]:
    """In a process of its own mode: figure and detail of each case."""
    import torch

    from torch_fl import _C

    common.pin_threads()
    fl, figures = cases("fl"), {}
    if mode == "coherent":
        cpu = cases("cpu")
        for name in cpu:
            times = common.interleave({"cpu": cpu[name], "fl": fl[name]}, repeats)
            detail = f"fl {common.median(times['fl']):.0f} ns, cpu {common.median(times['cpu']):.0f} ns"
            figures[name] = (common.difference(times, "fl", "cpu") / 1e3, detail)
        return figures
    for name, call in fl.items():
        turns: dict[str, list[float]] = {"ours": [], "stock": []}
        for turn in range(repeats):
            for side in ("ours", "stock") if turn % 2 == 0 else ("stock", "ours"):
                _C.set_stock_fallback(side == "stock")
                call()
                torch.accelerator.synchronize()
                turns[side] += common.interleave({"x": call}, 1)["x"]
        _C.set_stock_fallback(False)
        detail = f"ours {common.median(turns['ours']):.0f} ns, cpu_fallback {common.median(turns['stock']):.0f} ns"
        figures[name] = (common.ratio(turns, "ours", "stock"), detail)
    return figures


def _in_process(mode: str, repeats: int) -> dict[str, tuple[float, str]]:
    """The chip reads its mode when it loads, so each mode has a process; both sides of a ratio share one."""
    extra = {"SIMCHIP_HIDE_KERNELS": "1", "SIMCHIP_INLINE": "1"}
    if mode == "coherent":
        extra["SIMCHIP_HOST_COHERENT"] = "1"
    command = [sys.executable, __file__, "--mode", mode, "--repeats", str(repeats)]
    done = subprocess.run(
        command, env={**os.environ, **extra}, cwd=common.ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    if "--mode" in sys.argv:
        common.environment()
        print(json.dumps(measure(sys.argv[2], int(sys.argv[4]))))
        return
    options = common.arguments(__doc__)
    rows = [
        common.Row(f"coherent {name}", value, "us more", COHERENT_TARGET_US, detail)
        for name, (value, detail) in _in_process("coherent", options.repeats).items()
    ]
    rows += [
        common.Row(f"staged {name}", value, "x stock", STAGED_TARGET, detail)
        for name, (value, detail) in _in_process("staged", options.repeats).items()
    ]
    common.finish("host route", rows, options)


if __name__ == "__main__":
    main()
