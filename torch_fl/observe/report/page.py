# SPDX-License-Identifier: Apache-2.0
"""The page of a report. Its scripts get their data as JSON."""

from __future__ import annotations

import json
import math
import re
from itertools import groupby
from typing import Any

from markupsafe import Markup

from torch_fl.observe import pages
from torch_fl.observe.report.data import Report, Row
from torch_fl.observe.report.heat import gradient, heat_map

FIRST = 5  # candidates that are shown without a click
ROUTES = {
    "kernel": ("the chip's own kernels", "#0072b2"),
    "portable": ("portable kernels, compiled for the chip", "#56b4e9"),
    "override": ("overrides of the chip's descriptor", "#009e73"),
    "copy": ("copies", "#f0b400"),
    "host": ("the host", "#d55e00"),
    "composite": ("made of other operators", "#b8b8b8"),
    "decomposed": ("made of other operators, by PyTorch's tables", "#8c8c8c"),
    "denied": ("refused", "#aa3377"),
}  # colours of Okabe and Ito, which people with any colour vision can tell apart


def render(report: Report) -> str:
    """Return the page."""
    return pages.template("torch_fl.observe.report", "report.html", time, ms, size, percent).render(
        report=report,
        created=report.created,
        maps=_maps(report),
        shown=report.candidates[:FIRST],
        more=report.candidates[FIRST:],
        best=max((candidate.gain_ns for candidate in report.candidates), default=0.0),
        routes=ROUTES,
        environment={name: list(facts) for name, facts in groupby(report.environment, key=lambda fact: fact.section)},
        present=sorted({row.route for row in report.groups}),
        scale={"light": Markup(gradient(reverse=True)), "dark": Markup(gradient(reverse=False))},
        data=script_json(_charts(report)),
        plotly=_plotly(),
    )


def _maps(report: Report) -> dict[str, Any]:
    """The heat maps; the one by layer only if layers are known."""
    maps = {"line": heat_map(report.fallbacks, _line)}
    if any(row.layer for row in report.fallbacks):
        return {"layer": heat_map(report.fallbacks, _layer), **maps}
    return maps


def _layer(row: Row) -> str:
    return (row.layer or "the model itself, or outside") + (" (backward)" if row.backward else "")


def _line(row: Row) -> str:
    return (row.site or "no line of Python") + (" (backward)" if row.backward else "")


def _charts(report: Report) -> dict[str, Any]:
    """What the scripts draw."""
    line = report.timeline
    bins = len(line.launching)
    return {
        "routes": [
            {"name": share.route, "calls": share.calls, "ms": share.time_ns / 1e6, "colour": _colour(share.route)}
            for share in sorted(report.routes, key=lambda share: _order(share.route))
        ],
        "timeline": {
            "ms": [round((i + 0.5) * line.bin_ns / 1e6, 6) for i in range(bins)],
            "end_ms": bins * line.bin_ns / 1e6,
            "lanes": [
                {"name": "starting kernels and copies", "shares": line.launching, "colour": _colour("kernel")},
                {"name": "operators on the host", "shares": line.host_operators, "colour": _colour("host")},
                {"name": "waiting for the device", "shares": line.waiting, "colour": "#cc79a7"},
            ],
            "devices": line.devices,
        },
        "memory": report.memory,
    }


def _order(route: str) -> int:
    return list(ROUTES).index(route) if route in ROUTES else len(ROUTES)


def _colour(route: str) -> str:
    return ROUTES[route][1] if route in ROUTES else "#777777"


def script_json(value: Any) -> Markup:
    """Return JSON that a script element can hold, whatever is in it."""
    text = json.dumps(value)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _plotly() -> Markup:
    from plotly.offline import get_plotlyjs

    return Markup(re.sub(r"</(script)", r"<\\/\1", get_plotlyjs(), flags=re.IGNORECASE))


# ---- Numbers for people --------------------------------------------------------------------------------------------


def time(ns: float) -> str:
    """Return a time with three digits and the unit that fits."""
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= factor:
            return f"{_digits(ns / factor)} {unit}"
    return f"{ns:.0f} ns" if ns else "0 ms"


def ms(ns: float) -> str:
    """Return milliseconds with three digits, for columns of them."""
    return _digits(ns / 1e6)


def _digits(value: float) -> str:
    if value == 0:
        return "0"
    if value < 0.0005:
        return "<0.001"
    decimals = max(0, 2 - math.floor(math.log10(value)))
    return f"{value:,.{min(decimals, 3)}f}"


def size(count: float) -> str:
    """Return a number of bytes with the unit that fits."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= factor:
            return f"{_digits(count / factor)} {unit}"
    return f"{count:.0f} B"


def percent(share: float) -> str:
    """Return a share; what is nearly all or nearly nothing never reads as all or nothing."""
    text = f"{100 * min(share, 0.999 if share < 1 else share):.1f}"
    shown = "<0.1" if 0 < share < 0.0005 else text.removesuffix(".0") if share in (0, 1) else text
    return shown + "\N{NO-BREAK SPACE}%"
