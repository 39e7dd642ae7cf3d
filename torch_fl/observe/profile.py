# SPDX-License-Identifier: Apache-2.0
"""One recording, and what can be asked of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch_fl._words import counted
from torch_fl.observe.records import (
    GROUP_FIELDS,
    DeviceEvent,
    Group,
    Groups,
    MemorySample,
    Record,
    Rows,
    check_words,
)


@dataclass(frozen=True)
class Summary:
    """Totals of a profile. ``print()`` it. Shares are 0 to 1."""

    calls: int
    dropped: int
    wall_ns: int
    """From the start of the block to its end."""
    host_ns: int
    """Inside calls, of all threads, each moment once."""
    device_ns: int
    off_chip_calls: int
    """On the host route."""
    off_chip_ns: int
    """Spent in them."""
    off_chip_call_share: float
    """Of the calls that are neither copies nor made of other calls."""
    off_chip_time_share: float
    """Of ``host_ns``."""
    bytes: int
    syncs: int
    routes: dict[str, int]
    """Calls by route."""
    notes: tuple[str, ...]

    def __str__(self) -> str:
        routes = ", ".join(f"{calls} {route}" for route, calls in self.routes.items())
        lines = [
            f"{counted(self.calls, 'call')} in {self.wall_ns / 1e6:.1f} ms: {routes or 'none'}",
            f"host {self.host_ns / 1e6:.2f} ms, device {self.device_ns / 1e6:.2f} ms, "
            f"{counted(self.bytes, 'byte')} moved, {counted(self.syncs, 'wait')} for the device",
            f"off the chip: {self.off_chip_call_share:.1%} of the calls, {self.off_chip_time_share:.1%} of the time",
        ]
        if self.dropped:
            lines.append(f"{counted(self.dropped, 'earlier call')} dropped: the capacity was reached")
        return "\n".join([*lines, *self.notes])


class Profile:
    """What `torch_fl.profiler.profile` yields: filled when the ``with`` block ends."""

    def __init__(self) -> None:
        self._core: Any = None  # torch_fl._C.Recorded, once the block is over
        self._notes: list[str] = []

    def _finish(self, recorded: Any) -> None:
        self._core = recorded
        self._notes = list(recorded.notes)

    def _recorded(self) -> Any:
        if self._core is None:
            raise RuntimeError("the profile is still being recorded: read it after the `with` block")
        return self._core

    @property
    def records(self) -> Rows[Record]:
        """Every call, by start; made when looked at. ``len``, indices, slices and loops work."""
        core = self._recorded()
        return Rows(lambda start, stop: [Record(*row) for row in core.rows(start, stop)], core.count)

    @property
    def events(self) -> Rows[DeviceEvent]:
        """What the devices did, by start; empty without ``device_events``."""
        core = self._recorded()
        return Rows(lambda start, stop: [DeviceEvent(*row) for row in core.events(start, stop)], core.event_count)

    @property
    def dropped(self) -> int:
        """How many records, the oldest, gave way to later ones."""
        return int(self._recorded().dropped)

    @property
    def dropped_events(self) -> int:
        """The same of device events."""
        return int(self._recorded().dropped_events)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the profile does not know, and why; for people."""
        self._recorded()
        return tuple(self._notes)

    @property
    def start_ns(self) -> int:
        """When the block began."""
        return int(self._recorded().start_ns)

    @property
    def end_ns(self) -> int:
        """When the block ended."""
        return int(self._recorded().end_ns)

    def groups(self, by: Sequence[str] = ("op", "overload")) -> Groups:
        """Return sums over the calls that are alike in these fields, the longest on the host first.

        Args:
            by: any of `torch_fl.profiler.GROUP_FIELDS`; none: one group of all calls.

        Raises:
            ValueError: there is no such field; the message suggests the nearest.
        """
        names = (by,) if isinstance(by, str) else tuple(by)
        check_words("by", names, GROUP_FIELDS)
        wanted = [name for name in GROUP_FIELDS if name in names]
        rows = self._recorded().groups(wanted)
        n = len(wanted)
        return Groups(
            Group(**dict(zip(wanted, row[:n], strict=True)), **dict(zip(_SUM_FIELDS, row[n:], strict=True)))
            for row in rows
        ).sorted_by("self_host_time_total")

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_site: bool = False, group_by_layer: bool = False
    ) -> Groups:
        """Return sums for each operator; ``.table(sort_by="device_time_total")`` shows them."""
        more = {"shapes": group_by_input_shape, "site": group_by_site, "layer": group_by_layer}
        return self.groups(("op", "overload", "route", *(name for name, wanted in more.items() if wanted)))

    def memory(self, points: int = 2000) -> list[MemorySample]:
        """Return how much device memory tensors had over time, by time.

        Of more than ``points`` samples of a device, the highest of each stretch of time are kept, so the peak is.
        """
        return [MemorySample(*row) for row in self._recorded().memory(points)]

    def summary(self) -> Summary:
        """Return the totals."""
        core = self._recorded()
        routes = self.groups(("route",))
        calls = sum(group.calls for group in routes)
        routed = sum(group.calls for group in routes if group.route not in _UNROUTED)
        host = [group for group in routes if group.route == "host"]
        host_ns = sum(group.self_host_ns for group in routes)
        off_calls, off_ns = sum(group.calls for group in host), sum(group.self_host_ns for group in host)
        return Summary(
            calls=calls,
            dropped=self.dropped,
            wall_ns=int(core.end_ns - core.start_ns),
            host_ns=host_ns,
            device_ns=sum(group.device_ns for group in routes),
            off_chip_calls=off_calls,
            off_chip_ns=off_ns,
            off_chip_call_share=off_calls / routed if routed else 0.0,
            off_chip_time_share=off_ns / host_ns if host_ns else 0.0,
            bytes=sum(group.bytes for group in routes),
            syncs=sum(group.syncs for group in routes),
            routes={str(group.route): group.calls for group in sorted(routes, key=lambda group: -group.calls)},
            notes=self.notes,
        )

    def export_json_lines(self, path: str | os.PathLike[str]) -> None:
        """Write one JSON object a line: a header, then the records with `Record`'s fields, then the device events.

        Fields that are 0, false or empty are left out, but for ``sequence``, whose 0 is a number.
        """
        self._recorded().export_json_lines(_file(path))

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write a trace for chrome://tracing or Perfetto: calls by thread, device events by device and stream."""
        self._recorded().export_chrome_trace(_file(path))

    def __str__(self) -> str:
        if self._core is None:
            return "<profile, still being recorded>"
        return f"{self.summary()}\n{self.key_averages().table(row_limit=20)}"


_UNROUTED = ("copy", "composite")
_SUM_FIELDS = (
    *("calls", "failed", "bytes", "syncs", "conversions"),
    *("host_ns", "self_host_ns", "wait_ns", "copy_ns", "compute_ns", "device_ns"),
)


def _file(path: str | os.PathLike[str]) -> bytes:
    """Return a path as the system has it, whatever its bytes are in UTF-8."""
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError(f"a path cannot hold a null character: {path!r}")
    return name
