# SPDX-License-Identifier: Apache-2.0
"""A run: several processes one after another, each of which measures every case in some rounds."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from torch_fl._exits import ended
from torch_fl.observe.baseline.results import FORMAT, Kind, Results, rounds_of


class BenchError(RuntimeError):
    """A run that could not be made, and why."""


@dataclass(frozen=True)
class Options:
    """What to measure and how long."""

    model: str = ""  # pkg.module:callable or file.py:callable; "": the set
    set: str = "standard"
    device: str = "fl:0"
    repeats: int = 32  # rounds, all processes together
    processes: int = 8  # which the rounds are shared out to
    samples: int = 8  # of a case in a round
    sample_seconds: float = 0.0005  # that a sample lasts at least, by repeating the call
    cpu: bool = True  # the same on the CPU, for scale
    seed: int = 0

    @property
    def rounds(self) -> int:
        """The rounds of one process."""
        return -(-self.repeats // self.processes)


@dataclass(frozen=True)
class Step:
    """How far a run is: for progress bars."""

    done: int
    total: int
    text: str


Watch = Callable[[Step], None]


def run(options: Options | None = None, watch: Watch | None = None, **changes: Any) -> Results:
    """Measure a model or a set of cases on a device; return the results.

    ``run(set="quick,operators", repeats=8)``: keywords are those of `Options`. Raises `BenchError`.
    """
    chosen = Options(**{**(asdict(options) if options else {}), **changes})
    _check(chosen)
    return _Collector(chosen, watch or (lambda step: None)).run()


def _check(options: Options) -> None:
    for name in ("repeats", "processes", "samples"):
        if getattr(options, name) < 1:
            raise BenchError(f"{name} is {getattr(options, name)}, expected 1 or more")
    if not 0 < options.sample_seconds <= 60:
        raise BenchError(f"sample_seconds is {options.sample_seconds}, expected more than 0 and at most 60")


class _Collector:
    """Starts the processes and gathers what they say."""

    def __init__(self, options: Options, watch: Watch) -> None:
        self._options, self._watch = options, watch
        self._about: dict[str, Any] = {}
        self._cases: dict[str, dict[str, Any]] = {}
        self._done = 0

    def run(self) -> Results:
        self._tell("starting")
        for process in range(self._options.processes):
            self._process(process)
        content = {
            "format": FORMAT,
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            **self._about,
            "options": asdict(self._options),
            "cases": list(self._cases.values()),
        }
        return Results.model_validate(content)

    def _tell(self, text: str) -> None:
        of_process = sum(self._rounds(case) for case in self._cases.values())
        total = max(1, of_process * self._options.processes)
        self._watch(Step(min(self._done, total), total, text))

    def _rounds(self, case: dict[str, Any]) -> int:
        return rounds_of(Kind(case["kind"]), self._options.rounds, self._options.processes)

    def _process(self, number: int) -> None:
        while True:
            skip = [name for name, case in self._cases.items() if case.get("error")]
            self._forget(number)
            how, during = self._attempt(number, skip)
            if not how:
                return
            if during is None:
                raise BenchError(f"a measuring process did not start: {how}")
            if during in skip:
                raise BenchError(f"the measuring process ended in {during}, which it was to leave out: {how}")
            self._cases[during]["error"] = how.splitlines()[0]

    def _forget(self, number: int) -> None:
        """Drop what a process that ended early had measured: it starts anew."""
        for case in self._cases.values():
            case["rounds"] = [row for row in case["rounds"] if row["process"] != number]

    def _attempt(self, number: int, skip: list[str]) -> tuple[str, str | None]:
        """Run one process; return how it ended, "" if well, and the case it was at."""
        words = json.dumps({**asdict(self._options), "rounds": self._options.rounds, "process": number, "skip": skip})
        command = [sys.executable, "-X", "faulthandler", "-m", "torch_fl.observe.baseline.worker", words]
        during: str | None = None
        done = False
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            try:
                for message in _messages(process):
                    during = self._take(message, during)
                    done = done or "done" in message
                status = process.wait()
            finally:
                process.kill()
                process.wait()
            if done:
                return "", None
            log.seek(0)
            tail = "\n".join(log.read().decode(errors="replace").splitlines()[-8:])
        how = f"crash: {ended(status)}" if status < 0 else ended(status)
        return f"{how}\n{tail}", during

    def _take(self, message: dict[str, Any], during: str | None) -> str | None:
        if "refused" in message:
            raise BenchError(message["refused"])
        if "cases" in message:
            self._about = self._about or message["about"]
            for row in message["cases"]:
                self._cases.setdefault(row["name"], {**row, "rounds": []})
        elif "begin" in message:
            self._tell(message["begin"])
            return str(message["begin"])
        elif "facts" in message:
            self._cases[message["facts"]].update(message["values"])
        elif "round" in message:
            self._cases[message["round"]]["rounds"].append(message["values"])
            self._done += 1
        elif "failed" in message:
            self._cases[message["failed"]]["error"] = message["error"]
        return during


def _messages(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        try:
            yield dict(json.loads(line))
        except ValueError:  # cut off by a crash
            return
