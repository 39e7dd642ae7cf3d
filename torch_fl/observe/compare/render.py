# SPDX-License-Identifier: Apache-2.0
"""A comparison as tables, and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from torch_fl.observe.baseline.table import duration
from torch_fl.observe.compare.result import Change, Comparison, Direction, Speed, SpeedRow

_ORDER = (Direction.WORSE, Direction.OTHER, Direction.BETTER)
_STYLES = {Direction.WORSE: "bold red", Direction.BETTER: "green", Direction.OTHER: "yellow"}
_MOST = 40  # changes that a table shows
_CHANGES = ("", "what", "name", "before", "after", "")
_TIMES = ("case", "before", "after", "change", "p", "could see")


def show(console: Console, found: Comparison, every: bool) -> None:
    """Print tables for people."""
    console.print(Text(title(found)), style="bold")
    for note in found.notes:
        console.print(Text(f"differs: {note}"), style="dim")
    ordered = in_order(found.changes)
    if ordered:
        console.print(_changes(ordered[:_MOST]))
    if len(ordered) > _MOST:
        console.print(f"and {len(ordered) - _MOST} more changes: --json lists them")
    if found.speed is not None:
        rows = speed_rows(found.speed, every)
        if rows:
            console.print(_times(rows))
        console.print(Text("\n".join(about(found.speed))), style="dim")
    console.print(Text(verdict(found)), style="bold red" if found.regressions() else "bold")


def title(found: Comparison) -> str:
    """Return what was compared with what."""
    counts = ", ".join(f"{count} {what}" for what, count in found.compared.items())
    return f"{found.chip or found.kind}: {found.before} -> {found.after} ({counts})"


def verdict(found: Comparison) -> str:
    """Return the whole in a sentence."""
    if not found.changes:
        untested = found.speed is not None and not found.speed.tested
        return "no change" + (", but speed could not be tested" if untested else "")
    counts = [(len(found.of(direction=direction)), direction.value) for direction in _ORDER]
    return ", ".join(f"{count} {word}" for count, word in counts if count)


def in_order(changes: Sequence[Change]) -> list[Change]:
    """Return changes with the worst first."""
    return sorted(changes, key=lambda change: (_ORDER.index(change.direction), change.subject.value, change.name))


def speed_rows(speed: Speed, every: bool) -> list[SpeedRow]:
    """Return the cases to show: those that changed, or all; the slowest first."""
    return sorted((row for row in speed.rows if every or row.changed), key=lambda row: -row.ratio)


def about(speed: Speed) -> list[str]:
    """Return how times were tested, and what all cases have in common."""
    lines = [
        f"Test: {speed.test}.",
        f"Taken out of every case: {speed.normalized}. The time of all cases together changed by "
        f"{speed.common - 1:+.1%}, that of a loop of the CPU alone by {speed.machine - 1:+.1%}.",
    ]
    if not speed.tested:
        lines.append(
            "There are too few pairs for this alpha: no change of speed can be told. Run bench with more --processes, "
            "or compare with a larger --alpha."
        )
    return lines


def _cells(change: Change) -> tuple[str, ...]:
    return change.direction.value, change.subject.value, change.name, change.before, change.after, change.detail


def _time_cells(row: SpeedRow) -> tuple[str, ...]:
    times = duration(row.before_ns), duration(row.after_ns)
    return row.name, *times, f"{row.ratio - 1:+.1%}", f"{row.p:.3f}", f"{row.detectable - 1:+.0%}"


def _grid(titles: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in titles:
        table.add_column(name, overflow="fold", justify="right" if name in numbers else "left")
    return table


def _changes(changes: Sequence[Change]) -> Table:
    table = _grid(_CHANGES)
    for change in changes:
        first, *rest = _cells(change)
        table.add_row(Text(first, style=_STYLES[change.direction]), *(Text(cell) for cell in rest))
    return table


def _times(rows: Sequence[SpeedRow]) -> Table:
    table = _grid(_TIMES, _TIMES[1:])
    for row in rows:
        style = "" if not row.changed else "red" if row.ratio > 1 else "green"
        table.add_row(*(Text(cell, style=style) for cell in _time_cells(row)))
    return table


def markdown(found: Comparison, every: bool) -> str:
    """Return the comparison as Markdown."""
    lines = [f"### {_escaped(title(found))}", "", f"**{verdict(found)}**", ""]
    ordered = in_order(found.changes)
    if ordered:
        lines += _markdown_table(_CHANGES, [_cells(change) for change in ordered])
    if found.speed is not None:
        rows = speed_rows(found.speed, every)
        if rows:
            lines += _markdown_table(_TIMES, [_time_cells(row) for row in rows])
        lines += [*(_escaped(line) for line in about(found.speed)), ""]
    lines += [f"- differs: {_escaped(note)}" for note in found.notes]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [titles, ["---"] * len(titles), *([_escaped(cell) for cell in row] for row in rows)]
    return [*(f"| {' | '.join(row)} |" for row in cells), ""]


def _escaped(text: str) -> str:
    """Keep text from being markup: names of operators have underscores, reasons anything."""
    text = " ".join(text.split())
    for sign in "\\`*_|<>[]":
        text = text.replace(sign, f"\\{sign}")
    return text
