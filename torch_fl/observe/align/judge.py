# SPDX-License-Identifier: Apache-2.0
"""Measure how far a result is from its reference, and tell rounding and order of sums from a wrong result."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from torch_fl.conformance.bounds import basic_bound, real_type
from torch_fl.conformance.case import dtype_name
from torch_fl.conformance.compare import normalised_error, parts, same_nonfinite
from torch_fl.observe.align.reference import Reference, root_mean_square, tolerance, unit_of_sums

# Tolerances are tightened along this ladder until one breaks.
LADDER = tuple(float(f"{digit}e-{power}") for power in range(3, 17) for digit in (1, 0.3))


class Verdict(str, enum.Enum):
    """What became of a comparison, the best first."""

    EXACT = "exact"  # the CPU's result to the bit
    NOISE = "noise"  # within what rounding and the order of sums explain
    RANDOM = "random"  # random numbers: the same distribution
    UNJUDGED = "unjudged"  # nothing to compare with
    INACCURATE = "inaccurate"  # more than rounding explains, but near
    WRONG = "wrong"

    @property
    def bad(self) -> bool:
        """Whether something is to be mended."""
        return self in (Verdict.INACCURATE, Verdict.WRONG)


_ORDER = list(Verdict)


def worse(first: Verdict, second: Verdict) -> bool:
    """Tell whether the first verdict is worse than the second."""
    return _ORDER.index(first) > _ORDER.index(second)


@dataclass
class Accuracy:
    """How far a result is from float64's."""

    max_abs: float = 0.0
    max_rel: float = 0.0  # of an element, or of the result's root mean square where that is larger
    nmse: float = 0.0
    ulp: float = 0.0  # the same in units in the last place
    rtol: float | None = 0.0  # the tightest of `LADDER` that it meets; None: not even 1e-3

    def merge(self, other: Accuracy) -> None:
        """Keep the worse of both figures."""
        for name in ("max_abs", "max_rel", "nmse", "ulp"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        self.rtol = None if self.rtol is None or other.rtol is None else max(self.rtol, other.rtol)


@dataclass
class Judgement:
    """A verdict on some results, with the accuracy of chip and CPU."""

    verdict: Verdict = Verdict.EXACT
    reason: str = ""
    chip: Accuracy = field(default_factory=Accuracy)
    cpu: Accuracy = field(default_factory=Accuracy)

    def merge(self, other: Judgement) -> None:
        """Take over what another judgement adds."""
        if worse(other.verdict, self.verdict):
            self.verdict, self.reason = other.verdict, other.reason
        self.chip.merge(other.chip)
        self.cpu.merge(other.cpu)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {**asdict(self), "verdict": self.verdict.value}


def judge(found: Mapping[str, Any], reference: Reference, whole: bool = False) -> Judgement:
    """Judge results by name. ``whole``: by their squared error alone, for layers, where errors spread."""
    total = Judgement()
    for name, expected in reference.expected.items():
        mine = found.get(name)
        one = _judge_one(name, mine, expected, reference, whole)
        if one.reason and len(reference.expected) > 1:
            one.reason = f"{name}: {one.reason}"
        total.merge(one)
    return total


def _judge_one(name: str, found: Any, expected: torch.Tensor, reference: Reference, whole: bool) -> Judgement:
    if not isinstance(found, torch.Tensor):
        return Judgement(Verdict.WRONG, f"expected a tensor, found {found!r:.40}")
    if found.dtype != expected.dtype or found.shape != expected.shape:
        mine, theirs = (f"{dtype_name(t.dtype)}{list(t.shape)}" for t in (found, expected))
        return Judgement(Verdict.WRONG, f"expected {theirs}, found {mine}")
    found, expected = found.detach().cpu(), expected.detach()
    if not (expected.dtype.is_floating_point or expected.dtype.is_complex):
        return _judge_whole_numbers(found, expected, reference.undefined)
    wide = reference.wide.get(name)
    usable = wide is not None and wide.shape == expected.shape and wide.is_complex() == expected.is_complex()
    exact = wide if usable and wide is not None else expected
    result = Judgement(Verdict.NOISE, "", measure(found, exact), measure(expected, exact))
    reason = _nonfinite(found, expected, exact, reference)
    if reason:
        result.verdict, result.reason = Verdict.WRONG, reason
    elif torch.equal(parts(found).nan_to_num(0.0), parts(expected).nan_to_num(0.0)):
        result.verdict = Verdict.EXACT
    elif reference.exact:
        result.verdict = Verdict.WRONG
        result.reason = f"must be the CPU's result to the bit; {_farthest(found, expected)}"
    elif found.is_complex() or whole:
        _judge_energy(result, name, found, exact, reference)
    else:
        _judge_elements(result, name, found, exact, reference)
    if not result.verdict.bad and _cancels(name, exact, reference):
        result.chip, result.cpu = Accuracy(result.chip.max_abs), Accuracy(result.cpu.max_abs)
    return result


def _cancels(name: str, exact: torch.Tensor, reference: Reference) -> bool:
    """Whether rounding of the inputs alone moves a result by its own size: relative errors of it mean nothing."""
    moved = root_mean_square(reference.spread[name]) if name in reference.spread else 0.0
    return moved > 0.0 and 4 * moved >= root_mean_square(parts(exact).nan_to_num(0.0, 0.0, 0.0))


def _judge_whole_numbers(found: torch.Tensor, expected: torch.Tensor, undefined: torch.Tensor | None) -> Judgement:
    wrong = found != expected
    if undefined is not None:
        wrong &= ~undefined
    if not wrong.any():
        return Judgement()
    return Judgement(Verdict.WRONG, f"{int(wrong.sum())} of {found.numel()} values differ")


def _judge_energy(result: Judgement, name: str, found: torch.Tensor, exact: torch.Tensor, reference: Reference) -> None:
    """By sums of squares, which tell something of a result that is zero, too."""
    expected = reference.expected[name]
    finite = found.isfinite() & exact.isfinite() & expected.isfinite()

    def energy(tensor: torch.Tensor) -> float:
        return float(tensor.abs().double()[finite].nan_to_num(0.0).square().sum())

    error, size, own = energy(found - exact), energy(exact), energy(expected - exact)
    spread = energy(reference.spread[name]) if name in reference.spread else 0.0
    info = torch.finfo(real_type(expected.dtype))
    allowed = max(basic_bound(expected.dtype, 0.0) * size, 16 * own, 256 * spread)
    if error > allowed + int(finite.sum()) * (info.tiny * info.eps) ** 2:
        result.verdict = Verdict.WRONG
        bound = f"{allowed / size:.2g}" if size else "that of rounding"
        result.reason = f"NMSE {result.chip.nmse:.2g} above {bound}; the CPU's own is {result.cpu.nmse:.2g}"


def _judge_elements(
    result: Judgement, name: str, found: torch.Tensor, exact: torch.Tensor, reference: Reference
) -> None:
    allowed = tolerance(reference, name, unit_of_sums(reference))
    error = (found.double() - exact.double()).abs().nan_to_num(0.0, 0.0, 0.0)
    over = error > allowed
    if not over.any():
        return
    near = result.chip.nmse <= basic_bound(found.dtype, 0.0)
    result.verdict = Verdict.INACCURATE if near else Verdict.WRONG
    share = (error / allowed).max()
    count = f"{int(over.sum())} of {over.numel()} elements off by up to {float(share):.3g} times what rounding explains"
    result.reason = f"{count}; {_farthest(found, exact)}"


def _farthest(found: torch.Tensor, exact: torch.Tensor) -> str:
    distance = (parts(found) - parts(exact)).abs().nan_to_num(0.0, 0.0, 0.0)
    at = tuple(int(i) for i in (distance == distance.max()).nonzero()[0])
    return f"at {list(at)} expected {float(parts(exact)[at]):.9g}, found {float(parts(found)[at]):.9g}"


def _nonfinite(found: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor, reference: Reference) -> str:
    """What is wrong with NaN and infinity in a result: those of the CPU or of float64 are both right."""
    mine, cpu = parts(found), parts(expected)
    wide = parts(exact.to(expected.dtype))
    if same_nonfinite(mine, cpu) or same_nonfinite(mine, wide):
        return ""
    kinds = [_kinds(tensor, reference.merged) for tensor in (mine, cpu, wide)]
    wrong = (kinds[0] != kinds[1]) & (kinds[0] != kinds[2])
    if reference.merged and reference.linear:  # 0 * NaN: how far a NaN spreads is a matter of how sums are formed
        wrong &= kinds[0] == 0
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in wrong.nonzero()[0])
    values = f"expected {float(cpu[at]):.6g}, found {float(mine[at]):.6g}"
    return f"NaN or infinity: {int(wrong.sum())} of {wrong.numel()} differ, first at {list(at)}: {values}"


