# SPDX-License-Identifier: Apache-2.0
"""One record for each operator call inside a ``with`` block: what ran where, why, when, and for how long."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from torch_fl import _load
from torch_fl._context import reusable
from torch_fl.routing.counters import NamedOverload, table


@dataclass(frozen=True)
class CallRecord(NamedOverload):
    """One call. ``start_ns`` is on the clock of `time.monotonic_ns`.

    ``ns`` is the time of the calling thread; a kernel on a stream may still run when it is over. A call made by another
    call (a composite operator's parts) has its own record, which ends first. ``bytes`` were moved by the host route.
    """

    op: str
    overload: str
    chip: str
    device: int
    route: str
    reason: str
    failed: bool
    start_ns: int
    ns: int
    bytes: int
    thread: int


class CallLog(list[CallRecord]):
    """Records in the order in which the calls ended. ``print(log)`` shows a table."""

    dropped: int = 0
    """How many records, the oldest, gave way to later ones."""

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return plain rows, ready for JSON."""
        return [asdict(row) for row in self]

    def __str__(self) -> str:
        text = table(self, _COLUMNS)
        return f"{text}\n({self.dropped} earlier calls were dropped)" if self.dropped else text


_COLUMNS: dict[str, Callable[[CallRecord], str]] = {
    "us": lambda row: f"{row.ns / 1e3:.1f}",
    "operator": lambda row: row.name,
    "device": lambda row: f"{row.chip} {row.device}",
    "route": lambda row: row.route + (" (failed)" if row.failed else ""),
    "bytes": lambda row: str(row.bytes) if row.bytes else "",
    "reason": lambda row: row.reason,
}


@reusable
def record_calls(capacity: int = 100_000) -> Iterator[CallLog]:
    """Record every operator call of all threads; the yielded log is filled when the ``with`` block ends.

    Args:
        capacity: how many records to keep. When there are more calls the oldest go, and ``log.dropped`` counts them.

    Raises:
        TypeError: ``capacity`` is no int.
        ValueError: ``capacity`` is below 1.
        RuntimeError: calls are being recorded already.
    """
    try:
        capacity = min(operator.index(capacity), sys.maxsize)
    except TypeError:
        kind = type(capacity).__name__
        raise TypeError(f"record_calls: capacity must be an int, found {capacity!r} ({kind})") from None
    if capacity < 1:
        raise ValueError(f"record_calls: capacity must be at least 1, found {capacity}")
    core = _load.core()
    core.start_call_log(capacity)
    log = CallLog()
    try:
        yield log
    finally:
        rows, log.dropped = core.stop_call_log()
        log.extend(CallRecord(*row) for row in rows)
