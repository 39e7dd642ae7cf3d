# SPDX-License-Identifier: Apache-2.0
"""Measuring: interleaved repeats in one process, medians, a table, JSON, and a verdict against the target."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import timeit
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclasses.dataclass
class Row:
    """One figure with its target. `value <= target` is what is wanted, unless `at_least`."""

    name: str
    value: float
    unit: str
    target: float | None = None
    detail: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool:
        if self.target is None:
            return True
        return self.value >= self.target if self.at_least else self.value <= self.target


def arguments(description: str | None, repeats: int = 15, **more: float) -> argparse.Namespace:
    """Command line that every benchmark has, and numbers of its own with their defaults."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=repeats, help="interleaved repeats; the median counts")
    for name, default in more.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    return parser.parse_args()


def environment(**values: str) -> None:
    """Set variables for the chip, unless the caller set them. Call before torch is imported."""
    if "torch" in sys.modules:
        raise RuntimeError("environment() must be called before torch is imported: chips read it when they load")
    for name, value in values.items():
        os.environ.setdefault(name, value)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    # The figures are about the simulated chip, whatever else this machine has.
    os.environ.setdefault("TORCH_FL_PLUGIN_PATH", str(ROOT / "torch_fl" / "chips" / "sim" / "libfl_sim.so"))


def pin_threads() -> None:
    """One thread for computing, on one core, so that the two sides see the same machine."""
    import torch

    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})


def interleave(
    cases: dict[str, Callable[[], Any]], repeats: int, seconds: float = 0.02, settle: Callable[[], None] | None = None
) -> dict[str, list[float]]:
    """Nanoseconds per call of each case, measured in turns. `settle` runs outside the clock, before each turn."""
    timers = {name: timeit.Timer("f()", globals={"f": function}) for name, function in cases.items()}
    numbers = {name: _number(timer, seconds) for name, timer in timers.items()}
    times: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(repeats):
        names = list(timers) if turn % 2 == 0 else list(reversed(timers))
        for name in names:
            if settle is not None:
                settle()
            times[name].append(1e9 * timers[name].timeit(numbers[name]) / numbers[name])
    return times


def _number(timer: timeit.Timer, seconds: float) -> int:
    """Calls that take about `seconds`; warms up on the way."""
    number = 1
    while (taken := timer.timeit(number)) < seconds / 4:
        number *= 2
    return max(1, int(number * seconds / taken))


def ratio(times: dict[str, list[float]], mine: str, reference: str) -> float:
    """Median over the turns of mine / reference."""
    return statistics.median(a / b for a, b in zip(times[mine], times[reference], strict=True))


def difference(times: dict[str, list[float]], mine: str, reference: str) -> float:
    """Median over the turns of mine - reference, in nanoseconds."""
    return statistics.median(a - b for a, b in zip(times[mine], times[reference], strict=True))


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def finish(title: str, rows: list[Row], options: argparse.Namespace) -> None:
    """Print the table, write the JSON, end the process."""
    print(f"== {title} ==")
    width = max(len(row.name) for row in rows)
    for row in rows:
        sign = ">=" if row.at_least else "<="
        verdict = "" if row.target is None else f"  {sign} {row.target:g} {'ok' if row.met else 'MISSED'}"
        print(f"{row.name:{width}}  {row.value:10.3f} {row.unit:8}{verdict}  {row.detail}")
    if options.json:
        figures = [{**dataclasses.asdict(row), "met": row.met} for row in rows]
        Path(options.json).write_text(json.dumps({"title": title, "rows": figures}, indent=1))
    missed = [row.name for row in rows if not row.met]
    if missed:
        print(f"missed: {', '.join(missed)}")
    sys.exit(1 if missed and options.check else 0)
