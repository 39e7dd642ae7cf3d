# SPDX-License-Identifier: Apache-2.0
"""Special functions where the CPU's own numbers are not the measure."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from tests.behaviour.agree import DEVICE, HIDDEN_KERNELS


@pytest.mark.skipif(HIDDEN_KERNELS, reason="the host does what the CPU does")
@pytest.mark.parametrize(("n", "x"), [(2, -0.5), (20, -1.5), (34, -0.5), (34, -1.5), (35, -0.5), (7, -2.25)])
def test_polygamma_of_negative_numbers(n: int, x: float) -> None:
    """Against its series (DLMF 5.15.1), whose large terms cancel between two poles."""
    terms = sum(1 / (Fraction(x) + k) ** (n + 1) for k in range(400))
    expected = (-1) ** (n + 1) * math.factorial(n) * float(terms)
    found = torch.polygamma(n, torch.tensor(x, dtype=torch.float64, device=DEVICE)).item()
    assert found == pytest.approx(expected, rel=1e-4 if n == 2 else 1e-9)
