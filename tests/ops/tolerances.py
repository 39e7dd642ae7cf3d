# SPDX-License-Identifier: Apache-2.0
"""How close is close enough: PyTorch's own tolerances, widened where an OpInfo says so or where we can say why."""

from __future__ import annotations

from typing import Any

import torch

from tests.harness.compare import Tolerance, default_tolerance

# (operator or "*", dtype): (rtol, atol), each with the reason.
_OURS: dict[tuple[str, str], Tolerance] = {
    # The CPU folds mean, variance, weight and bias into one scale and shift in the narrow type.
    (name, "bfloat16"): (1.6e-2, 2e-2)
    for name in (
        "native_batch_norm",
        "_native_batch_norm_legit",
        "_batch_norm_with_update",
        "nn.functional.batch_norm",
        "nn.functional.instance_norm",
    )
} | {
    # Reflectors that are not normalised: each product multiplies the rounding errors of those before.
    ("linalg.householder_product", "float32"): (1e-5, 1e-5),
}

_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)


def tolerances_for(op: Any, dtype: torch.dtype) -> dict[torch.dtype, Tolerance]:
    """Tolerance by result type for an OpInfo (or ModuleInfo) run with inputs of type `dtype`."""
    result: dict[torch.dtype, Tolerance] = {}
    for decorator in getattr(op, "decorators", None) or ():
        for inner in getattr(decorator, "decorators", [decorator]):
            if type(inner).__name__ == "toleranceOverride":
                for of, tol in inner.d.items():
                    _widen(result, of, (tol.rtol, tol.atol))
            elif type(inner).__name__ == "precisionOverride":
                for of, precision in inner.d.items():
                    _widen(result, of, (0.0, float(precision)))
    for (name, of), tolerance in _OURS.items():
        if name in ("*", getattr(op, "full_name", None)):
            _widen(result, getattr(torch, of), tolerance)
    return result


def for_cast_results(tolerances: dict[torch.dtype, Tolerance], dtype: torch.dtype) -> dict[torch.dtype, Tolerance]:
    """Tolerances where results computed in `dtype` were cast to a wider type: they are as inexact as before."""
    result = dict(tolerances)
    if dtype.is_floating_point or dtype.is_complex:
        for wider in _TYPES:
            _widen(result, wider, tolerances.get(dtype) or default_tolerance(dtype))
    return result


def _widen(result: dict[torch.dtype, Tolerance], dtype: torch.dtype, tolerance: Tolerance) -> None:
    rtol, atol = result.get(dtype, default_tolerance(dtype))
    result[dtype] = (max(rtol, tolerance[0]), max(atol, tolerance[1]))
