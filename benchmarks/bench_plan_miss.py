# SPDX-License-Identifier: Apache-2.0
"""The first call of a signature makes a plan. No Python may run for it.

Runs operators with new shapes each time, those that PyTorch gives a C++ meta function and those that have a shape rule
of ours, counts how often the core had to ask a Python meta function, and times the miss.

    python -m benchmarks.bench_plan_miss
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common

common.environment(SIMCHIP_INLINE="1")
ROUNDS = 50


def cases() -> dict[str, Callable[[int], Callable[[], Any]]]:
    """Makers of calls by operator; a new size gives a new signature."""
    import torch
    import torch.nn.functional as F

    def of(function: Callable[..., Any]) -> Callable[[int], Callable[[], Any]]:
        def make(n: int) -> Callable[[], Any]:
            x = torch.ones(2, n, device="fl")
            return lambda: function(x)

        return make

    def image(function: Callable[..., Any]) -> Callable[[int], Callable[[], Any]]:
        def make(n: int) -> Callable[[], Any]:
            x = torch.ones(1, 2, n, 4, device="fl")
            return lambda: function(x)

        return make

    return {
        "add": of(lambda x: torch.add(x, x)),
        "mul scalar": of(lambda x: x * 2),
        "add_": of(lambda x: x.add_(1)),
        "div": of(lambda x: torch.div(x, x)),
        "pow": of(lambda x: x.pow(2)),
        "eq": of(lambda x: x == x),
        "relu": of(torch.relu),
        "gelu": of(F.gelu),
        "silu": of(F.silu),
        "tanh": of(torch.tanh),
        "exp": of(torch.exp),
        "sigmoid": of(torch.sigmoid),
        "neg": of(torch.neg),
        "sum": of(lambda x: x.sum(1)),
        "mean": of(lambda x: x.mean(0)),
        "amax": of(lambda x: x.amax(1)),
        "max": of(lambda x: x.max(1)),
        "argmax": of(lambda x: x.argmax(1)),
        "any": of(lambda x: x.any(1)),
        "cumsum": of(lambda x: x.cumsum(1)),
        "softmax": of(lambda x: x.softmax(1)),
        "log_softmax": of(lambda x: x.log_softmax(1)),
        "mm": of(lambda x: x @ x.t()),
        "addmm": of(lambda x: torch.addmm(x[:, :2], x, x.t())),
        "bmm": of(lambda x: torch.bmm(x[None], x.t()[None])),
        "cat": of(lambda x: torch.cat([x, x])),
        "gather": of(lambda x: x.gather(0, torch.zeros_like(x, dtype=torch.int64))),
        "index_select": of(lambda x: x.index_select(0, torch.zeros(1, dtype=torch.int64, device="fl"))),
        "sort": of(lambda x: x.sort(1)),
        "topk": of(lambda x: x.topk(1, 1)),
        "tril": of(torch.tril),
        "lerp": of(lambda x: torch.lerp(x, x, 0.5)),
        "addcmul": of(lambda x: torch.addcmul(x, x, x)),
        "clamp": of(lambda x: x.clamp(0, 1)),
        "mse_loss": of(lambda x: F.mse_loss(x, x)),
        "nll_loss": of(lambda x: F.nll_loss(x, torch.zeros(2, dtype=torch.int64, device="fl"))),
        "avg_pool2d": image(lambda x: F.avg_pool2d(x, 2)),
        "max_pool2d": image(lambda x: F.max_pool2d(x, 2)),
        "upsample": image(lambda x: F.interpolate(x, scale_factor=2)),
        "threshold": of(lambda x: F.threshold(x, 0.1, 0.0)),
        "abs": of(torch.abs),
        "where": of(lambda x: torch.where(x > 0, x, 1.0)),
        "masked_fill": of(lambda x: x.masked_fill(x > 0, 0.0)),
        "var": of(lambda x: x.var(1)),
        "flip": of(lambda x: x.flip(1)),
        "repeat": of(lambda x: x.repeat(2, 1)),
        "arange": of(lambda x: torch.arange(x.shape[1], device="fl")),
        "embedding": of(lambda x: F.embedding(torch.zeros(2, dtype=torch.int64, device="fl"), x)),
        "dropout": of(lambda x: F.dropout(x, 0.5, True)),
        "layer_norm": of(lambda x: F.layer_norm(x, x.shape[1:])),
        "batch_norm": image(lambda x: F.batch_norm(x, None, None, training=True)),
        "group_norm": image(lambda x: F.group_norm(x, 1)),
        "convolution": image(lambda x: F.conv2d(x, x[:, :, :1, :1])),
        "adaptive_pool2d": image(lambda x: F.adaptive_avg_pool2d(x, 2)),
        "pad": image(lambda x: F.pad(x, (1, 1, 1, 1), "reflect")),
        "huber_loss": of(lambda x: F.huber_loss(x, x)),
    }


def main() -> None:
    options = common.arguments(__doc__)
    from torch_fl import _C

    common.pin_threads()
    rows = []
    for name, make in cases().items():
        make(3)()
        calls = [make(n) for n in range(4, 4 + ROUNDS)]
        before = _C.python_meta_calls()
        first, again = [], []
        for call in calls:
            for times in (first, again):
                start = time.perf_counter_ns()
                call()
                times.append(time.perf_counter_ns() - start)
        python = _C.python_meta_calls() - before
        detail = f"first call {common.median(first) / 1e3:.1f} us, second {common.median(again) / 1e3:.1f} us"
        rows.append(common.Row(name, float(python), "Python", 0, detail))
    common.finish(f"calls of Python in {ROUNDS} plan misses", rows, options)


if __name__ == "__main__":
    main()
