# SPDX-License-Identifier: Apache-2.0
"""What a profile holds, as Python sees it. All times are nanoseconds; instants are on `time.monotonic_ns`'s clock."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Generic, TypeVar, overload

from torch_fl._suggest import did_you_mean
from torch_fl.routing.counters import NamedOverload, table

Shape = tuple[int, ...]

GROUP_FIELDS = ("op", "overload", "chip", "device", "route", "reason", "site", "layer", "backward", "shapes")
"""What calls can be grouped by."""


@dataclass(frozen=True)
class Record(NamedOverload):
    """One call.

    ``host_ns`` is the time of the calling thread: for a kernel, until it was enqueued. ``device_ns`` is what the
    kernels, copies and fills that the call itself enqueued took on the device (0 without device events).
    """

    id: int
    """Unique in the process; device events carry it as ``correlation``."""
    parent: int
    """The call inside which this one was made; 0: none."""
    op: str
    overload: str
    chip: str
    device: int
    stream: int
    route: str
    """One of `torch_fl.counters`'s routes, or "copy": between devices, or within one."""
    reason: str
    """Why on no earlier route; for a copy its direction."""
    adapters: tuple[str, ...]
    """What the kernel's arguments had to become: "weight: float32 as channels_last"."""
    conversions: int
    """How many of them this call converted anew; others were kept from an earlier call."""
    shapes: tuple[Shape, ...]
    """Of the tensor arguments, those of lists in a row."""
    dtypes: tuple[str, ...]
    bytes: int
    """Moved between host and device, both ways, or by a copy."""
    syncs: int
    """How often the host waited for the device."""
    start_ns: int
    host_ns: int
    self_host_ns: int
    """Without the calls inside it."""
    wait_ns: int
    """Of it: waiting for work that was enqueued earlier."""
    copy_in_ns: int
    """Host route: from the device to the host."""
    compute_ns: int
    """Host route: in the CPU operator."""
    copy_out_ns: int
    """Host route: from the host to the device."""
    device_ns: int
    allocated_bytes: int
    """Of the device's memory, by tensors, after the call."""
    failed: bool
    """It raised."""
    backward: bool
    """Made by autograd's backward pass; its site and layer are those of the forward call."""
    thread: int
    """The operating system's number of the calling thread."""
    sequence: int
    """Autograd's number of the forward call; -1: none."""
    site: str
    """"path/model.py:12 (forward)": the innermost Python line outside torch and torch_fl; "": none."""
    layer: str
    """"layers.0.attention": as `torch.nn.Module.named_modules` names it; "": outside, or the model itself."""

    @property
    def copy_ns(self) -> int:
        """Both copies of the host route."""
        return self.copy_in_ns + self.copy_out_ns


@dataclass(frozen=True)
class DeviceEvent:
    """What a device did, or a call that the host made into the runtime."""

    kind: str
    """"kernel", "copy", "fill", "runtime"."""
    name: str
    device: int
    stream: int
    correlation: int
    """The `Record.id` of the call that caused it; 0: none."""
    thread: int
    start_ns: int
    end_ns: int
    bytes: int


@dataclass(frozen=True)
class MemorySample:
    """How much of a device's memory tensors had after a call."""

    time_ns: int
    device: int
    allocated_bytes: int


@dataclass(frozen=True)
class Group:
    """Sums over the calls that are alike in some fields; the fields that were not asked for are None."""

    op: str | None = None
    overload: str | None = None
    chip: str | None = None
    device: int | None = None
    route: str | None = None
    reason: str | None = None
    site: str | None = None
    layer: str | None = None
    backward: bool | None = None
    shapes: tuple[Shape, ...] | None = None
    calls: int = 0
    failed: int = 0
    """Calls that raised."""
    bytes: int = 0
    syncs: int = 0
    conversions: int = 0
    host_ns: int = 0
    """With the calls inside them: of groups that hold both, the inner ones count twice."""
    self_host_ns: int = 0
    wait_ns: int = 0
    copy_ns: int = 0
    compute_ns: int = 0
    device_ns: int = 0

    @property
    def name(self) -> str:
        """Operator and overload, as far as they were asked for."""
        return ".".join(part for part in (self.op, self.overload) if part)


SUMS = {
    "calls": "calls",
    "failed": "failed",
    "bytes": "bytes",
    "syncs": "syncs",
    "conversions": "conversions",
    "host_time_total": "host_ns",
    "self_host_time_total": "self_host_ns",
    "wait_time_total": "wait_ns",
    "copy_time_total": "copy_ns",
    "compute_time_total": "compute_ns",
    "device_time_total": "device_ns",
}
"""What a table can be sorted by, and the field of it. torch.profiler's words mean the same."""
_TORCH_WORDS = {
    "count": "calls",
    "cpu_time_total": "host_time_total",
    "self_cpu_time_total": "self_host_time_total",
    "self_device_time_total": "device_time_total",
}


