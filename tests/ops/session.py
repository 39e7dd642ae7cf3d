# SPDX-License-Identifier: Apache-2.0
"""The runs of this test session: the selected entries, once per mode, in worker processes."""

from __future__ import annotations

import os
from pathlib import Path

from tests.harness import summary
from tests.ops import catalogue
from tests.ops.pool import Pool, Settings
from tests.ops.report import Report
from tests.ops.run import EMPTIEST

SAMPLES = int(os.environ.get("TORCH_FL_TEST_SAMPLES", "4"))  # per (operator, dtype); 1000 for all
JOBS = int(os.environ.get("TORCH_FL_TEST_JOBS", str(min(2, os.cpu_count() or 1))))
MODES = {
    "normal": Settings(max_samples=SAMPLES, max_variant_samples=max(1, SAMPLES // 4), jobs=JOBS),
    "emptiest": Settings(max_samples=max(1, SAMPLES // 4), max_variant_samples=1, jobs=JOBS, environment=EMPTIEST),
}
# Without kernels nothing depends on the type but its size and how the CPU computes: a type of each kind will do.
DTYPES: dict[str, tuple[str, ...]] = {"emptiest": ("float32", "bfloat16", "int64", "bool", "complex64")}


class Runs:
    """The reports of this session, made on first use."""

    def __init__(self) -> None:
        self.wanted: dict[str, set[str]] = {mode: set() for mode in MODES}
        self._reports: dict[str, Report] = {}

    def report(self, mode: str) -> Report:
        """Run the entries selected in a mode, once."""
        if mode not in self._reports:
            tasks = catalogue.tasks(dtypes=DTYPES.get(mode, ()))
            chosen = [task for task in tasks if task["name"] in self.wanted[mode]]
            self._reports[mode] = Report(Pool(MODES[mode]).run(chosen))
        return self._reports[mode]

    def complete(self) -> bool:
        """True when every entry was selected in every mode."""
        return all(len(names) == len(catalogue.tasks()) for names in self.wanted.values())

    def sections(self) -> dict[str, str]:
        """The figures as text; also written as JSON to the folder TORCH_FL_TEST_REPORT."""
        folder = os.environ.get("TORCH_FL_TEST_REPORT")
        texts = {}
        for mode, report in self._reports.items():
            causes = "\ncauses of failures:\n" + report.causes() if report.failures() else ""
            texts[f"operators, {mode}"] = report.summary() + causes
            if folder:
                report.write(Path(folder) / f"ops-{mode}.json")
        return texts


RUNS = Runs()
summary.register(RUNS.sections)
