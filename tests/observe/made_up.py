# SPDX-License-Identifier: Apache-2.0
"""Results of a baseline that nobody measured, with the noise of a busy machine."""

from __future__ import annotations

import random
from typing import Any

from torch_fl.observe.baseline.results import FORMAT, SERIES, Results, Round

CASES = 20


def results(
    seed: int,
    slow: dict[str, float] | None = None,
    speed: float = 1.0,
    loop: float = 1.0,
    processes: int = 8,
    cases: int = CASES,
    **changes: Any,
) -> Results:
    """A run. `slow` are factors of cases, `speed` one of all of them, `loop` one of the CPU's own loop."""
    die = random.Random(seed)
    content: dict[str, Any] = {
        "format": FORMAT,
        "date": "2026-01-01T00:00:00+00:00",
        "chip": "made",
        "device": {"name": "Made Up", "vendor": "Nobody", "driver_version": "1", "peak_flops": 0, "peak_bandwidth": 0},
        "environment": {
            "versions": {"torch": "2.13.0", "torch_fl": "0.1.0", "plugin": "1"},
            "cpu": "CPU",
            "threads": {"torch": 1, "allowed_cores": 2},
        },
        "options": {"repeats": 4 * processes, "processes": processes, "samples": 5, "sample_seconds": 0.001},
        "timer": "events of the device",
        "registered": [{"op": "aten::add.Tensor", "route": "kernel", "dtypes": ["float32", "int64"]}],
        "cases": [
            _case(die, i, (slow or {}).get(f"operators/op{i}", 1.0) * speed, loop, processes) for i in range(cases)
        ],
    }
    return Results.model_validate({**content, **changes})


def slowed(found: Results, name: str, factor: float) -> Results:
    """The same run, but for one case that takes longer."""

    def slower(round: Round) -> Round:
        times = {series: tuple(t * factor for t in getattr(round, series)) for series in SERIES.values()}
        return round.model_copy(update=times)

    cases = (
        case.model_copy(update={"rounds": tuple(map(slower, case.rounds))}) if case.name == name else case
        for case in found.cases
    )
    return found.model_copy(update={"cases": tuple(cases)})


def _case(die: random.Random, number: int, factor: float, loop: float, processes: int) -> dict[str, Any]:
    base = 10_000.0 * (1 + number)
    rounds = []
    for process in range(processes):
        # Where tensors lie: mostly no matter, sometimes much. Of every fifth case more.
        place = die.gauss(0, 0.03 if number % 5 == 0 else 0.01) + (die.random() < 0.06) * die.uniform(0.05, 0.3)
        busy = die.uniform(0, 0.1)  # what neighbours on the machine slow everything by
        for round in range(4):
            samples = [base * factor * (1 + place + busy + _hit(die)) for _ in range(5)]
            loops = [50_000.0 * loop * (1 + busy + _hit(die)) for _ in range(6)]
            times = {"device_ns": samples, "host_ns": samples, "total_ns": samples, "loop_ns": loops}
            rounds.append({"process": process, "round": round, "calls": 10, **times})
    name, op = f"operators/op{number}", f"aten::op{number}"
    routes = [{"op": op, "route": "kernel", "calls": 1}]
    return {"name": name, "kind": "kernel", "op": op, "routes": routes, "rounds": rounds}


def _hit(die: random.Random) -> float:
    """A neighbour gets the core for a while, now and then."""
    return abs(die.gauss(0, 0.005)) + (die.random() < 0.3) * die.expovariate(2.0)
