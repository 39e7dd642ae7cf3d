# SPDX-License-Identifier: Apache-2.0
"""How close is close enough: bounds on the normalised mean squared error; docs/conformance.md derives them."""

from __future__ import annotations

import torch

from torch_fl.conformance.case import Case

# Bounds of BASIC: a relative error (root mean square) of about 1e-7, 3e-4, 1e-2 and 3e-2.
_BASIC = {torch.float64: 1e-14, torch.float32: 1e-7, torch.float16: 1e-4, torch.bfloat16: 1e-3}
_YARDSTICK = 4.0  # so much more squared error than the CPU's own is as good as the CPU
_REAL = {torch.complex128: torch.float64, torch.complex64: torch.float32, torch.complex32: torch.float16}


def real_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type of the parts of a complex type; others as they are."""
    return _REAL.get(dtype, dtype)


def unit_roundoff(dtype: torch.dtype) -> float:
    """Return the largest relative error of rounding to the nearest."""
    return torch.finfo(real_type(dtype)).eps / 2


def strict_bound(case: Case, dtype: torch.dtype, cpu_error: float) -> float:
    """Return the bound of STRICT for a result of this type, given the CPU's own error against float64."""
    unit = unit_roundoff(dtype)
    sums = min(unit, unit_roundoff(torch.float32))  # narrow types are summed in float32
    return max((case.roundings * unit) ** 2 + case.terms * (case.roundings * sums) ** 2, _YARDSTICK * cpu_error)


def basic_bound(dtype: torch.dtype, strict: float) -> float:
    """Return the bound of BASIC."""
    return max(_BASIC.get(real_type(dtype), 1e-3), strict)
