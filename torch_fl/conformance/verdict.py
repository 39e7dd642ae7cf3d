# SPDX-License-Identifier: Apache-2.0
"""Verdicts: of one case (`Finding`), and of all cases of one operator in one type (`Row`)."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any


class Verdict(str, enum.Enum):
    """What became of a case, or of an operator in one type."""

    STRICT = "STRICT"
    BASIC = "BASIC"
    FAILED = "FAILED"
    UNTESTED = "UNTESTED"
    SUPPORTED = "SUPPORTED"  # mode support
    REFUSED = "REFUSED"  # mode support


@dataclass
class Finding:
    """What became of one case."""

    verdict: Verdict
    reason: str = ""
    nmse: float = 0.0
    bound: float = 0.0  # of STRICT
    route: str = ""
    case: str = ""


@dataclass
class Row:
    """The verdict on one operator overload in one element type."""

    op: str
    dtype: str
    mode: str
    verdict: Verdict
    reason: str = ""
    case: str = ""  # the first that decided the verdict
    cases: int = 0  # that ran on a wanted route
    routes: dict[str, int] = field(default_factory=dict)  # calls by route
    nmse: float = 0.0  # the largest in relation to its bound
    bound: float = 0.0
    chip_us: float = 0.0  # mode perf: median time of a call
    cpu_us: float = 0.0
    gb_per_s: float = 0.0
    gflop_per_s: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {**asdict(self), "verdict": self.verdict.value}

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Row:
        """Undo `as_dict`."""
        return cls(**{**row, "verdict": Verdict(row["verdict"])})


_WORST_FIRST = (Verdict.FAILED, Verdict.REFUSED, Verdict.BASIC, Verdict.STRICT, Verdict.SUPPORTED)


def summarize(op: str, dtype: str, mode: str, findings: Iterable[Finding]) -> Row:
    """Return the verdict that the worst of the cases decides. Cases on other routes count for nothing."""
    everything = list(findings)
    nothing = "the CPU has no gradient for it" if mode == "grad" else "the CPU refuses every case"
    row = Row(op, dtype, mode, Verdict.UNTESTED, reason=nothing)
    for finding in everything:
        if finding.route:
            row.routes[finding.route] = row.routes.get(finding.route, 0) + 1
    tested = [finding for finding in everything if finding.verdict is not Verdict.UNTESTED]
    row.cases = len(tested)
    deciding = min(tested, key=lambda finding: _WORST_FIRST.index(finding.verdict)) if tested else None
    if deciding is None:
        deciding = everything[0] if everything else None
    if deciding is not None:
        row.verdict, row.reason = deciding.verdict, deciding.reason
        row.case = deciding.case if deciding.verdict in (Verdict.FAILED, Verdict.BASIC) else ""
    shown = max(tested, key=lambda finding: finding.nmse / finding.bound if finding.bound else 0.0, default=None)
    if shown is not None:
        row.nmse, row.bound = shown.nmse, shown.bound
    return row
