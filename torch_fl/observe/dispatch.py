# SPDX-License-Identifier: Apache-2.0
"""The light profile: what the counters, which always run, counted inside a ``with`` block."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from torch_fl import _load
from torch_fl._context import reusable
from torch_fl.routing.counters import CallCount, Counters, counters


class DispatchProfile(Counters):
    """Counters of one block: ``print()`` it, or ask it what `torch_fl.Counters` can be asked."""

    wall_ns: int = 0
    """How long the block took."""


def _key(row: CallCount) -> tuple[str, str, str, int, str, str]:
    return row.op, row.overload, row.chip, row.device, row.route, row.reason


_SUMS = ("calls", "bytes", "syncs", "ns", "conversions")


def difference(after: Counters, before: Counters) -> Iterator[CallCount]:
    """Yield what was counted between the two."""
    earlier = {_key(row): row for row in before}
    for row in after:
        old = earlier.get(_key(row))
        if old is not None:
            row = replace(row, **{name: max(0, getattr(row, name) - getattr(old, name)) for name in _SUMS})
        if row.calls:
            yield row


@reusable
def profile_dispatch() -> Iterator[DispatchProfile]:
    """Count the calls of a ``with`` block by operator, route and reason; the yielded rows are there when it ends.

    Costs nothing beyond the counters, which always run: ``torch_fl.profiler.profile()`` tells more, and times.
    """
    core, profile = _load.core(), DispatchProfile()
    resets, before, start = core.counter_resets(), counters(), time.monotonic_ns()
    try:
        yield profile
    finally:
        profile.wall_ns = time.monotonic_ns() - start
        # Counters that were reset meanwhile count from there.
        profile.extend(difference(counters(), before if core.counter_resets() == resets else Counters()))
