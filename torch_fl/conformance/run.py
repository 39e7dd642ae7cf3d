# SPDX-License-Identifier: Apache-2.0
"""One run of the kit: plan, workers, console, files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from torch_fl.conformance import console as display
from torch_fl.conformance import pool, report
from torch_fl.conformance.verdict import Row, Verdict


class CheckError(Exception):
    """The run cannot start: no such chip, or it does not load."""


@dataclass
class Files:
    """What to write; None: nothing."""

    csv: Path | None = None
    report: Path | None = None


def run(settings: pool.Settings, files: Files, console: Console, verbose: bool = False) -> list[Row]:
    """Check a chip and return the verdicts."""
    try:
        plan = pool.plan(settings)
    except pool.WorkerError as error:
        raise CheckError(str(error)) from None
    if "chip" not in plan:
        raise CheckError(_no_chip(settings, plan))
    settings.chip = plan["chip"]
    untested = [Row(op, dtype, settings.mode, Verdict.UNTESTED, reason=why) for op, dtype, why in plan["untested"]]
    with display.Watcher(console, settings.chip, len(plan["tasks"])) as watcher:
        try:
            pool.Pool(settings, watcher.row, watcher.task).run(plan["tasks"])
        except pool.WorkerError as error:
            raise CheckError(str(error)) from None
    rows = untested + watcher.rows
    display.show(console, rows, settings.mode, verbose)
    _write(settings, plan, rows, files, console)
    return rows


def _write(settings: pool.Settings, plan: dict[str, Any], rows: list[Row], files: Files, console: Console) -> None:
    if files.csv is not None:
        report.write_csv(rows, files.csv)
        console.print(f"written: {files.csv}", highlight=False)
    if files.report is not None:
        options = {key: value for key, value in vars(settings).items() if key not in ("environment", "path", "chip")}
        made = report.make(settings.chip, plan["environment"], options, rows)
        for file in report.write(made, files.report):
            console.print(f"written: {file}", highlight=False)


def _no_chip(settings: pool.Settings, plan: dict[str, Any]) -> str:
    known = ", ".join(plan["chips"]) or "none"
    if settings.path:
        mine = [line for line in plan["skipped"] if settings.path in line] or plan["skipped"]
        return f"no chip was loaded from {settings.path}\n" + "\n".join(mine)
    return f"no chip {settings.chip!r} (chips: {known})" + "".join(f"\n{line}" for line in plan["skipped"])
