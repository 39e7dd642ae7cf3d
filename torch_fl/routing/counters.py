# SPDX-License-Identifier: Apache-2.0
"""What happened: every operator call, counted by operator, overload, chip, device, route and reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from torch_fl import _load
from torch_fl._context import reusable
from torch_fl._suggest import did_you_mean

ROUTES = (
    "kernel",
    "portable",
    "override",
    "composite",
    "decomposed",
    "host",
    "denied",
)  # that a call can take; docs/counters.md explains them


class NamedOverload:
    """What has an operator and an overload."""

    op: str
    overload: str

    @property
    def name(self) -> str:
        """Operator and overload, as in the schema."""
        return f"{self.op}.{self.overload}" if self.overload else self.op


@dataclass(frozen=True)
class CallCount(NamedOverload):
    """Calls that took one route for one reason.

    ``bytes``, ``syncs`` and ``ns`` are counted on the host route, ``ns`` where Python serves a call (override,
    decomposed), too. ``conversions`` are arguments that were cast, laid out or aligned anew for a kernel.
    """

    op: str
    overload: str
    chip: str
    device: int
    route: str
    reason: str
    calls: int
    bytes: int
    syncs: int
    ns: int
    conversions: int = 0


_FIELDS = (*(field.name for field in fields(CallCount)), "name")


def _check_word(kind: str, word: Any, choices: Sequence[str]) -> None:
    if word not in choices:
        raise ValueError(
            f"counters: no {kind} {word!r}{did_you_mean(str(word), choices)} ({kind}s: {', '.join(choices)})"
        )


class Total(NamedTuple):
    """Sums over some rows."""

    calls: int
    bytes: int
    syncs: int
    ns: int


class Counters(list[CallCount]):
    """Rows of counters, with sums. ``print(torch_fl.counters())`` shows a table."""

    def where(self, **equal: Any) -> Counters:
        """Return the rows whose fields equal these values: ``counters().where(route="host", chip="sim")``."""
        for name in equal:
            _check_word("field", name, _FIELDS)
        if "route" in equal:
            _check_word("route", equal["route"], ROUTES)
        return Counters(row for row in self if all(getattr(row, name) == value for name, value in equal.items()))

    def total(self) -> Total:
        """Return the sums over all rows."""
        return Total(*(sum(getattr(row, name) for row in self) for name in Total._fields))

    def by(self, field: str) -> dict[Any, Total]:
        """Return the sums for each value of a field, the most calls first: ``counters().by("route")``."""
        _check_word("field", field, _FIELDS)
        groups: dict[Any, Counters] = {}
        for row in self:
            groups.setdefault(getattr(row, field), Counters()).append(row)
        totals = {value: rows.total() for value, rows in groups.items()}
        return dict(sorted(totals.items(), key=lambda item: -item[1].calls))

    def share(self, route: str) -> float:
        """Return the share of calls that took a route, 0 to 1; 0 if there were no calls."""
        _check_word("route", route, ROUTES)
        calls = self.total().calls
        return self.where(route=route).total().calls / calls if calls else 0.0

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return plain rows, ready for JSON."""
        return [asdict(row) for row in self]

    def __str__(self) -> str:
        return table(sorted(self, key=lambda row: -row.calls), _COLUMNS)


_COLUMNS: dict[str, Callable[[CallCount], str]] = {
    "calls": lambda row: str(row.calls),
    "operator": lambda row: row.name,
    "device": lambda row: f"{row.chip} {row.device}",
    "route": lambda row: row.route,
    "bytes": lambda row: str(row.bytes),
    "syncs": lambda row: str(row.syncs),
    "ms": lambda row: f"{row.ns / 1e6:.2f}" if row.ns else "",
    "reason": lambda row: row.reason,
}


def table(rows: Iterable[Any], columns: Mapping[str, Callable[[Any], str]]) -> str:
    """Lay rows out in columns as plain text."""
    cells = [list(columns), *([render(row) for render in columns.values()] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(line.rstrip() for line in lines)


def counters() -> Counters:
    """Return the calls counted since start or `reset_counters`, one row for each operator, route and reason."""
    return Counters(CallCount(*row) for row in _load.core().counters())


@reusable
def timing() -> Iterator[None]:
    """Time every call, not only those on the host, for the duration of a ``with`` block.

    Each call then waits for its device, so that the time is the call's own; the program as a whole is slower.
    """
    core = _load.core()
    try:
        core.set_timing(True)
        yield
    finally:
        core.set_timing(False)


@dataclass(frozen=True)
class AdapterStats:
    """Arguments that kernels could not take as they were, since start. ``print()`` it."""

    conversions: int
    reuses: int
    kept: int
    kept_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        kept = f"{self.kept} kept ({self.kept_bytes / 2**20:.1f} of {self.limit_bytes / 2**20:.0f} MiB)"
        return f"{self.conversions} conversions, {self.reuses} reused instead, {kept}"


def adapter_stats() -> AdapterStats:
    """Return how many arguments were converted for kernels, and how many of those are kept for the next call."""
    return AdapterStats(**_load.core().adapter_stats())


def reset_counters() -> None:
    """Set all counters to zero."""
    _load.core().reset_counters()
