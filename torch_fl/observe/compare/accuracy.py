# SPDX-License-Identifier: Apache-2.0
"""Conformance reports: operators that are checked no longer, verdicts, and errors that grew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch_fl.conformance.verdict import Row, Verdict
from torch_fl.observe.compare.result import Change, Direction, Subject

# The best first.
_RANKS = (Verdict.STRICT, Verdict.SUPPORTED, Verdict.BASIC, Verdict.REFUSED, Verdict.FAILED)
_WORTH = 1e-3  # of the strict bound: smaller errors may change by any factor

Key = tuple[str, str, str]
Rows = Mapping[Key, Row]


def compare(before: Rows, after: Rows, factor: float) -> Iterator[Change]:
    """Compare each operator in each type."""
    for key in sorted(before.keys() | after.keys()):
        op, dtype, _ = key
        was, now = before.get(key), after.get(key)
        there, here = _tested(was), _tested(now)
        if there and not here:
            reason = now.reason if now else "not in the report"
            yield Change(Subject.OPERATOR, Direction.WORSE, f"{op} {dtype}", _verdict(was), _verdict(now), reason, op)
        elif here and not there:
            yield Change(Subject.OPERATOR, Direction.BETTER, f"{op} {dtype}", _verdict(was), _verdict(now), "", op)
        elif was is not None and now is not None and there and here:
            yield from _values(was, now, factor)


def _tested(row: Row | None) -> bool:
    return row is not None and row.verdict is not Verdict.UNTESTED


def _verdict(row: Row | None) -> str:
    return row.verdict.value if row else "absent"


def _values(was: Row, now: Row, factor: float) -> Iterator[Change]:
    name = f"{was.op} {was.dtype}"
    routes = set(was.routes), set(now.routes)
    if routes[0] != routes[1]:
        yield _routes(was, now)
    if was.verdict is not now.verdict:
        worse = _RANKS.index(now.verdict) > _RANKS.index(was.verdict)
        direction = Direction.WORSE if worse else Direction.BETTER
        yield Change(
            Subject.ACCURACY, direction, name, was.verdict.value, now.verdict.value, now.reason or now.case, was.op
        )
        return
    low, high = sorted((was.nmse, now.nmse))
    if high > _WORTH * max(now.bound, was.bound) and high > factor**2 * low:
        direction = Direction.WORSE if now.nmse > was.nmse else Direction.BETTER
        texts = (f"NMSE {was.nmse:.2g}", f"NMSE {now.nmse:.2g}")
        yield Change(Subject.ACCURACY, direction, name, *texts, f"the strict bound is {now.bound:.2g}", was.op)


def _routes(was: Row, now: Row) -> Change:
    from torch_fl.observe.compare.operators import rank

    before, after = (max(map(rank, row.routes), default=0) for row in (was, now))
    direction = Direction.WORSE if after > before else Direction.BETTER if after < before else Direction.OTHER
    shown = [", ".join(sorted(row.routes, key=rank)) for row in (was, now)]
    return Change(Subject.ROUTE, direction, f"{was.op} {was.dtype}", shown[0], shown[1], "", was.op)


def rows(content: Iterable[Mapping[str, Any]]) -> dict[Key, Row]:
    """Return a report's rows by operator, type and mode."""
    found = [Row.from_dict({k: v for k, v in row.items() if k in Row.__dataclass_fields__}) for row in content]
    return {(row.op, row.dtype, row.mode): _numeric(row) for row in found}


def _numeric(row: Row) -> Row:
    """Infinity is text in a report."""
    row.nmse, row.bound = float(row.nmse), float(row.bound)
    return row
