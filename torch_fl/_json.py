# SPDX-License-Identifier: Apache-2.0
"""JSON as its standard has it: infinity and NaN, which it lacks, become text that ``float()`` reads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def finite(value: Any) -> Any:
    """Return plain values with ``"inf"``, ``"-inf"`` and ``"nan"`` for the numbers that are none."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def text(value: Any, indent: int | None = 2) -> str:
    """Return a value as JSON; what it has no form for becomes text."""
    return json.dumps(finite(value), indent=indent, allow_nan=False, default=str)
