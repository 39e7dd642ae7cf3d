# SPDX-License-Identifier: Apache-2.0
"""The warning that much of a program leaves the chip. docs/profiling.md says when."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from torch_fl._words import counted

Row = tuple[str, str, int, int, int, str]
"""Operator, chip, device, calls, nanoseconds, reason."""


class FallbackStormWarning(UserWarning):
    """A large share of the calls, or of the time, is spent off the chip."""


def warn(call_share: float, time_share: float, worst: Sequence[Row]) -> None:
    """Warn; the core calls this once a process."""
    warnings.warn(text(call_share, time_share, worst), FallbackStormWarning, stacklevel=_users_level())


def text(call_share: float, time_share: float, worst: Sequence[Row]) -> str:
    """Return what the warning says."""
    script = sys.argv[0] if sys.argv and sys.argv[0].endswith(".py") else "SCRIPT"
    lines = [
        f"{call_share:.0%} of the calls on fl devices leave the chip, which took {time_share:.0%} of the time so far. "
        "The worst:",
        *(
            f"  {op} on {chip} (fl:{device}): {counted(calls, 'call')}, {ns / 1e6:.1f} ms on the host: {reason}"
            for op, chip, device, calls, ns, reason in worst
        ),
        f"  What each costs, and where: torch-fl report {os.path.basename(script)} -o report.html",
        '  Said once; torch_fl.set_config("storm_share", 0) keeps it quiet.',
    ]
    return "\n".join(lines)


def _users_level() -> int:
    """The stack level, for `warnings.warn` in `warn`, of the innermost frame outside torch and torch_fl."""
    import torch

    folders = tuple(os.path.dirname(file) + os.sep for file in (str(torch.__file__), os.path.dirname(__file__)))
    level, frame = 1, sys._getframe(1)
    outer: Any = frame
    while outer is not None and outer.f_code.co_filename.startswith(folders):
        level, outer = level + 1, outer.f_back
    return level if outer is not None else 1
