# SPDX-License-Identifier: Apache-2.0
"""Runs the selected entries once per mode, in worker processes, and prints the figures at the end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.ops import catalogue
from tests.ops.pool import Pool, Settings
from tests.ops.report import Report
from tests.ops.run import EMPTIEST

SAMPLES = int(os.environ.get("TORCH_FL_TEST_SAMPLES", "8"))  # per (operator, dtype); 1000 for all
JOBS = int(os.environ.get("TORCH_FL_TEST_JOBS", str(min(2, os.cpu_count() or 1))))
MODES = {
    "normal": Settings(max_samples=SAMPLES, jobs=JOBS),
    "emptiest": Settings(max_samples=max(2, SAMPLES // 4), max_variant_samples=1, jobs=JOBS, environment=EMPTIEST),
}


class Runs:
    """The reports of this session, made on first use."""

    def __init__(self) -> None:
        self.wanted: dict[str, set[str]] = {mode: set() for mode in MODES}
        self._reports: dict[str, Report] = {}

    def report(self, mode: str) -> Report:
        if mode not in self._reports:
            chosen = [task for task in catalogue.tasks() if task["name"] in self.wanted[mode]]
            self._reports[mode] = Report(Pool(MODES[mode]).run(chosen))
        return self._reports[mode]

    def complete(self) -> bool:
        """True when every entry was selected in every mode."""
        return all(len(names) == len(catalogue.tasks()) for names in self.wanted.values())

    @property
    def made(self) -> dict[str, Report]:
        return self._reports


_RUNS = Runs()


@pytest.fixture(scope="session")
def runs() -> Runs:
    return _RUNS


def pytest_collection_finish(session: pytest.Session) -> None:
    for item in session.items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "mode" in parameters and "entry" in parameters:
            _RUNS.wanted[parameters["mode"]].add(parameters["entry"])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    folder = os.environ.get("TORCH_FL_TEST_REPORT")
    for mode, report in _RUNS.made.items():
        terminalreporter.section(f"operators, {mode}")
        terminalreporter.write_line(report.summary())
        if report.failures():
            terminalreporter.write_line("causes of failures:\n" + report.causes())
        if folder:
            report.write(Path(folder) / f"ops-{mode}.json")
