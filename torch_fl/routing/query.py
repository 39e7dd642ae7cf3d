# SPDX-License-Identifier: Apache-2.0
"""What would happen: for an operator, the routes on every chip and the reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch_fl import _load
from torch_fl.routing.counters import table
from torch_fl.routing.settings import _checked_op


@dataclass(frozen=True)
class OpQuery:
    """The answer of `query_op`: a row for each chip and overload. ``print()`` it for an explanation."""

    op: str
    rows: tuple[Mapping[str, Any], ...]

    def __str__(self) -> str:
        if not self.rows:
            return f"{self.op}: no chip is loaded"
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        columns = {name: _cell(name) for name in names}
        return f"{self.op}\n{table(self.rows, columns)}"


@dataclass(frozen=True)
class RegisteredOps:
    """The answer of `registered_ops_summary`: the kernels that each chip registers."""

    chips: Mapping[str, tuple[Mapping[str, Any], ...]]

    def ops(self, chip: str) -> list[str]:
        """Return the sorted names of the operators for which a chip has a kernel."""
        return sorted({row["op"] for row in self.chips[chip]})

    def __str__(self) -> str:
        if not self.chips:
            return "no chip registers a kernel"
        lines = []
        for chip in self.chips:
            names = self.ops(chip)
            lines.append(f"{chip}: {len(names)} operators\n  " + "\n  ".join(names))
        return "\n".join(lines)


def _cell(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: _text(row.get(name))


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def query_op(name: str) -> OpQuery:
    """Tell for every chip what would run ``name`` ("aten::softmax", "add.Tensor"), and why not the other routes."""
    op = _checked_op(name)
    return OpQuery(op, tuple(_load.core().query(op)))


def registered_ops_summary() -> RegisteredOps:
    """Return the kernels that every chip registers, by chip."""
    chips: dict[str, list[Mapping[str, Any]]] = {}
    for row in _load.core().registered_ops():
        chips.setdefault(row["chip"], []).append(row)
    return RegisteredOps({chip: tuple(rows) for chip, rows in chips.items()})


def clear_dispatch_cache() -> None:
    """Forget every routing decision made so far; the next call of each signature decides anew."""
    _load.core().clear_cache()
