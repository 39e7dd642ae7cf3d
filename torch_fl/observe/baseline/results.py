# SPDX-License-Identifier: Apache-2.0
"""What a baseline found, and its file: versioned JSON with every sample."""

from __future__ import annotations

import enum
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from torch_fl._files import write_whole
from torch_fl.observe.baseline.parsing import (
    BadResults,
    Count,
    Flag,
    Number,
    Part,
    Positive,
    Time,
    Whole,
    checked,
    load_json,
    shown,
)

FORMAT = "torch-fl baseline 1"


class Kind(str, enum.Enum):
    """What a case is about, and so which of its times counts."""

    KERNEL = "kernel"  # one operator: the device's time
    MODEL = "model"  # end to end
    COPY = "copy"  # end to end
    LAUNCH = "launch"  # the host's time until the call returns


SERIES = {Kind.KERNEL: "device_ns", Kind.MODEL: "total_ns", Kind.COPY: "total_ns", Kind.LAUNCH: "host_ns"}


NO_TIMES, TOO_SHORT = "no times", "times of 0 ns"
FEWEST_PAIRS = 8  # that a comparison can have without alpha being large


def rounds_of(kind: Kind, rounds: int, processes: int) -> int:
    """Return how many of a process's rounds a kind of case takes part in.

    Networks, which take long, in a quarter, but in enough for a comparison where there are few processes.
    """
    if kind is not Kind.MODEL:
        return rounds
    return max(1, rounds // 4, min(rounds, -(-FEWEST_PAIRS // processes)))


Samples = Annotated[tuple[Time, ...], Field(min_length=1)]
Threads = dict[str, Count | None]


class Route(Part):
    """Calls of one operator by one route, in one call of a case."""

    op: str
    route: str
    reason: str = ""
    calls: Count
    ns: Count = 0  # where the counters time it: on the host, and in Python


class Round(Part):
    """Samples taken one after another, in nanoseconds for one call; a sample is ``calls`` of them."""

    process: Count
    round: Count
    calls: Count
    device_ns: Samples  # between two events round the calls; without timed events as total_ns
    host_ns: Samples  # until the calls have returned
    total_ns: Samples  # until the device is done as well
    loop_ns: Samples  # a loop that the CPU alone runs, before and after each sample: the machine's speed


class CaseResult(Part):
    """One case: what it is, where its operators ran, and every sample."""

    name: str
    kind: Kind
    op: str = ""
    dtype: str = "float32"
    flops: Count = 0  # of one call, where PyTorch's counter knows its operators; 0: unknown
    bytes: Count = 0  # that one call must move at least: arguments, parameters and results, each once
    bytes_copied: Count = 0
    direction: Literal["", "h2d", "d2h", "d2d"] = ""  # of a copy; within the device it reads and writes each byte
    memory_peak: Count = 0  # bytes allocated on the device at the most, during one call
    routes: tuple[Route, ...] = ()
    host_share_of_time: Number = 0.0  # of one call that waits for each operator
    error: str = ""
    cpu_ns: tuple[Time, ...] = ()  # samples of the same call on the CPU
    rounds: tuple[Round, ...] = ()

    @property
    def series(self) -> str:
        """The name of the time that counts for this kind of case."""
        return SERIES[self.kind]

    @property
    def untimed(self) -> str:
        """Why its times cannot be compared with others; "" if they can. Nothing is a multiple of 0 ns."""
        if not self.rounds:
            return NO_TIMES
        shortest = min(time for round in self.rounds for time in (*getattr(round, self.series), *round.loop_ns))
        return "" if shortest else TOO_SHORT

    def samples(self, series: str = "") -> list[float]:
        """Return all samples of a time (default: the one that counts), nanoseconds."""
        return [value for round in self.rounds for value in getattr(round, series or self.series)]

    def cpu_time(self) -> Spread:
        """Return the median on the CPU with its spread, nanoseconds."""
        return spread(self.cpu_ns)

    def time(self, series: str = "") -> Spread:
        """Return the median of a time (default: the one that counts) with its spread, nanoseconds."""
        return spread(self.samples(series))

    def host_share_of_calls(self) -> float:
        """Return which share of the operator calls ran on the host, 0 to 1."""
        calls = sum(route.calls for route in self.routes)
        return sum(route.calls for route in self.routes if route.route == "host") / calls if calls else 0.0


class Spread(Part):
    """Median and quartiles."""

    median: float
    low: float  # first quartile
    high: float  # third quartile

    @property
    def relative(self) -> float:
        """Half the distance between the quartiles, as a share of the median."""
        return (self.high - self.low) / 2 / self.median if self.median else 0.0


def spread(values: Sequence[float]) -> Spread:
    """Return median and quartiles; of nothing, zeros."""
    if len(values) < 2:
        only = values[0] if values else 0.0
        return Spread(median=only, low=only, high=only)
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median=middle, low=low, high=high)


class Registered(Part):
    """An operator for which the chip has a kernel."""

    op: str
    route: str
    dtypes: tuple[str, ...] = ()


class Device(Part):
    """The device that was measured."""

    name: str
    vendor: str
    driver_version: str = ""
    total_memory: Count = 0
    peak_flops: Number = 0.0  # of float32, a second; 0: the chip does not say
    peak_bandwidth: Number = 0.0  # of its memory, bytes a second; 0: the chip does not say


class Environment(Part):
    """What all of it ran in."""

    versions: dict[str, str]
    cpu: str = ""
    threads: Threads
    settings: dict[str, str] = {}
    variables: dict[str, str] = {}


class Settings(Part):
    """The options of the run: see `run.Options`. Without the required ones nothing can be compared."""

    model: str = ""
    set: str = "standard"
    device: str = ""
    repeats: Positive
    processes: Positive
    samples: Positive
    sample_seconds: Number
    cpu: Flag = True
    seed: Whole = 0


class Results(Part):
    """One run of the baseline. `write` keeps it, `read` brings it back."""

    format: Literal["torch-fl baseline 1"]
    date: str
    chip: str
    device: Device
    environment: Environment
    options: Settings
    timer: str
    registered: tuple[Registered, ...] = ()
    cases: tuple[CaseResult, ...] = Field(default=())

    def case(self, name: str) -> CaseResult:
        """Return a case by its name."""
        for case in self.cases:
            if case.name == name:
                return case
        raise KeyError(f"no case {name!r}; there are: {', '.join(case.name for case in self.cases)}")

    def write(self, file: Path) -> None:
        """Write the results as JSON."""
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(self.model_dump(mode="json"), allow_nan=False) + "\n")


def read(file: Path) -> Results:
    """Read results; raises BadResults."""
    return parse(load_json(file), file)


def parse(value: Any, file: Path) -> Results:
    """Return results from JSON's values; raises BadResults."""
    found = value.get("format") if isinstance(value, dict) else None
    if found != FORMAT:
        text = shown(found) if found is not None else "no format at all"
        hint = _newer(found)
        raise BadResults(f"{file}: no results of `torch-fl bench`: expected the format {FORMAT!r}, found {text}{hint}")
    results = checked(Results, value, str(file), "torch-fl bench -o")
    _check_unique(results, file)
    return results


def _newer(found: Any) -> str:
    """Say so where the file is another version of this format."""
    stem = FORMAT.rpartition(" ")[0]
    if not isinstance(found, str) or not found.startswith(stem + " "):
        return ""
    return ": written by another version of torch-fl; run the bench anew, or compare with that version"


def _check_unique(results: Results, file: Path) -> None:
    names = [case.name for case in results.cases]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadResults(f"{file}: the case {twice!r} stands twice")
