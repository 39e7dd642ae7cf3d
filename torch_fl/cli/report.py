# SPDX-License-Identifier: Apache-2.0
"""``torch-fl report``: run a script or a model in a process of its own, and write the page of it."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from torch_fl._exits import ended, shell_status
from torch_fl._files import write_whole
from torch_fl.cli import run
from torch_fl.cli.errors import CommandError
from torch_fl.cli.output import writing
from torch_fl.observe import running, target
from torch_fl.observe.report import page
from torch_fl.observe.report.data import Report


def main(
    what: list[str] | None,
    module: str | None,
    output: Path,
    json: Path | None,
    alias_cuda: bool,
    device: str | None,
    steps: int,
) -> int:
    """Write the page; return the exit status, which is the program's."""
    program = run.words(what, module)
    for path in (output, *([json] if json else [])):
        run.writable(path)
    run.distinct(output, json)
    with tempfile.TemporaryDirectory(prefix="torch-fl-") as folder:
        data = Path(folder) / "report.json"
        wishes = running.Wishes(alias_cuda=alias_cuda, device=device, quiet=True)
        if module is None and target.is_model(program[0]) and not Path(program[0]).exists():
            words = ["-m", "torch_fl.observe.report.model", program[0], str(data), device or "", str(steps)]
            status = running.observed(words, wishes)
        else:
            _check_script(program)
            wishes = running.Wishes(
                alias_cuda=alias_cuda, device=device, auto=True, report=str(data), program=program, quiet=True
            )
            status = running.observed(program, wishes)
        if not data.exists():
            return _without_data(program, status)
        report = Report.from_json(data.read_text(encoding="utf-8"))
    if status and not report.failure:
        report = replace(report, failure=ended(status))
    with writing(output):
        write_whole(output, page.render(report))
    if json is not None:
        with writing(json):
            write_whole(json, report.to_json())
    print(output, file=sys.stderr)
    return shell_status(status)


def _check_script(program: list[str]) -> None:
    if program[0] != "-m" and not Path(program[0]).exists():
        raise CommandError(f"{program[0]}: no such file, and no MODULE:CALLABLE", status=2)


def _without_data(program: list[str], status: int) -> int:
    if status == 0:
        raise CommandError(f"{program[0]} ended without a report: it did not load torch, or left with os._exit()")
    text = f"{program[0]} ended with {ended(status)} before there was anything to report"
    raise CommandError(text, status=shell_status(status))
