# SPDX-License-Identifier: Apache-2.0
"""The dispatch summary: what the counters, which are always on, say about a program."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch_fl._words import counted

VERSION = 1
ON_CHIP = ("kernel", "portable", "override")  # routes whose work the chip does
_NOT_COUNTED = ("composite", "decomposed")  # made of other calls, which are counted themselves
WORST = 5  # that are told


@dataclass(frozen=True)
class HostOp:
    """An operator that left the chip, for one reason."""

    name: str
    chip: str
    device: int
    reason: str
    calls: int
    bytes: int
    syncs: int
    ns: int


@dataclass(frozen=True)
class Summary:
    """Calls by route, and the host route's costliest operators."""

    program: list[str]
    calls: int
    on_chip: float
    routes: dict[str, int]
    host_ns: int
    host_bytes: int
    host_syncs: int
    storm: bool
    host: list[HostOp]  # the costliest first

    def as_dict(self) -> dict[str, Any]:
        """Return what ``--summary`` writes."""
        return {"version": VERSION, **asdict(self)}

    def text(self) -> str:
        """Return what is told at the end of a run."""
        if not self.calls:
            return "torch-fl: no operator was called on a device\n"
        shares = ", ".join(f"{route} {calls / self.calls:.1%}" for route, calls in self.routes.items())
        lines = [f"torch-fl: {counted(self.calls, 'operator call', ',')}, {self.on_chip:.1%} on the chip ({shares})"]
        if self.host:
            lines += self._cost()
        return "\n".join(lines) + "\n"

    def _cost(self) -> list[str]:
        from torch_fl.routing.counters import table

        cost = f"{self.host_ns / 1e6:,.1f} ms, {self.host_bytes / 2**20:,.1f} MiB moved, {self.host_syncs:,} waits"
        rows = table(self.host[:WORST], _COLUMNS).splitlines()
        advice = f"  Where from, and what to implement first: torch-fl report {self._program()}"
        storm = ["  Much of this program does not run on the chip."] if self.storm else []
        return [f"  On the host: {cost}. Costliest:", *(f"    {row}" for row in rows), *storm, advice]

    def _program(self) -> str:
        """The program as ``torch-fl report`` takes it: what follows ``--`` is the program's own."""
        own = 2 if self.program[:1] == ["-m"] else 1
        words = shlex.join(self.program[:own]) or "SCRIPT.py"
        return words + (
            f" -o report.html -- {shlex.join(self.program[own:])}" if self.program[own:] else " -o report.html"
        )


_COLUMNS = {
    "ms": lambda row: f"{row.ns / 1e6:.2f}",
    "calls": lambda row: f"{row.calls:,}",
    "operator": lambda row: row.name,
    "device": lambda row: f"{row.chip} {row.device}",
    "reason": lambda row: row.reason,
}


def collect(program: Sequence[str] = ()) -> Summary:
    """Sum the counters of this process up."""
    from torch_fl.configuration.settings import get_config
    from torch_fl.routing.counters import counters

    rows = [row for row in counters() if row.route not in _NOT_COUNTED]
    calls = sum(row.calls for row in rows)
    routes: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: -row.calls):
        routes[row.route] = routes.get(row.route, 0) + row.calls
    host = sorted((row for row in rows if row.route == "host"), key=lambda row: (-row.ns, -row.calls, row.name))
    host_calls, storm_share = routes.get("host", 0), get_config("storm_share")
    return Summary(
        program=list(program),
        calls=calls,
        on_chip=sum(routes.get(route, 0) for route in ON_CHIP) / calls if calls else 0.0,
        routes=dict(sorted(routes.items(), key=lambda item: -item[1])),
        host_ns=sum(row.ns for row in host),
        host_bytes=sum(row.bytes for row in host),
        host_syncs=sum(row.syncs for row in host),
        storm=bool(storm_share) and host_calls > storm_share * calls,
        host=[
            HostOp(row.name, row.chip, row.device, row.reason, row.calls, row.bytes, row.syncs, row.ns) for row in host
        ],
    )
