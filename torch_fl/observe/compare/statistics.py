# SPDX-License-Identifier: Apache-2.0
"""The test: are paired differences of many cases more than noise?

Differences are of logarithms: a ratio that is constant is a constant difference. If nothing changed, before and after
are interchangeable within each pair, so that flipping the signs of a pair's differences, of all cases together, gives
an equally likely outcome. A case is significant if hardly any of these outcomes has, in any case at all, as large a
statistic: a sign-flip permutation test with the maximum statistic (Westfall and Young, 1993). It is exact, takes no
shape of the noise for granted, and keeps the chance of one or more false alarms among all cases below alpha, however
the cases depend on each other.
"""

from __future__ import annotations

import itertools
import math
import operator
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_FLIPS = 4096  # beyond, that many are drawn
_SCALE_FLOOR = 0.003  # of a standard error: 0.3 %, below what clocks and caches allow

# Of each case, of each pair that it has.
Differences = Sequence[Mapping[Any, float]]


@dataclass(frozen=True)
class Tested:
    """What the test says of one case."""

    difference: float  # median over the pairs
    p: float  # adjusted for all cases
    detectable: float  # the least mean difference that would have been significant


def smallest_p(pairs: int) -> float:
    """Return the smallest p that so many pairs can give."""
    return 1.0 / min(1 << max(0, pairs - 1), MOST_FLIPS)


def pairs_needed(alpha: float) -> int | None:
    """Return how many pairs can give a p of at most alpha; None: no number of them."""
    return next((pairs for pairs in range(1, MOST_FLIPS.bit_length() + 1) if smallest_p(pairs) <= alpha), None)


def flips(pairs: int) -> list[tuple[int, ...]]:
    """Return signs for the pairs, all alike first; the other half, with all signs turned, gives the same statistics."""
    if 1 << (pairs - 1) <= MOST_FLIPS:
        return [(1, *rest) for rest in itertools.product((1, -1), repeat=pairs - 1)]
    draw = random.Random(pairs)
    return [(1,) * pairs] + [tuple(draw.choice((1, -1)) for _ in range(pairs)) for _ in range(MOST_FLIPS - 1)]


def test(differences: Differences, alpha: float) -> list[Tested]:
    """Test all cases together. A flip turns the sign of a pair in every case that has it."""
    pairs = list(dict.fromkeys(pair for row in differences for pair in row))
    if not pairs:
        return []
    cases = _cases(differences)
    signs = flips(len(pairs))
    statistics_of = [case.under(pairs, signs) for case in cases]
    highest = sorted(map(max, zip(*statistics_of, strict=True)))
    critical = highest[-max(1, int(alpha * len(highest)))]
    return [
        Tested(case.median(), _share_at_least(highest, own[0]), critical * case.error(sum(case.row.values())))
        for case, own in zip(cases, statistics_of, strict=True)
    ]


@dataclass(frozen=True)
class _Case:
    """The differences of one case, and what its standard error is at least."""

    row: Mapping[Any, float]
    square: float  # sum of squares
    floor: float

    def under(self, pairs: Sequence[Any], signs: Sequence[Sequence[int]]) -> list[float]:
        """Return the statistic under each set of signs."""
        values = [self.row.get(pair, 0.0) for pair in pairs]
        totals = [sum(map(operator.mul, flip, values)) for flip in signs]
        return [abs(total) / len(self.row) / self.error(total) for total in totals]

    def error(self, total: float) -> float:
        """Return the standard error of a mean, from the sum; with the floor."""
        count = len(self.row)
        if count < 2:
            return self.floor
        variance = max(0.0, self.square - total * total / count) / (count - 1)
        return math.sqrt(variance / count) + self.floor

    def median(self) -> float:
        """Return the median difference."""
        return statistics.median(self.row.values())


def _cases(differences: Differences) -> list[_Case]:
    """Floors are made of what flips do not change, so that an error that is small by chance makes no discovery."""
    squares = [sum(value * value for value in row.values()) for row in differences]
    scale = statistics.median(math.sqrt(square / len(row)) for row, square in zip(differences, squares, strict=True))
    return [
        _Case(row, square, scale / math.sqrt(len(row)) + _SCALE_FLOOR)
        for row, square in zip(differences, squares, strict=True)
    ]


def _share_at_least(ordered: Sequence[float], value: float) -> float:
    return sum(other >= value * (1 - 1e-12) for other in ordered) / len(ordered)