def check_words(what: str, words: Sequence[str], choices: Sequence[str]) -> None:
    """Refuse a word that is none of the choices, naming the nearest."""
    for word in words:
        if word not in choices:
            guess = did_you_mean(str(word), choices)
            raise ValueError(f"{what}: {word!r} is not one of {', '.join(choices)}{guess}")


class Groups(list[Group]):
    """What `Profile.groups` and `Profile.key_averages` return. ``print()`` shows a table."""

    def sorted_by(self, sort_by: str = "self_host_time_total") -> Groups:
        """Return them with the most first.

        Raises:
            ValueError: ``sort_by`` is none of `SUMS`; the message suggests the nearest.
        """
        word = _TORCH_WORDS.get(sort_by, sort_by)
        check_words("sort_by", [word], list(SUMS))
        return Groups(sorted(self, key=lambda group: -getattr(group, SUMS[word])))

    def table(self, sort_by: str = "self_host_time_total", row_limit: int = 100) -> str:
        """Return a table for people, the rows with the most first, at most ``row_limit`` of them (-1: all)."""
        rows = self.sorted_by(sort_by)
        shown = rows if row_limit < 0 else rows[:row_limit]
        text = table(shown, {title: show for title, show in _COLUMNS.items() if _asked_for(title, shown)})
        left = len(rows) - len(shown)
        return f"{text}\n({left} more)" if left else text

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return plain rows, ready for JSON, without the fields that were not asked for."""
        return [{key: value for key, value in asdict(row).items() if value is not None} for row in self]

    def __str__(self) -> str:
        return self.table()


def _us(ns: int) -> str:
    return f"{ns / 1e3:.1f}" if ns else ""


def _number(value: int) -> str:
    return str(value) if value else ""


_COLUMNS: dict[str, Callable[[Group], str]] = {
    "operator": lambda row: row.name,
    "shapes": lambda row: " ".join(str(list(shape)) for shape in row.shapes or ()),
    "chip": lambda row: row.chip or "",
    "device": lambda row: "" if row.device is None else f"fl:{row.device}",
    "route": lambda row: row.route or "",
    "layer": lambda row: row.layer or "",
    "pass": lambda row: "" if row.backward is None else "backward" if row.backward else "forward",
    "calls": lambda row: str(row.calls),
    "failed": lambda row: _number(row.failed),
    "host us": lambda row: _us(row.host_ns),
    "self us": lambda row: _us(row.self_host_ns),
    "wait us": lambda row: _us(row.wait_ns),
    "copy us": lambda row: _us(row.copy_ns),
    "compute us": lambda row: _us(row.compute_ns),
    "device us": lambda row: _us(row.device_ns),
    "bytes": lambda row: _number(row.bytes),
    "syncs": lambda row: _number(row.syncs),
    "conversions": lambda row: _number(row.conversions),
    "site": lambda row: row.site or "",
    "reason": lambda row: row.reason or "",
}


def _asked_for(title: str, rows: Sequence[Group]) -> bool:
    """Whether a column has anything in it."""
    return title in ("calls", "self us") or any(_COLUMNS[title](row) for row in rows)


Row = TypeVar("Row")


class Rows(Sequence[Row], Generic[Row]):
    """Rows that are made when they are looked at: a million of them never become a million objects."""

    def __init__(self, make: Callable[[int, int], Sequence[Row]], length: int) -> None:
        self._make, self._length = make, length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Rows[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Rows[Row]:
        if isinstance(index, slice):
            chosen = range(self._length)[index]
            if chosen.step == 1:
                first, make = chosen.start, self._make
                return Rows(lambda start, stop: make(first + start, first + stop), len(chosen))
            return Rows(lambda start, stop: [self[i] for i in chosen[start:stop]], len(chosen))
        position = operator.index(index)
        if position < 0:
            position += self._length
        if not 0 <= position < self._length:
            raise IndexError(f"row {index} of {self._length}")
        return self._make(position, position + 1)[0]

    def __iter__(self) -> Any:
        for start in range(0, self._length, _AT_ONCE):
            yield from self._make(start, min(start + _AT_ONCE, self._length))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self._length} rows>"


_AT_ONCE = 1024

RECORD_FIELDS = tuple(field.name for field in fields(Record))
