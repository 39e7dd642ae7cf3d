# SPDX-License-Identifier: Apache-2.0
"""What changed between two runs: operators, routes, accuracy, speed. ``compare(before, after)``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch_fl._words import counted
from torch_fl.observe.baseline.results import Results
from torch_fl.observe.compare import accuracy, files, operators
from torch_fl.observe.compare import speed as speeds
from torch_fl.observe.compare.files import BadComparison, Kind, Loaded
from torch_fl.observe.compare.options import Normalize, Options
from torch_fl.observe.compare.result import Change, Comparison, Direction, Speed, SpeedRow, Subject

__all__ = [
    "BadComparison",
    "Change",
    "Comparison",
    "Direction",
    "Normalize",
    "Options",
    "Speed",
    "SpeedRow",
    "Subject",
    "compare",
]

File = Results | Path | str


def compare(before: File, after: File, options: Options | None = None) -> Comparison:
    """Compare two results of `baseline.run`, or two files of one of the commands bench, check and report.

    Raises `BadComparison` for files that are none, or that have nothing to say to each other.
    """
    chosen = options or Options()
    first, then = _loaded(before, "before"), _loaded(after, "after")
    files.check_pair(first, then)
    if first.baseline is not None and then.baseline is not None:
        return _baselines(first, then, first.baseline, then.baseline, chosen)
    if first.kind is Kind.CONFORMANCE:
        changes = tuple(accuracy.compare(first.rows, then.rows, chosen.min_error))
        unjudged = tuple(accuracy.unjudged(first.rows, then.rows))
        shared = len(first.rows.keys() & then.rows.keys())
        return _comparison(first, then, changes, {"operators with types": shared}, unjudged=unjudged)
    taken = operators.taken(first.routes), operators.taken(then.routes)
    shared = len(taken[0].keys() & taken[1].keys())
    return _comparison(first, then, tuple(operators.changed_routes(*taken)), {"operators": shared})


def _loaded(given: File, name: str) -> Loaded:
    if isinstance(given, Results):
        return files.of_baseline(given, Path(name))
    return files.load(Path(given))


def _baselines(first: Loaded, then: Loaded, before: Results, after: Results, options: Options) -> Comparison:
    names = [{case.name for case in results.cases} for results in (before, after)]
    if names[0].isdisjoint(names[1]) and not operators.gone(before, after):
        raise BadComparison(f"{then.file} has no case that {first.file} has; run `torch-fl bench` with the same --set")
    try:
        found = speeds.compare(before, after, options)
    except speeds.NoPairs as error:
        raise BadComparison(f"{then.file}: {error}; run `torch-fl bench` anew") from None
    changes = [
        *operators.registered(before.registered, after.registered),
        *operators.routes(before, after),
        *operators.failures(before, after),
        *_speed_changes(found),
    ]
    compared = {"registered operators": len(after.registered), "cases": len(names[0] & names[1])}
    notes = _only(names[0].difference(operators.gone(before, after)), names[1])
    unjudged = (*operators.without_times(before, after), *_too_few(found))
    return _comparison(first, then, tuple(changes), compared, notes, found, unjudged)


def _too_few(speed: Speed | None) -> Iterator[str]:
    """Tell which cases have too few pairs, where others have enough."""
    if speed is not None and speed.tested:
        for row in speed.unjudged:
            yield f"{row.name}: {counted(row.pairs, 'pair')} of times, {speed.pairs_needed} needed for this alpha"


def _speed_changes(speed: Speed | None) -> list[Change]:
    if speed is None:
        return []
    found = [_slower(row.name, row.ratio, f"p {row.p:.2g}", row.op) for row in speed.rows if row.changed]
    if speed.common_changed:
        detail = f"p {speed.common_p:.2g}; the CPU's own loop {speed.machine:.2f} times as long"
        found.append(_slower("all cases together", speed.common, detail, ""))
    return found


def _slower(name: str, ratio: float, detail: str, op: str) -> Change:
    direction = Direction.WORSE if ratio > 1 else Direction.BETTER
    words = f"{ratio - 1:+.1%} time"
    return Change(Subject.SPEED, direction, name, "", words, detail, op)


def _only(before: set[str], after: set[str]) -> list[str]:
    """Say which cases have no counterpart."""
    parts = (("before", before - after), ("after", after - before))
    return [f"only {word}: {', '.join(sorted(names))}" for word, names in parts if names]


def _comparison(
    first: Loaded,
    then: Loaded,
    changes: tuple[Change, ...],
    compared: dict[str, int],
    notes: Iterable[str] = (),
    speed: Speed | None = None,
    unjudged: tuple[str, ...] = (),
) -> Comparison:
    return Comparison(
        chip=then.chip or first.chip,
        kind=then.kind.value,
        before=str(first.file),
        after=str(then.file),
        changes=changes,
        notes=(*_circumstances(first, then), *notes),
        unjudged=unjudged,
        speed=speed,
        compared=compared,
    )


def _circumstances(first: Loaded, then: Loaded) -> list[str]:
    """Tell in what the two runs differ: versions, threads, options."""
    found = [*_differing("version of ", first.versions, then.versions), *_differing("", first.options, then.options)]
    if first.baseline is not None and then.baseline is not None:
        places = [side.environment.model_dump() for side in (first.baseline, then.baseline)]
        for key in ("threads", "settings", "variables"):
            found += _differing(f"{key}: ", *(place[key] for place in places))
        found += _differing("", *({"CPU": place["cpu"]} for place in places))
        found += _differing("device: ", *({"name": side.device.name} for side in (first.baseline, then.baseline)))
    return found


def _differing(what: str, first: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    keys = [key for key in dict.fromkeys([*first, *then]) if first.get(key) != then.get(key)]
    return [f"{what}{key}: {first.get(key, 'none')} -> {then.get(key, 'none')}" for key in keys]
