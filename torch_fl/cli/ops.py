# SPDX-License-Identifier: Apache-2.0
"""``torch-fl ops``: the operators that chips have, and those that a script misses."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from json import loads as parse
from pathlib import Path
from typing import Any

from torch_fl._exits import ended
from torch_fl._suggest import did_you_mean
from torch_fl._words import counted
from torch_fl.cli import output
from torch_fl.cli.errors import CommandError
from torch_fl.observe import running


def main(chip: str | None, word: str | None, json: bool) -> None:
    """Print a row for each operator, chip and route."""
    rows = sorted(_rows(chip, word), key=lambda row: (row["op"], row["chip"], row["route"]))
    if json:
        output.print_json(rows)
        return
    columns = ("operator", "chip", "route", "types")
    output.print_table(columns, ((row["op"], row["chip"], row["route"], " ".join(row["dtypes"])) for row in rows))
    for name in dict.fromkeys(row["chip"] for row in rows):
        of_chip = [row for row in rows if row["chip"] == name]
        print(f"{name}: {counted(len({row['op'] for row in of_chip}), 'operator')}, {_by_route(of_chip)}")
    if not rows:
        print("no operator" + (f" whose name contains {word!r}" if word else ""))


def _by_route(rows: list[dict[str, Any]]) -> str:
    routes = dict.fromkeys(row["route"] for row in rows)
    return ", ".join(f"{sum(row['route'] == route for row in rows)} by {route}" for route in routes)


def _rows(chip: str | None, word: str | None) -> Iterator[dict[str, Any]]:
    import torch_fl

    summary = torch_fl.registered_ops_summary()
    _check_chip(chip)
    for name, kernels in summary.chips.items():
        for kernel in kernels:
            if chip in (None, name) and (word is None or word in kernel.op):
                yield {"op": kernel.op, "chip": name, "route": kernel.route, "dtypes": list(kernel.dtypes)}


def _check_chip(chip: str | None) -> None:
    import torch_fl

    chips = sorted({device.chip for device in torch_fl.list_devices()})
    if chip is not None and chip not in chips:
        raise CommandError(f"no chip {chip!r}{did_you_mean(chip, chips)} (chips: {', '.join(chips) or 'none'})")


def missing(script: Path, chip: str | None, word: str | None, json: bool) -> int:
    """Run a script on the preferred device, or its own, and rank the operators that left the chip."""
    if not script.is_file():
        raise CommandError(f"{script}: no such file")
    _check_chip(chip)
    found, status = _summary_of(script, json)
    rows = [row for row in found["host"] if chip in (None, row["chip"]) and (word is None or word in row["name"])]
    failure = ended(status) if status else ""
    if json:
        output.print_json({"calls": found["calls"], "missing": rows, "failure": failure})
    else:
        _print_missing(rows, found["calls"])
    if failure:
        print(f"{script} ended with {failure}; what it did until then was counted", file=sys.stderr)
    return 1 if failure else 0


def _summary_of(script: Path, aside: bool) -> tuple[dict[str, Any], int]:
    """Run a script; return its summary and its exit status. What it prints goes aside, so that stdout is JSON alone."""
    with tempfile.TemporaryDirectory(prefix="torch-fl-") as folder:
        file = Path(folder) / "summary.json"
        wishes = running.Wishes(auto=True, summary=str(file), quiet=True)
        status = running.observed([str(script)], wishes, stdout=sys.stderr if aside else None)
        if not file.exists():
            raise CommandError(f"{script} cannot be counted: it did not load torch, or ended without Python's leave")
        return parse(file.read_text(encoding="utf-8")), status


def _print_missing(rows: list[dict[str, Any]], calls: int) -> None:
    columns: dict[str, Callable[[dict[str, Any]], object]] = {
        "operator": lambda row: row["name"],
        "chip": lambda row: row["chip"],
        "calls": lambda row: row["calls"],
        "ms": lambda row: f"{row['ns'] / 1e6:.2f}",
        "bytes": lambda row: f"{row['bytes']:,}",
        "reason": lambda row: row["reason"],
    }
    if rows:
        output.print_table(list(columns), ([cell(row) for cell in columns.values()] for row in rows))
    left = sum(row["calls"] for row in rows)
    print(f"{left} of {counted(calls, 'call')} left the chip" + (f", most of all {rows[0]['name']}" if rows else ""))
    if calls == 0:
        print("The script called no operator on a device.")