def _kinds(tensor: torch.Tensor, merged: bool) -> torch.Tensor:
    if merged:
        return (~tensor.isfinite()).to(torch.int8)
    return tensor.isnan() * 1 + tensor.isposinf() * 2 + tensor.isneginf() * 3


def measure(found: torch.Tensor, exact: torch.Tensor) -> Accuracy:
    """Return the accuracy of a result; what is not finite counts for nothing."""
    dtype = real_type(found.dtype)
    mine, reference = parts(found).flatten(), parts(exact).flatten()
    finite = mine.isfinite() & reference.isfinite()
    mine, reference = mine[finite], reference[finite]
    if mine.numel() == 0:
        return Accuracy()
    error, size = (mine - reference).abs(), reference.abs()
    largest = float(error.max())
    if largest == 0.0:
        return Accuracy()
    typical = float(reference.square().mean().sqrt())
    relative = error / torch.clamp(size, min=typical or torch.finfo(dtype).tiny)
    info = torch.finfo(dtype)
    spacing = info.eps * torch.exp2(torch.floor(torch.log2(torch.clamp(size, min=max(typical, info.tiny)))))
    nmse = normalised_error(mine, reference, dtype)[0]
    needed = float((error / (size + typical)).max()) if typical else math.inf
    return Accuracy(largest, float(relative.max()), nmse, float((error / spacing).max()), tightest(needed))


def tightest(needed: float) -> float | None:
    """Return the tightest tolerance of the ladder that is not below what is needed."""
    met = [step for step in LADDER if step >= needed]
    return met[-1] if met else None
