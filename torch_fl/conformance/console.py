# SPDX-License-Identifier: Apache-2.0
"""What a run shows: progress, a table, a summary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from torch_fl._words import counted
from torch_fl.conformance.case import overload_name
from torch_fl.conformance.report import summary
from torch_fl.conformance.verdict import Row, Verdict

_STYLES = {
    Verdict.STRICT: "green",
    Verdict.SUPPORTED: "green",
    Verdict.BASIC: "yellow",
    Verdict.FAILED: "bold red",
    Verdict.UNTESTED: "dim",
    Verdict.REFUSED: "yellow",
}


_WORST = (Verdict.FAILED, Verdict.BASIC, Verdict.REFUSED, Verdict.UNTESTED)


class Watcher:
    """Shows the progress of a run, and each failure when it happens."""

    def __init__(self, console: Console, chip: str, count: int) -> None:
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task(f"checking {chip}", total=count)
        self.rows: list[Row] = []

    def __enter__(self) -> Watcher:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def row(self, row: Row) -> None:
        """Take a verdict."""
        self.rows.append(row)
        if row.verdict is Verdict.FAILED:
            self._console.print(_failure(row), highlight=False)

    def task(self, op: str) -> None:
        """Count an operator as done."""
        self._progress.advance(self._task)


def _failure(row: Row) -> str:
    text = f"[bold red]FAILED[/] {overload_name(row.op)} {row.dtype}: {escape(row.reason)}"
    return text + (f"\n       {escape(row.case)}" if row.case else "")


def show(console: Console, rows: Sequence[Row], mode: str, verbose: bool) -> None:
    """Print a table: of everything, or of what is not as good as it could be, by reason; then the summary."""
    if mode == "perf":
        console.print(_timings(rows))
    elif verbose:
        console.print(_all(rows))
    else:
        _print_exceptions(console, rows)
    console.print(summary_line(rows), highlight=False)


def summary_line(rows: Iterable[Row]) -> str:
    """Return the counts of verdicts and of operators in one line."""
    everything = list(rows)
    parts = [f"[{_STYLES[Verdict(name)]}]{count} {name}[/]" for name, count in summary(everything).items()]
    operators = len({row.op for row in everything})
    return f"{', '.join(parts) or 'nothing to check'} (operators with types; {counted(operators, 'operator')})"


def _ordered(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.op, row.dtype))


def _all(rows: Iterable[Row]) -> Table:
    table = Table("operator", "type", "verdict", "cases", "NMSE / bound", "reason", box=None, pad_edge=False)
    for row in _ordered(rows):
        share = f"{row.nmse / row.bound:.2f}" if row.bound else ""
        verdict = f"[{_STYLES[row.verdict]}]{row.verdict.value}[/]"
        table.add_row(overload_name(row.op), row.dtype, verdict, str(row.cases), share, escape(row.reason))
    return table


def _timings(rows: Iterable[Row]) -> Table:
    columns = ("operator", "type", "verdict", "chip us", "CPU us", "times CPU", "GB/s", "GFLOP/s", "case")
    table = Table(*columns[:-1], box=None, pad_edge=False)
    table.add_column(columns[-1], no_wrap=True, overflow="ellipsis")
    for row in _ordered(rows):
        if not row.chip_us:
            continue
        figures = (row.chip_us, row.cpu_us, row.cpu_us / row.chip_us, row.gb_per_s)
        flops = f"{row.gflop_per_s:.1f}" if row.gflop_per_s else ""
        verdict = f"[{_STYLES[row.verdict]}]{row.verdict.value}[/]"
        texts = [f"{figure:.2f}" if figure < 10 else f"{figure:.0f}" for figure in figures]
        table.add_row(overload_name(row.op), row.dtype, verdict, *texts, flops, escape(row.case))
    return table


def _print_exceptions(console: Console, rows: Sequence[Row]) -> None:
    """Print what is neither STRICT nor SUPPORTED, in groups of one verdict and one reason."""
    groups: dict[tuple[Verdict, str], dict[str, list[str]]] = {}
    for row in _ordered(rows):
        if row.verdict not in (Verdict.STRICT, Verdict.SUPPORTED):
            groups.setdefault((row.verdict, row.reason), {}).setdefault(row.op, []).append(row.dtype)
    table = Table("verdict", "reason", "operators", box=None, pad_edge=False)
    for (verdict, reason), ops in sorted(groups.items(), key=lambda item: _WORST.index(item[0][0])):
        names = ", ".join(f"{overload_name(op)} ({' '.join(dtypes)})" for op, dtypes in ops.items())
        table.add_row(f"[{_STYLES[verdict]}]{verdict.value}[/]", escape(reason), escape(names))
    if groups:
        console.print(table)
