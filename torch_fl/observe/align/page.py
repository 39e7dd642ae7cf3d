# SPDX-License-Identifier: Apache-2.0
"""The page of an alignment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import groupby
from operator import itemgetter

import torch

from torch_fl.conformance.bounds import unit_roundoff
from torch_fl.observe import pages
from torch_fl.observe.align.console import judged, numbers, rtol
from torch_fl.observe.align.judge import LADDER, Verdict
from torch_fl.observe.align.result import AlignReport

LEAST, MOST = -9.0, 1.0  # powers of ten of the scale; what is smaller stands at its left end
_ROUNDOFFS = (("float32", torch.float32), ("float16", torch.float16), ("bfloat16", torch.bfloat16))
WORDS = {
    Verdict.EXACT: "equal to the CPU's result to the bit",
    Verdict.NOISE: "within what rounding and the order of sums explain",
    Verdict.RANDOM: "random numbers of the same distribution",
    Verdict.UNJUDGED: "nothing to compare with",
    Verdict.INACCURATE: "more than rounding explains, though near",
    Verdict.WRONG: "a wrong result",
}


@dataclass(frozen=True)
class Tick:
    """A mark of the scale."""

    at: float  # per cent of its width
    text: str


def render(report: AlignReport) -> str:
    """Return the page."""
    met = {op.verdict for op in report.ops} | {layer.verdict for layer in report.layers}
    filters = (place, judged, numbers, rtol, root, power)
    return pages.template("torch_fl.observe.align", "align.html", *filters).render(
        report=report,
        words={verdict: WORDS[verdict] for verdict in Verdict if verdict in met},
        ticks=[Tick(_share(10.0**p), f"10{_raised(p)}") for p in range(int(LEAST) + 1, int(MOST), 2)],
        roundoffs=[Tick(_share(unit_roundoff(dtype)), name) for name, dtype in _ROUNDOFFS],
        environment={name: list(facts) for name, facts in groupby(report.environment, key=itemgetter("section"))},
        loosest=LADDER[0],
        created=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )


def place(error: float) -> float:
    """Return where an error stands on the scale, in per cent."""
    return round(_share(error), 2)


def _share(error: float) -> float:
    if error <= 0:
        return 0.0
    power_of_ten = math.log10(error) if math.isfinite(error) else MOST
    return 100 * min(1.0, max(0.0, (power_of_ten - LEAST) / (MOST - LEAST)))


def root(nmse: float) -> float:
    """Return the relative error of a normalised mean squared error."""
    return math.sqrt(nmse) if math.isfinite(nmse) else math.inf


def power(value: float) -> str:
    """Return a number as a person writes it: 1.2·10⁻⁷."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return "∞"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}·10{_raised(int(exponent))}"


def _raised(exponent: int) -> str:
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
