# SPDX-License-Identifier: Apache-2.0
"""Compare what the chip returned with what the CPU returned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from torch_fl.conformance.bounds import basic_bound, real_type, strict_bound
from torch_fl.conformance.case import Case, dtype_name
from torch_fl.conformance.verdict import Finding, Verdict

# The two-sample Kolmogorov-Smirnov test's c(alpha) for alpha = 1e-6.
_KOLMOGOROV = 2.69


@dataclass
class Compared:
    """The error of one tensor, in relation to its bound."""

    verdict: Verdict = Verdict.STRICT
    reason: str = ""
    nmse: float = 0.0
    bound: float = 0.0


def compare_outputs(
    case: Case, found: list[Any], expected: list[Any], wide: list[Any] | None, strides: bool = True
) -> Finding:
    """Compare two lists of outputs; ``wide`` are those of the same call in float64, where there is one."""
    if len(found) != len(expected):
        return Finding(Verdict.FAILED, f"expected {len(expected)} outputs, found {len(found)}")
    worst = Finding(Verdict.STRICT)
    for i, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        if i in case.ignore:
            continue
        compared = _compare_value(case, mine, theirs, wide[i] if wide is not None else None, strides)
        if compared.reason and len(expected) > 1:
            compared.reason = f"output {i}: {compared.reason}"
        if _is_worse(compared, worst):
            worst = Finding(compared.verdict, compared.reason, compared.nmse, compared.bound)
    return worst


def _is_worse(compared: Compared, worst: Finding) -> bool:
    order = (Verdict.STRICT, Verdict.BASIC, Verdict.FAILED)
    mine, theirs = order.index(compared.verdict), order.index(worst.verdict)
    return mine > theirs or (mine == theirs and _share(compared) > _share(worst))


def _share(item: Compared | Finding) -> float:
    return item.nmse / item.bound if item.bound else 0.0


def _compare_value(case: Case, found: Any, expected: Any, wide: Any, strides: bool) -> Compared:
    if not isinstance(expected, torch.Tensor):
        same = type(found) is type(expected) and found == expected
        return Compared() if same else Compared(Verdict.FAILED, f"expected {expected!r}, found {found!r}")
    if not isinstance(found, torch.Tensor):
        return Compared(Verdict.FAILED, f"expected a tensor, found {found!r:.60}")
    if found.dtype != expected.dtype:
        return Compared(Verdict.FAILED, f"type: expected {dtype_name(expected.dtype)}, found {dtype_name(found.dtype)}")
    if found.shape != expected.shape:
        return Compared(Verdict.FAILED, f"shape: expected {list(expected.shape)}, found {list(found.shape)}")
    compared = compare_values(case, found, expected, wide)
    if compared.verdict is Verdict.STRICT and strides and not same_strides(found, expected):
        compared.verdict = Verdict.BASIC
        compared.reason = f"strides: expected {list(expected.stride())}, found {list(found.stride())}"
    return compared


def same_strides(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Tell whether strides agree, those of dimensions with one element aside."""
    if expected.numel() == 0:
        return True
    triples = zip(expected.shape, found.stride(), expected.stride(), strict=True)
    return all(size == 1 or mine == theirs for size, mine, theirs in triples)


def compare_values(case: Case, found: torch.Tensor, expected: torch.Tensor, wide: torch.Tensor | None) -> Compared:
    """Compare two tensors of one type and shape."""
    found, expected = found.detach().cpu(), expected.detach()
    if not (expected.dtype.is_floating_point or expected.dtype.is_complex):
        return Compared() if torch.equal(found, expected) else _unequal(found, expected)
    if case.exact and _identical(found, expected):
        return Compared()
    dtype = real_type(expected.dtype)
    usable = wide is not None and wide.shape == expected.shape and wide.is_complex() == expected.is_complex()
    reference = wide.detach() if wide is not None and usable else expected
    found, expected, reference = (parts(tensor) for tensor in (found, expected, reference))
    if not same_nonfinite(found, expected) and not same_nonfinite(found, reference.to(dtype).double()):
        return _nonfinite(found, expected)
    finite = found.isfinite() & expected.isfinite() & reference.isfinite()
    error, floor = normalised_error(found[finite], reference[finite], dtype)
    cpu_error, _ = normalised_error(expected[finite], reference[finite], dtype)
    strict = strict_bound(case, dtype, cpu_error)
    basic = basic_bound(dtype, strict)
    if error <= strict + floor and not case.exact:
        return Compared(Verdict.STRICT, "", error, strict)
    if error <= basic + floor:
        text = "not equal to the bit" if case.exact else f"NMSE {error:.2g} above {strict:.2g}"
        return Compared(Verdict.BASIC, text, error, strict)
    return Compared(Verdict.FAILED, f"NMSE {error:.2g} above {basic:.2g}; {_worst(found, reference)}", error, strict)


