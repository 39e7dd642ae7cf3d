# SPDX-License-Identifier: Apache-2.0
"""How to compare."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass


class Normalize(str, enum.Enum):
    """What is taken out of every case, since two runs are made at different times."""

    CASES = "cases"  # the median over all cases: what is left is a case's own
    CPU = "cpu"  # a loop that the CPU alone runs
    NONE = "none"


@dataclass(frozen=True)
class Options:
    """When a difference counts as a change."""

    normalize: Normalize = Normalize.CASES
    alpha: float = 0.02  # chance of one or more false alarms about speed
    min_effect: float = 0.05  # smaller changes of speed are nobody's business
    min_error: float = 2.0  # accuracy: the root of the NMSE must change by this factor

    def __post_init__(self) -> None:
        """Refuse what is no chance and no size."""
        for name, least, most in (("alpha", 0, 1), ("min_effect", 0, math.inf), ("min_error", 1, math.inf)):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name}: expected a number from {least} to {most}, found {value!r}")
