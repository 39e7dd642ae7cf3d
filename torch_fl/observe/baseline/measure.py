# SPDX-License-Identifier: Apache-2.0
"""Measuring one case in this process."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

import torch_fl
from torch_fl import _load
from torch_fl.observe.baseline.case import Case, Work, bytes_of, tensors

_MOST_CALLS = 10_000  # in one sample
_CPU = torch.device("cpu")
_LOOP_STEPS = 2_000
_PADDING_BYTES = 1 << 19


@dataclass
class Effort:
    """How long to look."""

    samples: int  # of a case in a round
    seconds: float  # that one sample of a small case lasts
    slow: float = 0.1  # cases that take longer, in seconds, get one sample a round


@dataclass
class Plan:
    """How a case is sampled, found when it first ran."""

    calls: int  # in one sample
    samples: int  # in one round


class Clock:
    """Times of some calls: on the device by events where the chip has them, and on the host."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        capabilities = _load.core().devices()[device.index]["capabilities"]
        self.timed = "timed_events" in capabilities
        if self.timed:
            self._begin, self._end = (torch.Event(device=device, enable_timing=True) for _ in range(2))

    @property
    def name(self) -> str:
        """What times the device."""
        return "events of the device" if self.timed else "the host's clock round calls and a wait"

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.accelerator.synchronize(self._device)

    def sample(self, work: Work, calls: int) -> tuple[float, float, float]:
        """Return the nanoseconds of a call: on the device, until it returned, until the device was done."""
        call = work.call
        self.synchronize()
        if self.timed:
            self._begin.record()
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        returned = time.perf_counter_ns()
        if self.timed:
            self._end.record()
        self.synchronize()
        total = time.perf_counter_ns() - start
        on_device = self._begin.elapsed_time(self._end) * 1e6 if self.timed else total
        return on_device / calls, (returned - start) / calls, total / calls


def on_cpu(case: Case, work: Work, effort: Effort) -> list[float]:
    """Return samples of the nanoseconds of a call on the CPU."""
    with gradients(case):
        work.call()
        calls, seconds = _calls(lambda n: _cpu_sample(work, n), effort.seconds)
        return [_cpu_sample(work, calls) for _ in range(1 if seconds > effort.slow else effort.samples)]


def _cpu_sample(work: Work, calls: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(calls):
        work.call()
    return (time.perf_counter_ns() - start) / calls


def loop() -> float:
    """Return the nanoseconds of a loop that the CPU alone runs: how fast the machine is just now."""
    start = time.perf_counter_ns()
    total = 0
    for i in range(_LOOP_STEPS):
        total += i * i
    return float(time.perf_counter_ns() - start)


@contextlib.contextmanager
def gradients(case: Case) -> Iterator[None]:
    """Without them, unless the case is about them."""
    with torch.set_grad_enabled(case.gradients):
        yield


def plan(case: Case, work: Work, clock: Clock, effort: Effort) -> Plan:
    """Find how many calls make a sample that is long enough, and how many samples a round."""
    with gradients(case):
        work.call()
        calls, seconds = _calls(lambda n: clock.sample(work, n)[2], effort.seconds)
    return Plan(calls, 1 if seconds > effort.slow else effort.samples)


def made(case: Case, device: torch.device, seed: int) -> Work:
    """Make a case, with the same numbers each time."""
    torch.manual_seed(seed)
    with gradients(case):
        return case.make(device)


def padding(device: torch.device, seed: int) -> list[torch.Tensor]:
    """Return blocks that shift what is allocated next.

    Where tensors lie decides how they share caches, often more than a kernel's change does: without these, all
    rounds of a run would have one throw of that die.
    """
    die = random.Random(seed)
    return [torch.empty(die.randrange(1, _PADDING_BYTES), dtype=torch.uint8, device=device) for _ in range(3)]


def _calls(time_of: Any, seconds: float) -> tuple[int, float]:
    """Return how many calls last about so long, and the seconds of one."""
    calls = 1
    while (each := time_of(calls) / 1e9) * calls < seconds / 4 and calls < _MOST_CALLS:
        calls *= 2
    return max(1, min(_MOST_CALLS, round(seconds / max(each, 1e-9)))), each


def facts(case: Case, work: Work, clock: Clock, device: torch.device) -> dict[str, Any]:
    """Look at what one call does: routes, share of the host, memory."""
    with gradients(case):
        work.call()  # plans, compiles
        clock.synchronize()
        torch.accelerator.memory.reset_peak_memory_stats(device)
        torch_fl.reset_counters()
        work.call()
        clock.synchronize()
        counted = torch_fl.counters()
        peak = torch.accelerator.max_memory_allocated(device)
        share = _host_share(work, clock) if counted.where(route="host") else 0.0
    routes = [
        {"op": row.name, "route": row.route, "reason": row.reason, "calls": row.calls, "ns": row.ns} for row in counted
    ]
    routes.sort(key=lambda row: (row["op"], row["route"], row["reason"]))
    return {"memory_peak": peak, "routes": routes, "host_share_of_time": share}


def _host_share(work: Work, clock: Clock) -> float:
    """Return the share of a call's time that its operators spend on the host, when each is waited for."""
    torch_fl.reset_counters()
    with torch_fl.timing():
        work.call()
        clock.synchronize()
    counted = torch_fl.counters()
    everything = counted.total().ns
    return counted.where(route="host").total().ns / everything if everything else 0.0


def size(case: Case, work: Work) -> dict[str, int]:
    """Return the operations of one call, and the bytes that it must move at least, from a run on the CPU."""
    with gradients(case), FlopCounterMode(display=False) as counter:
        result = work.call()
    moved = bytes_of((*work.touched, *tensors(result)))
    return {"flops": int(counter.get_total_flops()), "bytes": moved}


def _check(nanoseconds: list[float]) -> None:
    """Refuse what a device's events cannot mean."""
    for value in nanoseconds:
        if not 0 <= value < math.inf:
            raise RuntimeError(f"expected a time between the device's events, found {value} ns")


def sample_round(case: Case, work: Work, plan: Plan, clock: Clock) -> dict[str, Any]:
    """Take the samples of one round."""
    found, loops = [], [loop()]
    with gradients(case):
        work.call()
        for _ in range(plan.samples):
            found.append(clock.sample(work, plan.calls))
            loops.append(loop())
    device, host, total = (list(series) for series in zip(*found, strict=True))
    _check(device)
    return {"calls": plan.calls, "device_ns": device, "host_ns": host, "total_ns": total, "loop_ns": loops}
