# SPDX-License-Identifier: Apache-2.0
"""Speed: pairs of processes, what they have in common taken out, tested."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch_fl.observe.baseline.results import CaseResult, Results
from torch_fl.observe.compare.options import Normalize, Options
from torch_fl.observe.compare.result import Speed, SpeedRow
from torch_fl.observe.compare.statistics import Tested, pairs_needed, test

_FEWEST_PROCESSES = 6  # below, rounds are the pairs
_FEWEST_CASES = 8  # whose median says something of the run as a whole
_LARGEST = 50.0  # logarithm of a ratio that is told; larger ones mean nothing more
_Pair = tuple[int, int]  # process and round; -1: all rounds
_Of = Mapping[_Pair, float]
_Samples = Callable[[CaseResult, int], Sequence[float]]


class NoPairs(ValueError):
    """Two runs of a case without a process or round in common."""


@dataclass(frozen=True)
class _Paired:
    """A case that ran in both: its best samples before, their change, and that of the CPU's loop, as logarithms."""

    before: CaseResult
    after: CaseResult
    best: _Of
    change: _Of
    loop: _Of


def compare(before: Results, after: Results, options: Options) -> Speed | None:
    """Test the cases that ran in both; None if there is none. Raises `NoPairs`."""
    by_process = _processes(before) >= _FEWEST_PROCESSES <= _processes(after)
    cases = [
        _paired(a, b, by_process) for a in before.cases for b in after.cases if a.name == b.name and _ran(a) and _ran(b)
    ]
    if not cases:
        return None
    common, machine = _medians(case.change for case in cases), _medians(case.loop for case in cases)
    taken_out, words = _reference(options.normalize, common, machine, cases)
    own = [{pair: value - taken_out[pair] for pair, value in case.change.items()} for case in cases]
    needed = pairs_needed(options.alpha)
    enough = [i for i, of in enumerate(own) if needed and len(of) >= needed]
    judged = dict(zip(enough, test([own[i] for i in enough], options.alpha), strict=True))
    # All cases together, beyond what the machine did: a hypothesis of its own.
    (together,) = test([{pair: common[pair] - machine[pair] for pair in common}], options.alpha)
    shared = statistics.median(common.values())
    return Speed(
        rows=tuple(_row(case, own[i], judged.get(i), options) for i, case in enumerate(cases)),
        test=_words(len(common), len(enough), by_process, options),
        normalized=words,
        common=math.exp(shared),
        machine=math.exp(statistics.median(machine.values())),
        common_changed=bool(judged)
        and len(cases) >= _FEWEST_CASES
        and together.p <= options.alpha
        and _large(together.difference, options.min_effect)
        and _large(shared, options.min_effect)
        and together.difference * shared > 0,
        common_p=together.p,
        pairs_needed=needed,
        tested=bool(judged),
    )


def _ran(case: CaseResult) -> bool:
    return not case.error and not case.untimed


def _processes(results: Results) -> int:
    return len({round.process for case in results.cases for round in case.rounds})


def _paired(before: CaseResult, after: CaseResult, by_process: bool) -> _Paired:
    first, then = (_best(case, by_process, _counting) for case in (before, after))
    loops = [_best(case, by_process, _loop) for case in (before, after)]
    pairs = sorted(first.keys() & then.keys())
    if not pairs:
        kind = "processes" if by_process else "rounds"
        raise NoPairs(f"{after.name}: the {kind} before and those after are not the same")
    change = {pair: then[pair] - first[pair] for pair in pairs}
    return _Paired(before, after, first, change, {pair: loops[1][pair] - loops[0][pair] for pair in pairs})


def _counting(case: CaseResult, index: int) -> Sequence[float]:
    """The samples of a round that count for this kind of case."""
    samples: Sequence[float] = getattr(case.rounds[index], case.series)
    return samples


def _loop(case: CaseResult, index: int) -> Sequence[float]:
    return case.rounds[index].loop_ns


def _best(case: CaseResult, by_process: bool, samples: _Samples) -> dict[_Pair, float]:
    """Return the logarithm of the best sample of each pair: neighbours on the machine only ever add time."""
    found: dict[_Pair, float] = {}
    for index, round in enumerate(case.rounds):
        pair = (round.process, -1 if by_process else round.round)
        best = math.log(min(samples(case, index)))
        found[pair] = min(found.get(pair, best), best)
    return found


def _medians(of_cases: Iterable[_Of]) -> dict[_Pair, float]:
    """Return the median of each pair over the cases that have it."""
    found: dict[_Pair, list[float]] = {}
    for of in of_cases:
        for pair, value in of.items():
            found.setdefault(pair, []).append(value)
    return {pair: statistics.median(found[pair]) for pair in sorted(found)}


def _reference(how: Normalize, common: _Of, machine: _Of, cases: Sequence[_Paired]) -> tuple[_Of, str]:
    fewest = min(sum(pair in case.change for case in cases) for pair in common)
    if how is Normalize.CASES and fewest >= _FEWEST_CASES:
        return common, "the median over all cases of each pair"
    if how is Normalize.NONE:
        return dict.fromkeys(common, 0.0), "nothing"
    few = f" (fewer than {_FEWEST_CASES} cases have no median to speak of)" if how is Normalize.CASES else ""
    return machine, f"the CPU's own loop of each pair{few}"


def _row(case: _Paired, own: _Of, tested: Tested | None, o: Options) -> SpeedRow:
    before, change = _middle(case.best, own)
    return SpeedRow(
        name=case.after.name,
        op=case.after.op,
        before_ns=math.exp(before),
        after_ns=math.exp(before + change),
        ratio=math.exp(change),
        pairs=len(own),
        p=tested.p if tested else None,
        detectable=math.exp(min(_LARGEST, max(tested.detectable, math.log1p(o.min_effect)))) if tested else None,
        changed=tested is not None and tested.p <= o.alpha and _large(change, o.min_effect),
    )


def _middle(best: _Of, own: _Of) -> tuple[float, float]:
    """Return the time before and the change of the pair whose change is the median; of two, their means."""
    ordered = sorted(own, key=lambda pair: own[pair])
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    return statistics.fmean(best[pair] for pair in middle), statistics.fmean(own[pair] for pair in middle)


def _large(difference: float, least: float) -> bool:
    return abs(difference) > math.log1p(least)


def _words(pairs: int, cases: int, by_process: bool, o: Options) -> str:
    unit = "processes (the best sample of each)" if by_process else "rounds (the best sample of each)"
    return (
        f"sign-flip permutation test with the maximum statistic over {cases} cases (Westfall-Young), {pairs} pairs of "
        f"{unit}, logarithms; changed: p <= {o.alpha:g}, adjusted for all cases, and by more than {o.min_effect:.0%}"
    )
