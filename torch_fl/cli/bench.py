# SPDX-License-Identifier: Apache-2.0
"""``torch-fl bench``: the baseline of a model or of a standard set."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from torch_fl.cli import output
from torch_fl.cli.errors import CommandError
from torch_fl.cli.run import writable
from torch_fl.observe import baseline
from torch_fl.observe.baseline import table


def main(options: baseline.Options, file: Path | None, json: bool) -> int:
    """Measure, print or write; return the exit status: 1 if a case failed."""
    if file is not None:
        with output.writing(file):
            file.parent.mkdir(parents=True, exist_ok=True)
        writable(file)
    errors = Console(stderr=True)
    try:
        results = _watched(options, errors)
    except baseline.BenchError as error:
        raise CommandError(str(error), status=2) from None
    if file is not None:
        with output.writing(file):
            results.write(file)
    if json:
        output.print_json(results.model_dump(mode="json"))
    else:
        table.show(Console(width=None if sys.stdout.isatty() else output.pipe_width()), results)
        if file is not None:
            print(f"written: {file}; compare it with another run: torch-fl compare {file} OTHER.json")
    return int(any(case.error for case in results.cases))


def _watched(options: baseline.Options, console: Console) -> baseline.Results:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=None)

        def watch(step: baseline.Step) -> None:
            progress.update(task, completed=step.done, total=step.total, description=f"{step.text[:36]:36}")

        return baseline.run(options, watch)