def parts(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float64, real and imaginary parts side by side."""
    tensor = tensor.resolve_conj().resolve_neg()
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).double()


def _identical(found: torch.Tensor, expected: torch.Tensor) -> bool:
    found, expected = parts(found), parts(expected)
    return torch.equal(found.nan_to_num(0.0), expected.nan_to_num(0.0)) and same_nonfinite(found, expected)


def same_nonfinite(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Tell whether NaN and either infinity are in the same places."""
    if not torch.equal(found.isnan(), expected.isnan()):
        return False
    return torch.equal(found.isposinf(), expected.isposinf()) and torch.equal(found.isneginf(), expected.isneginf())


def normalised_error(found: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype) -> tuple[float, float]:
    """Return the normalised mean squared error, and what of it rounding of subnormal numbers may add."""
    if found.numel() == 0:
        return 0.0, 0.0
    square = float(((found - reference) ** 2).sum())
    size = float((reference**2).sum())
    info = torch.finfo(dtype)
    smallest = found.numel() * (info.tiny * info.eps) ** 2
    if square == 0.0:
        return 0.0, 0.0
    if size == 0.0:
        return (0.0, 0.0) if square <= smallest else (math.inf, 0.0)
    return square / size, smallest / size


def _unequal(found: torch.Tensor, expected: torch.Tensor) -> Compared:
    wrong = found != expected
    index = tuple(int(i) for i in wrong.nonzero()[0])
    values = f"expected {expected[index].item()}, found {found[index].item()}"
    text = f"{int(wrong.sum())} of {wrong.numel()} differ, first at {list(index)}: {values}"
    return Compared(Verdict.FAILED, text, math.inf, 0.0)


def _worst(found: torch.Tensor, reference: torch.Tensor) -> str:
    distance = (found - reference).abs().nan_to_num(0.0, 0.0, 0.0)
    index = tuple(int(i) for i in (distance == distance.max()).nonzero()[0])
    return f"worst at {list(index)}: expected {reference[index].item():.6g}, found {found[index].item():.6g}"


def _nonfinite(found: torch.Tensor, expected: torch.Tensor) -> Compared:
    wrong = (found.isnan() != expected.isnan()) | (found.isinf() != expected.isinf())
    wrong |= found.isinf() & expected.isinf() & (found != expected)
    index = tuple(int(i) for i in wrong.nonzero()[0])
    values = f"expected {expected[index].item():.6g}, found {found[index].item():.6g}"
    text = f"NaN or infinity: {int(wrong.sum())} of {wrong.numel()} differ, first at {list(index)}: {values}"
    return Compared(Verdict.FAILED, text, math.inf, 0.0)


def compare_draws(found: list[Any], expected: list[Any]) -> Finding:
    """Compare random outputs: shape, type, and the distribution (two-sample Kolmogorov-Smirnov test)."""
    for mine, theirs in zip(found, expected, strict=True):
        if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
            return Finding(Verdict.FAILED, "shape or type is not the CPU's")
        distance, limit = _distance(mine.double().flatten(), theirs.double().flatten())
        if distance > limit:
            text = f"another distribution than the CPU's: Kolmogorov-Smirnov distance {distance:.3f} above {limit:.3f}"
            return Finding(Verdict.FAILED, text, distance, limit)
    return Finding(Verdict.STRICT)


def _distance(first: torch.Tensor, second: torch.Tensor) -> tuple[float, float]:
    points = torch.cat([first, second]).sort().values
    shares = [torch.searchsorted(t.sort().values, points, right=True).double() / t.numel() for t in (first, second)]
    limit = _KOLMOGOROV * math.sqrt((first.numel() + second.numel()) / (first.numel() * second.numel()))
    return float((shares[0] - shares[1]).abs().max()), limit
