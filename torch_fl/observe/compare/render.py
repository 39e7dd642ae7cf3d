# SPDX-License-Identifier: Apache-2.0
"""A comparison as tables, and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from torch_fl._words import counted
from torch_fl.observe.baseline.table import duration
from torch_fl.observe.compare.result import Change, Comparison, Direction, Speed, SpeedRow
from torch_fl.observe.compare.statistics import MOST_FLIPS

_ORDER = (Direction.WORSE, Direction.OTHER, Direction.BETTER)
_STYLES = {Direction.WORSE: "bold red", Direction.BETTER: "green", Direction.OTHER: "yellow"}
_MOST = 40  # changes that a table shows
_MOST_LINES = 10  # of what could not be judged
_HUGE = 11.0  # a ratio beyond which a test sees nothing, in effect
_CHANGES = ("", "what", "name", "before", "after", "")
_TIMES = ("case", "before", "after", "change", "p", "could see")


def show(console: Console, found: Comparison, every: bool) -> None:
    """Print tables for people."""
    console.print(Text(title(found)), style="bold")
    for note in found.notes:
        console.print(Text(f"differs: {note}"), style="dim")
    for line in _cut(found.unjudged):
        console.print(Text(f"not judged: {line}"), style="yellow")
    ordered = in_order(found.changes)
    if ordered:
        console.print(_changes(ordered[:_MOST]))
    if len(ordered) > _MOST:
        console.print(f"and {len(ordered) - _MOST} more changes: --json lists them")
    if found.speed is not None:
        rows = speed_rows(found.speed, every)
        if rows:
            console.print(_times(rows, found.speed))
        console.print(Text("\n".join(about(found.speed))), style="dim")
    console.print(Text(verdict(found)), style="bold red" if found.regressions() else "bold")


def title(found: Comparison) -> str:
    """Return what was compared with what."""
    counts = ", ".join(f"{what}: {count}" for what, count in found.compared.items())
    return f"{found.chip or found.kind}: {found.before} -> {found.after} ({counts})"


def verdict(found: Comparison) -> str:
    """Return the whole in a sentence."""
    counts = [(len(found.of(direction=direction)), direction.value) for direction in _ORDER]
    words = ", ".join(f"{count} {word}" for count, word in counts if count) or "no change"
    if found.speed is not None and not found.speed.tested:
        words += ", but speed could not be tested"
    return words + (f", {len(found.unjudged)} could not be judged" if found.unjudged else "")


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
    if speed.rows:
        lines.append("Times are those of the pair whose change is the median; after: without what was taken out.")
    if not speed.tested:
        lines.append(f"No change of speed can be told: {why_untested(speed)}.")
    return lines


def why_untested(speed: Speed) -> str:
    """Return why no case could be tested, and what to do."""
    if speed.pairs_needed is None:
        return f"no number of pairs can give a p as small as this alpha (at least {1 / MOST_FLIPS:.2g} is possible)"
    most = max(row.pairs for row in speed.rows)
    return (
        f"too few pairs: {most}, {speed.pairs_needed} are needed for this alpha; run bench with more --processes, "
        "or compare with a larger --alpha"
    )


def _cut(lines: Sequence[str]) -> list[str]:
    """Return lines with the last of many replaced by their number."""
    if len(lines) <= _MOST_LINES:
        return [*lines]
    return [*lines[: _MOST_LINES - 1], f"{len(lines) - _MOST_LINES + 1} more: --json lists them"]


def _cells(change: Change) -> tuple[str, ...]:
    return change.direction.value, change.subject.value, change.name, change.before, change.after, change.detail


def _time_cells(row: SpeedRow, speed: Speed) -> tuple[str, ...]:
    times = duration(row.before_ns), duration(row.after_ns), f"{row.ratio - 1:+.1%}"
    if row.p is None or row.detectable is None:
        few = f"{row.pairs} of {speed.pairs_needed} pairs" if speed.pairs_needed else counted(row.pairs, "pair")
        return row.name, *times, "", few
    return row.name, *times, _chance(row.p), f"{row.detectable - 1:+.0%}" if row.detectable < _HUGE else "nothing"


def _chance(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


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


def _times(rows: Sequence[SpeedRow], speed: Speed) -> Table:
    table = _grid(_TIMES, _TIMES[1:])
    for row in rows:
        style = "" if not row.changed else "red" if row.ratio > 1 else "green"
        table.add_row(*(Text(cell, style=style) for cell in _time_cells(row, speed)))
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
            lines += _markdown_table(_TIMES, [_time_cells(row, found.speed) for row in rows])
        lines += [*(_escaped(line) for line in about(found.speed)), ""]
    lines += [f"- differs: {_escaped(note)}" for note in found.notes]
    lines += [f"- not judged: {_escaped(line)}" for line in _cut(found.unjudged)]
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
