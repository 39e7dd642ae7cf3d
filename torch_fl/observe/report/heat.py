# SPDX-License-Identifier: Apache-2.0
"""The fallback heat map: where (rows) which operators (columns) left the chip, and the colours of their cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import sqrt

from torch_fl.observe.report.data import Row

PLACES, OPERATORS = 24, 12  # the most that are shown; the rest is summed up
OTHERS = "all others"
# Stops of cividis, which reads the same with and without colour vision (Nunez, Anderton, Renslow 2018).
_STOPS = ((0, 34, 78), (53, 69, 108), (102, 105, 112), (148, 142, 119), (200, 184, 102), (254, 232, 56))


@dataclass(frozen=True)
class Cell:
    """One operator in one place. ``heat`` is 0 to 1; colours are for light and dark pages."""

    cost_ns: int
    calls: int
    heat: float

    @property
    def light(self) -> str:
        """Costly is dark on a light page."""
        return colour(1 - self.heat)

    @property
    def dark(self) -> str:
        """Costly is bright on a dark page."""
        return colour(self.heat)

    @property
    def light_ink(self) -> str:
        """The text's colour on `light`."""
        return ink(1 - self.heat)

    @property
    def dark_ink(self) -> str:
        """The text's colour on `dark`."""
        return ink(self.heat)


@dataclass(frozen=True)
class HeatMap:
    """A grid; where nothing happened a cell is None."""

    operators: list[str]
    places: list[str]
    cells: list[list[Cell | None]]
    totals: list[int]  # of each place
    most_ns: int


def heat_map(rows: Iterable[Row], place: Callable[[Row], str]) -> HeatMap:
    """Sum costs up by place and operator, the costliest first."""
    rows = list(rows)
    operators = _first(rows, lambda row: row.op, OPERATORS)
    places = _first(rows, place, PLACES)
    sums: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        where = place(row) if place(row) in places else OTHERS
        op = row.op if row.op in operators else OTHERS
        total = sums.setdefault((where, op), [0, 0])
        total[0] += row.cost_ns
        total[1] += row.calls
    columns = [*operators, *([OTHERS] if any(op == OTHERS for _, op in sums) else [])]
    lines = [*places, *([OTHERS] if any(where == OTHERS for where, _ in sums) else [])]
    most = max((cost for cost, _ in sums.values()), default=0)
    cells = [[_cell(sums.get((where, op)), most) for op in columns] for where in lines]
    totals = [sum(cell.cost_ns for cell in line if cell is not None) for line in cells]
    return HeatMap(columns, lines, cells, totals, most)


def _first(rows: Iterable[Row], name: Callable[[Row], str], most: int) -> list[str]:
    costs: dict[str, int] = {}
    for row in rows:
        costs[name(row)] = costs.get(name(row), 0) + row.cost_ns
    return sorted(costs, key=lambda key: (-costs[key], key))[:most]


def _cell(found: list[int] | None, most: int) -> Cell | None:
    """The root of the share, so that small costs can be told apart, too."""
    return None if found is None else Cell(found[0], found[1], sqrt(found[0] / most) if most else 0.0)


def colour(share: float) -> str:
    """Return a colour of the scale, 0 to 1."""
    return "#{:02x}{:02x}{:02x}".format(*_mix(share))


def _mix(share: float) -> tuple[int, int, int]:
    position = min(1.0, max(0.0, share)) * (len(_STOPS) - 1)
    i = min(int(position), len(_STOPS) - 2)
    red, green, blue = (round(a + (b - a) * (position - i)) for a, b in zip(_STOPS[i], _STOPS[i + 1], strict=True))
    return red, green, blue


def ink(share: float) -> str:
    """Return black or white, whichever reads better on a colour of the scale (WCAG's contrast)."""
    linear = ((c / 255 / 12.92) if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in _mix(share))
    luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "#000" if luminance > 0.179 else "#fff"


def gradient(reverse: bool) -> str:
    """Return the scale as stops of a CSS gradient, from cheap to costly."""
    shares = [i / 10 for i in range(11)]
    return ", ".join(colour(1 - share if reverse else share) for share in shares)
