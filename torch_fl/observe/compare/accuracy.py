# SPDX-License-Identifier: Apache-2.0
"""Conformance reports: operators that are checked no longer, verdicts, and errors that grew."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from torch_fl.conformance.verdict import Verdict
from torch_fl.observe.baseline.parsing import Count, Part
from torch_fl.observe.compare.operators import rank
from torch_fl.observe.compare.result import Change, Direction, Subject

# The best first.
_RANKS = (Verdict.STRICT, Verdict.SUPPORTED, Verdict.BASIC, Verdict.REFUSED, Verdict.FAILED)
_WORTH = 1e-3  # of the strict bound: smaller errors may change by any factor


class Row(Part):
    """The verdict on one operator in one type and mode, as a report or a table has it."""

    op: str
    dtype: str
    mode: str
    verdict: Verdict
    reason: str = ""
    case: str = ""
    routes: dict[str, Count]
    nmse: float  # infinity and NaN are text
    bound: float

    @property
    def name(self) -> str:
        """What tells a row from all others."""
        return f"{self.op} {self.dtype} {self.mode}"


Key = tuple[str, str, str]
Rows = Mapping[Key, Row]


def compare(before: Rows, after: Rows, factor: float) -> Iterator[Change]:
    """Compare each operator in each type and mode."""
    for key in sorted(before.keys() | after.keys()):
        op, name = key[0], " ".join(key)
        was, now = before.get(key), after.get(key)
        there, here = _tested(was), _tested(now)
        if there and not here:
            reason = now.reason if now else "not in the report"
            yield Change(Subject.OPERATOR, Direction.WORSE, name, _verdict(was), _verdict(now), reason, op)
        elif here and not there:
            yield Change(Subject.OPERATOR, Direction.BETTER, name, _verdict(was), _verdict(now), "", op)
        elif was is not None and now is not None and there and here:
            yield from _values(was, now, factor)


def _tested(row: Row | None) -> bool:
    return row is not None and row.verdict is not Verdict.UNTESTED


def _verdict(row: Row | None) -> str:
    return row.verdict.value if row else "absent"


def _values(was: Row, now: Row, factor: float) -> Iterator[Change]:
    routes = set(was.routes), set(now.routes)
    if routes[0] != routes[1]:
        yield _routes(was, now)
    if was.verdict is not now.verdict:
        worse = _RANKS.index(now.verdict) > _RANKS.index(was.verdict)
        direction = Direction.WORSE if worse else Direction.BETTER
        verdicts = was.verdict.value, now.verdict.value
        yield Change(Subject.ACCURACY, direction, now.name, *verdicts, now.reason or now.case, now.op)
    elif _differs(was, now, factor):
        # A NaN is worse than any number.
        worse = math.isnan(now.nmse) or now.nmse > was.nmse
        direction = Direction.WORSE if worse else Direction.BETTER
        texts = (f"NMSE {was.nmse:.2g}", f"NMSE {now.nmse:.2g}")
        yield Change(Subject.ACCURACY, direction, now.name, *texts, f"the strict bound is {now.bound:.2g}", now.op)


def _differs(was: Row, now: Row, factor: float) -> bool:
    """Tell whether errors differ by a factor, where they matter beside the bound."""
    if math.isnan(was.nmse) or math.isnan(now.nmse):
        return math.isnan(was.nmse) != math.isnan(now.nmse)
    low, high = sorted((was.nmse, now.nmse))
    bound = max((row.bound for row in (was, now) if not math.isnan(row.bound)), default=0.0)
    return high > _WORTH * bound and high > factor**2 * low


def unjudged(before: Rows, after: Rows) -> Iterator[str]:
    """Tell of errors that are NaN in both: whether they grew nobody knows."""
    for key in sorted(before.keys() & after.keys()):
        if all(_tested(rows[key]) and math.isnan(rows[key].nmse) for rows in (before, after)):
            yield f"{before[key].name}: its NMSE is NaN before and after"


def _routes(was: Row, now: Row) -> Change:
    before, after = (max(map(rank, row.routes), default=0) for row in (was, now))
    direction = Direction.WORSE if after > before else Direction.BETTER if after < before else Direction.OTHER
    shown = [", ".join(sorted(row.routes, key=rank)) for row in (was, now)]
    return Change(Subject.ROUTE, direction, now.name, shown[0], shown[1], "", now.op)


def keyed(rows: Iterable[Row]) -> dict[Key, Row]:
    """Return rows by operator, type and mode."""
    return {(row.op, row.dtype, row.mode): row for row in rows}
