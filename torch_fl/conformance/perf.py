# SPDX-License-Identifier: Apache-2.0
"""Mode perf: the median time of a call on the chip and on the CPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torch_fl.conformance.case import Case, map_tensors
from torch_fl.conformance.execute import Executor
from torch_fl.conformance.verdict import Row, Verdict

_SAMPLES = 9
_SECONDS = 0.02  # that one sample lasts at least


def measure(op: str, dtype: str, cases: Iterator[Case], executor: Executor) -> Row:
    """Time the first case of an operator that has one."""
    case = next(cases, None)
    row = Row(op, dtype, "perf", Verdict.UNTESTED, reason="the kit has no case of a size worth timing")
    if case is None:
        return row
    finding = executor.check(case)
    row.verdict, row.reason, row.case = finding.verdict, finding.reason, str(case)
    row.nmse, row.bound = finding.nmse, finding.bound
    if finding.verdict in (Verdict.FAILED, Verdict.UNTESTED):
        return row
    row.cases, row.routes = 1, {finding.route: 1}
    _fill_in(row, case, executor)
    return row


def _fill_in(row: Row, case: Case, executor: Executor) -> None:
    args, kwargs = executor.move((case.args, case.kwargs))
    outputs: Any = case.function(*args, **kwargs)
    seconds = median_seconds(lambda: case.function(*args, **kwargs), torch.fl.synchronize)  # type: ignore[attr-defined]
    mine, named = map_tensors((case.args, case.kwargs), torch.Tensor.clone)
    on_cpu = median_seconds(lambda: case.function(*mine, **named), lambda: None)
    row.chip_us, row.cpu_us = seconds * 1e6, on_cpu * 1e6
    row.gb_per_s = case.bytes_moved(outputs) / seconds / 1e9
    row.gflop_per_s = case.flops / seconds / 1e9


def median_seconds(call: Callable[[], Any], synchronize: Callable[[], Any]) -> float:
    """Return the median time of a call: of some samples, each of so many calls in a row and one wait at its end."""
    call()
    synchronize()
    repeats = max(1, round(_SECONDS / max(_sample(call, synchronize, 1), 1e-7)))
    return statistics.median(_sample(call, synchronize, repeats) for _ in range(_SAMPLES))


def _sample(call: Callable[[], Any], synchronize: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    synchronize()
    return (time.perf_counter() - start) / repeats
