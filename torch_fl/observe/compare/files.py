# SPDX-License-Identifier: Apache-2.0
"""Files that can be compared: results of ``bench``, reports and tables of ``check``, pages' data of ``report``."""

from __future__ import annotations

import csv
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_fl.conformance import report
from torch_fl.conformance.verdict import Row
from torch_fl.observe.baseline import results
from torch_fl.observe.baseline.results import BadResults, Results, Route
from torch_fl.observe.compare import accuracy


class Kind(str, enum.Enum):
    """What a file holds."""

    BASELINE = "baseline"  # torch-fl bench
    CONFORMANCE = "conformance"  # torch-fl check --report, --csv
    REPORT = "report"  # torch-fl report --json


_REPORT_VERSION = 1
_COMMANDS = {
    Kind.BASELINE: "torch-fl bench -o",
    Kind.CONFORMANCE: "torch-fl check --report",
    Kind.REPORT: "torch-fl report --json",
}


class BadComparison(ValueError):
    """Files that cannot be compared, and why."""


@dataclass(frozen=True)
class Loaded:
    """One file, read and checked."""

    file: Path
    kind: Kind
    chip: str  # "": the file does not say
    baseline: Results | None = None
    rows: dict[accuracy.Key, Row] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


def load(file: Path) -> Loaded:
    """Read a file of any kind; raises BadComparison."""
    try:
        if file.suffix == ".csv":
            return _table(file)
        value = results.load_json(file)
        if isinstance(value, dict) and set(value) == {"content", "sha256"}:
            return _conformance(file)
        if isinstance(value, dict) and _is_report(value):
            return _report(file, value)
        return _baseline(results.parse(value, file), file)
    except (BadResults, report.BadReport) as error:
        raise BadComparison(str(error)) from None


def check_pair(before: Loaded, after: Loaded) -> None:
    """Refuse two files that have nothing to say to each other."""
    if before.kind is not after.kind:
        kinds = " and ".join(f"{loaded.file} (of `{_COMMANDS[loaded.kind]}`)" for loaded in (before, after))
        raise BadComparison(f"{kinds} are of different kinds: compare files of one command")
    if before.chip and after.chip and before.chip != after.chip:
        raise BadComparison(
            f"{before.file} is about the chip {before.chip!r}, {after.file} about {after.chip!r}: "
            "a comparison is between two builds or drivers of one chip"
        )
    if before.baseline and after.baseline:
        _check_effort(before, after)


def _check_effort(before: Loaded, after: Loaded) -> None:
    """The best of many samples is better than the best of few; and a name means one size and one model."""
    for name, what in (("model", _model), ("set", _is_quick)):
        if what(before.options) != what(after.options):
            raise BadComparison(
                f"{before.file} is about {name} {before.options.get(name)!r}, {after.file} about "
                f"{after.options.get(name)!r}: cases of one name are not the same"
            )
    for name in ("samples", "sample_seconds", "repeats", "processes"):
        was, now = before.options.get(name), after.options.get(name)
        if was != now:
            raise BadComparison(
                f"{before.file} was measured with {name} {was}, {after.file} with {now}: their times are not "
                "comparable; run `torch-fl bench` with the same options"
            )


def _model(options: Mapping[str, Any]) -> str:
    return str(options.get("model") or "").rpartition("/")[2]


def _is_quick(options: Mapping[str, Any]) -> bool:
    return "quick" in str(options.get("set") or "").split(",")


def _baseline(found: Results, file: Path) -> Loaded:
    versions = found.environment.get("versions", {})
    return Loaded(file, Kind.BASELINE, found.chip, found, options=found.options, versions=versions)


def _conformance(file: Path) -> Loaded:
    content = report.verify(file)
    try:
        rows = accuracy.rows(content["operators"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadComparison(f"{file}: operators: {type(error).__name__}: {error}") from None
    return Loaded(
        file, Kind.CONFORMANCE, content["chip"], rows=rows, options=content["options"], versions=content["versions"]
    )


def _table(file: Path) -> Loaded:
    """Read what ``torch-fl check --csv`` wrote."""
    try:
        with file.open(newline="") as stream:
            reader = csv.DictReader(stream)
            missing = [name for name in report.CSV_COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise BadComparison(f"{file}: no table of `torch-fl check --csv`: it has no column {missing[0]!r}")
            rows = [_table_row(file, number, row) for number, row in enumerate(reader, 2)]
    except OSError as error:
        raise BadComparison(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadComparison(f"{file}: not a table: not even text") from None
    return Loaded(file, Kind.CONFORMANCE, "", rows=accuracy.rows(rows))


def _table_row(file: Path, line: int, row: dict[str, str]) -> dict[str, Any]:
    try:
        routes = [pair.rpartition(":") for pair in row["routes"].split()]
        numbers = {name: float(row[name]) for name in ("nmse", "bound")}
        kept = {name: row[name] for name in ("op", "dtype", "mode", "verdict", "reason", "case")}
        values = {**kept, **numbers, "routes": {route: int(count) for route, _, count in routes}}
        Row.from_dict(dict(values))
        return values
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise BadComparison(f"{file}, line {line}: not as `torch-fl check --csv` writes it: {error}") from None


def _is_report(value: Mapping[str, Any]) -> bool:
    return {"version", "groups", "candidates", "fallbacks"} <= value.keys()


def _report(file: Path, value: Mapping[str, Any]) -> Loaded:
    """Take the routes of a report's data: of its costliest groups, and of what left the chip."""
    if value["version"] != _REPORT_VERSION:
        raise BadComparison(
            f"{file}: written by another version of torch-fl: expected a report of version {_REPORT_VERSION}, found "
            f"{value['version']!r}; run `torch-fl report --json` anew"
        )
    try:
        rows = [*value["groups"], *value["fallbacks"]]
        routes = tuple(
            Route(op=row["op"], route=row["route"], reason=row["reason"], calls=row["calls"]) for row in rows
        )
        chips = {str(row["chip"]) for row in rows}
    except (KeyError, TypeError, ValueError) as error:
        raise BadComparison(f"{file}: groups, fallbacks: {type(error).__name__}: {error}") from None
    return Loaded(file, Kind.REPORT, chips.pop() if len(chips) == 1 else "", routes=routes)
