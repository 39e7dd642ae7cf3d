# SPDX-License-Identifier: Apache-2.0
"""Speed: pairs of processes, what they have in common taken out, tested."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from torch_fl.observe.baseline.results import CaseResult, Results
from torch_fl.observe.compare.options import Normalize, Options
from torch_fl.observe.compare.result import Speed, SpeedRow
from torch_fl.observe.compare.statistics import smallest_p, test

_FEWEST_PROCESSES = 6  # below, rounds are the pairs
_FEWEST_CASES = 8  # whose median says something of the run as a whole
_Pair = tuple[int, int]  # process and round; -1: all rounds
_Best = dict[_Pair, float]  # logarithm of the best sample


def compare(before: Results, after: Results, options: Options) -> Speed | None:
    """Test the cases that ran in both; None if there is none."""
    shared = [(a, b) for a in before.cases for b in after.cases if a.name == b.name and _ran(a) and _ran(b)]
    if not shared:
        return None
    by_process = _processes(before) >= _FEWEST_PROCESSES <= _processes(after)
    mine = [(_best(a, by_process, _counts), _best(b, by_process, _counts)) for a, b in shared]
    pairs = sorted(set.intersection(*(set(a) & set(b) for a, b in mine)))
    differences = [[b[pair] - a[pair] for pair in pairs] for a, b in mine]
    common = [statistics.median(row[i] for row in differences) for i in range(len(pairs))]
    machine = _machine(shared, by_process, pairs)
    taken_out, words = _reference(options.normalize, common, machine, len(shared))
    rows = [[value - out for value, out in zip(row, taken_out, strict=True)] for row in differences]
    # All cases together, beyond what the machine did: a hypothesis of its own.
    beyond = [c - m for c, m in zip(common, machine, strict=True)]
    (together,) = test([beyond], options.alpha)
    found = test(rows, options.alpha)
    tested = smallest_p(len(pairs)) <= options.alpha
    return Speed(
        rows=tuple(
            _row(a, b, statistics.median(row), t.p, t.detectable, tested, options)
            for (a, b), row, t in zip(shared, rows, found, strict=True)
        ),
        test=_words(len(pairs), len(shared), by_process, options),
        normalized=words,
        common=math.exp(statistics.median(common)),
        machine=math.exp(statistics.median(machine)),
        common_changed=tested
        and len(shared) >= _FEWEST_CASES
        and together.p <= options.alpha
        and _large(together.difference, options.min_effect)
        and _large(statistics.median(common), options.min_effect)
        and together.difference * statistics.median(common) > 0,
        common_p=together.p,
        tested=tested,
    )


def _ran(case: CaseResult) -> bool:
    return bool(case.rounds) and not case.error


def _row(
    before: CaseResult, after: CaseResult, difference: float, p: float, detectable: float, tested: bool, o: Options
) -> SpeedRow:
    least = max(detectable, math.log1p(o.min_effect))
    return SpeedRow(
        name=after.name,
        op=after.op,
        before_ns=before.time().median,
        after_ns=after.time().median,
        ratio=math.exp(difference),
        p=p,
        detectable=math.exp(least),
        changed=tested and p <= o.alpha and _large(difference, o.min_effect),
    )


def _large(difference: float, least: float) -> bool:
    return abs(difference) > math.log1p(least)


def _processes(results: Results) -> int:
    return len({round.process for case in results.cases for round in case.rounds})


def _counts(case: CaseResult, index: int) -> Sequence[float]:
    """The samples of a round that count for this kind of case."""
    samples: Sequence[float] = getattr(case.rounds[index], case.series)
    return samples


def _best(case: CaseResult, by_process: bool, samples: Callable[[CaseResult, int], Sequence[float]]) -> _Best:
    """Return the logarithm of the best sample of each pair: neighbours on the machine only ever add time."""
    found: _Best = {}
    for index, round in enumerate(case.rounds):
        pair = (round.process, -1 if by_process else round.round)
        best = math.log(max(min(samples(case, index)), 1e-3))
        found[pair] = min(found.get(pair, best), best)
    return found


def _machine(shared: Sequence[tuple[CaseResult, CaseResult]], by_process: bool, pairs: Sequence[_Pair]) -> list[float]:
    """Return how much slower the CPU's own loop was after than before, in each pair."""

    def loops(case: CaseResult, index: int) -> Sequence[float]:
        return case.rounds[index].loop_ns

    mine = [(_best(a, by_process, loops), _best(b, by_process, loops)) for a, b in shared]
    return [statistics.median(b[pair] - a[pair] for a, b in mine) for pair in pairs]


def _reference(how: Normalize, common: list[float], machine: list[float], cases: int) -> tuple[list[float], str]:
    if how is Normalize.CASES and cases >= _FEWEST_CASES:
        return common, "the median over all cases of each pair"
    if how is Normalize.NONE:
        return [0.0] * len(common), "nothing"
    few = f" (fewer than {_FEWEST_CASES} cases have no median to speak of)" if how is Normalize.CASES else ""
    return machine, f"the CPU's own loop of each pair{few}"


def _words(pairs: int, cases: int, by_process: bool, o: Options) -> str:
    unit = "processes (the best sample of each)" if by_process else "rounds (the best sample of each)"
    return (
        f"sign-flip permutation test with the maximum statistic over {cases} cases (Westfall-Young), {pairs} pairs of "
        f"{unit}, logarithms; changed: p <= {o.alpha:g}, adjusted for all cases, and by more than {o.min_effect:.0%}"
    )
