# SPDX-License-Identifier: Apache-2.0
"""Operators that a chip has no longer, or anew, and routes that calls take instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from torch_fl.observe.baseline.results import NO_TIMES, TOO_SHORT, Registered, Results, Route
from torch_fl.observe.compare.result import Change, Direction, Subject

# The best first. What is composed or decomposed runs on the chip, in more steps.
RANKS = ("kernel", "override", "portable", "composite", "decomposed", "host", "denied")


def rank(route: str) -> int:
    """Return how far down a route is; unknown ones are last."""
    return RANKS.index(route) if route in RANKS else len(RANKS)


def registered(before: Iterable[Registered], after: Iterable[Registered]) -> Iterator[Change]:
    """Compare what the chip registers: operators, and the types of each."""
    first, then = ({(row.op, row.route): set(row.dtypes) for row in rows} for rows in (before, after))
    for op, route in sorted(first.keys() | then.keys()):
        was, now = first.get((op, route)), then.get((op, route))
        if was == now:
            continue
        if now is None:
            yield Change(Subject.OPERATOR, Direction.WORSE, op, route, "gone", "the chip has it no longer", op)
        elif was is None:
            yield Change(Subject.OPERATOR, Direction.BETTER, op, "none", route, "the chip has it now", op)
        else:
            yield from _types(op, route, was, now)


def _types(op: str, route: str, was: set[str], now: set[str]) -> Iterator[Change]:
    """No types mean any."""
    lost, gained = (was - now, now - was) if was and now else (set(), set())
    if lost or (now and not was):
        words = " ".join(sorted(lost)) or "some: it took any"
        yield Change(Subject.OPERATOR, Direction.WORSE, op, f"{route}, {len(was) or 'any'} types", words, "lost", op)
    if gained or (was and not now):
        words = " ".join(sorted(gained)) or "any"
        yield Change(Subject.OPERATOR, Direction.BETTER, op, f"{route}, {len(was)} types", words, "gained", op)


def routes(before: Results, after: Results) -> Iterator[Change]:
    """Compare, for each operator that cases of both runs called, the routes that its calls took."""
    shared = {case.name for case in before.cases} & {case.name for case in after.cases}
    first, then = (
        taken(route for case in results.cases if case.name in shared for route in case.routes)
        for results in (before, after)
    )
    yield from changed_routes(first, then)


def taken(rows: Iterable[Route]) -> dict[str, dict[str, tuple[int, str]]]:
    """Return, for each operator, the calls of each route and a reason."""
    found: dict[str, dict[str, tuple[int, str]]] = {}
    for row in rows:
        calls, reason = found.setdefault(row.op, {}).get(row.route, (0, ""))
        found[row.op][row.route] = calls + row.calls, reason or row.reason
    return found


_Taken = Mapping[str, Mapping[str, tuple[int, str]]]


def changed_routes(first: _Taken, then: _Taken) -> Iterator[Change]:
    """Compare the routes of each operator that was called in both."""
    for op in sorted(first.keys() | then.keys()):
        was, now = first.get(op, {}), then.get(op, {})
        if set(was) != set(now) and was and now:
            yield _moved(op, was, now)
        elif was and now and _off(was) != _off(now):
            direction = Direction.WORSE if _off(now) > _off(was) else Direction.BETTER
            yield Change(Subject.ROUTE, direction, op, _off_words(was), _off_words(now), _reason(now), op)
        elif not was and any(rank(route) >= rank("host") for route in now):
            yield Change(Subject.ROUTE, Direction.WORSE, op, "not called", _shown(now), _reason(now), op)


def _off(side: Mapping[str, tuple[int, str]]) -> Fraction:
    """Which share of the calls left the chip."""
    calls = sum(count for count, _ in side.values())
    off = sum(count for route, (count, _) in side.items() if rank(route) >= rank("host"))
    return Fraction(off, max(1, calls))


def _off_words(side: Mapping[str, tuple[int, str]]) -> str:
    share = _off(side)
    return f"{float(share):.0%} of the calls off the chip"


def _moved(op: str, was: Mapping[str, tuple[int, str]], now: Mapping[str, tuple[int, str]]) -> Change:
    before, after = (max(map(rank, side)) for side in (was, now))
    if before == after:  # the worst is the same: the best decides
        before, after = (min(map(rank, side)) for side in (was, now))
    direction = Direction.WORSE if after > before else Direction.BETTER if after < before else Direction.OTHER
    return Change(Subject.ROUTE, direction, op, _shown(was), _shown(now), _reason(now), op)


def _shown(side: Mapping[str, tuple[int, str]]) -> str:
    return ", ".join(sorted(side, key=rank))


def _reason(side: Mapping[str, tuple[int, str]]) -> str:
    return side[max(side, key=rank)][1]


def failures(before: Results, after: Results) -> Iterator[Change]:
    """Compare which cases ran at all."""
    first, then = ({case.name: case for case in results.cases} for results in (before, after))
    for name in gone(before, after):
        was = "failed" if first[name].error else "ran"
        yield Change(Subject.CASE, Direction.WORSE, name, was, "gone", "there is no such case", first[name].op)
    for name in sorted(first.keys() & then.keys()):
        old, new = first[name].error, then[name].error
        if bool(old) != bool(new):
            direction = Direction.WORSE if new else Direction.BETTER
            texts = ("failed" if old else "ran", "failed" if new else "ran")
            yield Change(Subject.CASE, direction, name, *texts, new or old, then[name].op)


def without_times(before: Results, after: Results) -> Iterator[str]:
    """Tell of cases that did not fail, and yet have no times to compare in one of the runs."""
    runs = [{case.name: case for case in results.cases if not case.error} for results in (before, after)]
    for name in sorted(runs[0].keys() & runs[1].keys()):
        for why in (NO_TIMES, TOO_SHORT):
            sides = [word for word, of in zip(("before", "after"), runs, strict=True) if of[name].untimed == why]
            if sides:
                yield f"{name}: {why} {' and '.join(sides)}"


def gone(before: Results, after: Results) -> list[str]:
    """Return the cases that the same set had before."""
    if before.options.set != after.options.set:
        return []
    names = [{case.name for case in results.cases} for results in (before, after)]
    return sorted(names[0] - names[1])
