# SPDX-License-Identifier: Apache-2.0
"""What a baseline found, and its file: versioned JSON with every sample."""

from __future__ import annotations

import enum
import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

FORMAT = "torch-fl baseline 1"


class Kind(str, enum.Enum):
    """What a case is about, and so which of its times counts."""

    KERNEL = "kernel"  # one operator: the device's time
    MODEL = "model"  # end to end
    COPY = "copy"  # end to end
    LAUNCH = "launch"  # the host's time until the call returns


SERIES = {Kind.KERNEL: "device_ns", Kind.MODEL: "total_ns", Kind.COPY: "total_ns", Kind.LAUNCH: "host_ns"}


def rounds_of(kind: Kind, rounds: int) -> int:
    """Return how many of a process's rounds a kind of case takes part in: networks, which take long, in a quarter."""
    return max(1, rounds // 4) if kind is Kind.MODEL else rounds


class BadResults(ValueError):
    """A file that is no baseline, or is damaged."""


Samples = Annotated[tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...], Field(min_length=1)]


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # a later minor version may know more


class Route(_Row):
    """Calls of one operator by one route, in one call of a case."""

    op: str
    route: str
    reason: str = ""
    calls: int
    ns: int = 0  # where the counters time it: on the host, and in Python


class Round(_Row):
    """Samples taken one after another, in nanoseconds for one call; a sample is ``calls`` of them."""

    process: int
    round: int
    calls: int
    device_ns: Samples  # between two events round the calls; without timed events as total_ns
    host_ns: Samples  # until the calls have returned
    total_ns: Samples  # until the device is done as well
    loop_ns: Samples  # a loop that the CPU alone runs, before and after each sample: the machine's speed


class CaseResult(_Row):
    """One case: what it is, where its operators ran, and every sample."""

    name: str
    kind: Kind
    op: str = ""
    dtype: str = "float32"
    flops: int = 0  # of one call, where PyTorch's counter knows its operators; 0: unknown
    bytes: int = 0  # that one call must move at least: arguments, parameters and results, each once
    bytes_copied: int = 0
    memory_peak: int = 0  # bytes allocated on the device at the most, during one call
    routes: tuple[Route, ...] = ()
    host_share_of_time: float = 0.0  # of one call that waits for each operator
    error: str = ""
    cpu_ns: tuple[float, ...] = ()  # samples of the same call on the CPU
    rounds: tuple[Round, ...] = ()

    @property
    def series(self) -> str:
        """The name of the time that counts for this kind of case."""
        return SERIES[self.kind]

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


class Spread(_Row):
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


class Registered(_Row):
    """An operator for which the chip has a kernel."""

    op: str
    route: str
    dtypes: tuple[str, ...] = ()


class Results(_Row):
    """One run of the baseline. `write` keeps it, `read` brings it back."""

    format: Literal["torch-fl baseline 1"]
    date: str
    chip: str
    device: dict[str, Any]
    environment: dict[str, Any]
    options: dict[str, Any]
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
        file.write_text(json.dumps(self.model_dump(mode="json"), allow_nan=False) + "\n")


def read(file: Path) -> Results:
    """Read results; raises BadResults."""
    return parse(load_json(file), file)


def load_json(file: Path) -> Any:
    """Read a JSON file; raises BadResults that says what is wrong with it."""
    try:
        return json.loads(file.read_text())
    except OSError as error:
        raise BadResults(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadResults(f"{file}: not JSON: not even text") from None
    except RecursionError:
        raise BadResults(f"{file}: not JSON that anybody wrote: it is nested too deeply") from None
    except json.JSONDecodeError as error:
        ends = error.pos >= len(error.doc.rstrip()) - 1 or error.msg.startswith("Unterminated")
        what = "it ends in the middle: was it truncated?" if ends else f"{error.msg}"
        raise BadResults(f"{file}, line {error.lineno}, column {error.colno}: not JSON: {what}") from None


def parse(value: Any, file: Path) -> Results:
    """Return results from JSON's values; raises BadResults."""
    found = value.get("format") if isinstance(value, dict) else None
    if found != FORMAT:
        shown = f"{found!r}" if found is not None else "no format at all"
        hint = _newer(found)
        raise BadResults(f"{file}: no results of `torch-fl bench`: expected the format {FORMAT!r}, found {shown}{hint}")
    try:
        results = Results.model_validate(value)
    except ValidationError as error:
        raise BadResults(f"{file}: {_first(error.errors())}") from None
    _check_unique(results, file)
    return results


def _newer(found: Any) -> str:
    """Say so where the file is another version of this format."""
    stem = FORMAT.rpartition(" ")[0]
    if not isinstance(found, str) or not found.startswith(stem + " "):
        return ""
    return ": written by another version of torch-fl; run the bench anew, or compare with that version"


def _first(errors: Iterable[Any]) -> str:
    every = list(errors)
    place = ".".join(str(part) for part in every[0]["loc"])
    more = f" (and {len(every) - 1} more mistakes)" if len(every) > 1 else ""
    return f"{place}: {every[0]['msg']}{more}"


def _check_unique(results: Results, file: Path) -> None:
    names = [case.name for case in results.cases]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadResults(f"{file}: the case {twice!r} stands twice")
