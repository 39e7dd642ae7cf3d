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
from torch_fl.observe.baseline import results
from torch_fl.observe.baseline.parsing import BadResults, Count, Part, checked, load_json, shown
from torch_fl.observe.baseline.results import Results, Route
from torch_fl.observe.compare import accuracy
from torch_fl.observe.compare.accuracy import Row


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
# One of these keys tells of which command a file is.
_KEYS = {
    "format": Kind.BASELINE,
    "cases": Kind.BASELINE,
    "content": Kind.CONFORMANCE,
    "sha256": Kind.CONFORMANCE,
    "groups": Kind.REPORT,
    "fallbacks": Kind.REPORT,
    "candidates": Kind.REPORT,
}
_Option = str | bool | int | float | None


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
        value = load_json(file)
        kind = next((_KEYS[key] for key in value if key in _KEYS), None) if isinstance(value, dict) else None
        if kind is Kind.CONFORMANCE:
            return _conformance(file)
        if kind is Kind.REPORT:
            return _report(file, value)
        if kind is Kind.BASELINE:
            return of_baseline(results.parse(value, file), file)
    except (BadResults, report.BadReport) as error:
        raise BadComparison(str(error)) from None
    commands = ", ".join(f"`{command}`" for command in _COMMANDS.values())
    raise BadComparison(f"{file}: expected what one of {commands} writes, found {shown(value)} without its keys")


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
                f"{before.file} is about {name} {before.options[name]!r}, {after.file} about "
                f"{after.options[name]!r}: cases of one name are not the same"
            )
    for name in ("samples", "sample_seconds", "repeats", "processes"):
        was, now = before.options[name], after.options[name]
        if was != now:
            raise BadComparison(
                f"{before.file} was measured with {name} {was}, {after.file} with {now}: their times are not "
                "comparable; run `torch-fl bench` with the same options"
            )


def _model(options: Mapping[str, Any]) -> str:
    return str(options["model"]).rpartition("/")[2]


def _is_quick(options: Mapping[str, Any]) -> bool:
    return "quick" in str(options["set"]).split(",")


def of_baseline(found: Results, file: Path) -> Loaded:
    """Return results as what was read from a file."""
    options, versions = found.options.model_dump(), found.environment.versions
    return Loaded(file, Kind.BASELINE, found.chip, found, options=options, versions=versions)


class _Conformance(Part):
    """The content of a report of ``torch-fl check``."""

    chip: str
    options: dict[str, _Option | tuple[_Option, ...]]
    versions: dict[str, str]
    operators: tuple[Row, ...]


def _conformance(file: Path) -> Loaded:
    content = checked(_Conformance, report.verify(file), f"{file}: content", _COMMANDS[Kind.CONFORMANCE])
    return Loaded(
        file,
        Kind.CONFORMANCE,
        content.chip,
        rows=accuracy.keyed(content.operators),
        options=content.options,
        versions=content.versions,
    )


def _table(file: Path) -> Loaded:
    """Read what ``torch-fl check --csv`` wrote."""
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            missing = [name for name in report.CSV_COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise BadComparison(f"{file}: no table of `torch-fl check --csv`: it has no column {missing[0]!r}")
            rows = [_table_row(f"{file}, line {reader.line_num}", row) for row in reader]
    except OSError as error:
        raise BadComparison(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadComparison(f"{file}: not a table: not even text") from None
    except csv.Error as error:
        raise BadComparison(f"{file}: not a table: {error}") from None
    return Loaded(file, Kind.CONFORMANCE, "", rows=accuracy.keyed(rows))


def _table_row(place: str, row: Mapping[str, Any]) -> Row:
    routes: dict[str, Any] = {}
    for pair in str(row["routes"] or "").split():
        route, _, count = pair.rpartition(":")
        routes[route] = int(count) if count.isdecimal() and len(count) < 20 else count
    return checked(Row, {**row, "routes": routes}, place, "torch-fl check --csv")


class _Group(Part):
    """Calls that are alike, as ``torch-fl report`` tells of them."""

    op: str
    chip: str
    route: str
    reason: str
    calls: Count


class _Report(Part):
    """The costliest groups of calls, and those that left the chip."""

    groups: tuple[_Group, ...]
    fallbacks: tuple[_Group, ...]


def _report(file: Path, value: Mapping[str, Any]) -> Loaded:
    """Take the routes of a report's data."""
    command, version = _COMMANDS[Kind.REPORT], value.get("version")
    if version != _REPORT_VERSION:
        raise BadComparison(
            f"{file}: written by another version of torch-fl: expected a report of version {_REPORT_VERSION}, found "
            f"{shown(version)}; run `{command}` anew"
        )
    found = checked(_Report, value, str(file), command)
    # What left the chip stands in both lists; copies are no calls that could have taken another route.
    rows = [*(row for row in found.groups if row.route not in ("host", "copy")), *found.fallbacks]
    routes = tuple(Route(op=row.op, route=row.route, reason=row.reason, calls=row.calls) for row in rows)
    chips = {row.chip for row in rows}
    return Loaded(file, Kind.REPORT, chips.pop() if len(chips) == 1 else "", routes=routes)
