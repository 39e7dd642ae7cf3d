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
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MOST_FLIPS = 4096  # beyond, that many are drawn
_SCALE_FLOOR = 0.003  # of a standard error: 0.3 %, below what clocks and caches allow

Differences = Sequence[Sequence[float]]  # of each case, of each pair


@dataclass(frozen=True)
class Tested:
    """What the test says of one case."""

    difference: float  # median over the pairs
    p: float  # adjusted for all cases
    detectable: float  # the least mean difference that would have been significant


def smallest_p(pairs: int) -> float:
    """Return the smallest p that so many pairs can give."""
    return 1.0 / min(1 << max(0, pairs - 1), MOST_FLIPS)


def flips(pairs: int) -> list[tuple[int, ...]]:
    """Return signs for the pairs, all alike first; the other half, with all signs turned, gives the same statistics."""
    if 1 << (pairs - 1) <= MOST_FLIPS:
        return [(1, *rest) for rest in itertools.product((1, -1), repeat=pairs - 1)]
    draw = random.Random(pairs)
    return [(1,) * pairs] + [tuple(draw.choice((1, -1)) for _ in range(pairs)) for _ in range(MOST_FLIPS - 1)]


def test(differences: Differences, alpha: float) -> list[Tested]:
    """Test all cases together. Each has a difference for each pair."""
    if not differences or not differences[0]:
        return []
    pairs = len(differences[0])
    floor = _floor(differences, pairs)
    signs = flips(pairs)
    squares = [sum(value * value for value in row) for row in differences]
    highest = [0.0] * len(signs)
    own = []
    for row, square in zip(differences, squares, strict=True):
        for i, flip in enumerate(signs):
            t = _statistic(sum(a * b for a, b in zip(flip, row, strict=True)), square, pairs, floor)
            highest[i] = max(highest[i], t)
            if i == 0:
                own.append(t)
    ordered = sorted(highest)
    critical = ordered[-max(1, int(alpha * len(ordered)))]
    return [
        Tested(
            statistics.median(row), _share_at_least(ordered, t), critical * (_error(sum(row), square, pairs) + floor)
        )
        for row, square, t in zip(differences, squares, own, strict=True)
    ]


def _floor(differences: Differences, pairs: int) -> float:
    """Return what is added to each case's standard error, so that one that is small by chance makes no discovery.

    It is made of what flips do not change.
    """
    scales = [math.sqrt(sum(value * value for value in row) / pairs) for row in differences]
    return statistics.median(scales) / math.sqrt(pairs) + _SCALE_FLOOR


def _statistic(total: float, square: float, pairs: int, floor: float) -> float:
    return abs(total) / pairs / (_error(total, square, pairs) + floor)


def _error(total: float, square: float, pairs: int) -> float:
    """Return the standard error of a mean, from the sum and the sum of squares."""
    if pairs < 2:
        return 0.0
    variance = max(0.0, square - total * total / pairs) / (pairs - 1)
    return math.sqrt(variance / pairs)


def _share_at_least(ordered: Sequence[float], value: float) -> float:
    return sum(other >= value * (1 - 1e-12) for other in ordered) / len(ordered)
