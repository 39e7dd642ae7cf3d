# SPDX-License-Identifier: Apache-2.0
"""What a report says, as plain data: made of a profile in the process that ran, shown on a page in another.

docs/reports.md documents the JSON; `VERSION` changes when a reader of the old form would be misled.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timezone
from functools import lru_cache
from math import prod

from torch_fl.observe.profile import Profile
from torch_fl.observe.records import Group, Record, Shape
from torch_fl.observe.report import gain
from torch_fl.observe.report.advice import fix

VERSION = 1
ON_CHIP = gain.ON_CHIP
MADE_OF_OTHERS = ("composite", "decomposed")  # whose parts are calls themselves
CANDIDATES, CELLS, GROUPS, BINS, POINTS = 30, 2000, 500, 120, 1000  # the most that is kept of each
_SITE = ("op", "overload", "chip", "device", "reason", "site", "layer", "backward", "route")


@dataclass(frozen=True)
class Share:
    """One route's part of a run."""

    route: str
    calls: int
    time_ns: int


@dataclass(frozen=True)
class Row:
    """Calls that are alike in everything but their arguments."""

    op: str
    chip: str
    device: int
    route: str
    reason: str
    site: str
    layer: str
    backward: bool
    calls: int
    failed: int
    bytes: int
    syncs: int
    cost_ns: int  # on the chip: the device's time, where it is known; else the host's, without waiting
    wait_ns: int
    copy_ns: int
    compute_ns: int
    device_ns: int


@dataclass(frozen=True)
class Candidate:
    """An operator that left the chip for one reason, and what a kernel for it would gain."""

    op: str
    chip: str
    device: int
    reason: str
    fix: str
    calls: int
    bytes: int
    syncs: int
    copy_ns: int
    compute_ns: int
    wait_ns: int
    now_ns: float
    kernel_ns: float
    gain_ns: float
    gain_share: float  # of the run
    where: str  # the costliest layer or line


@dataclass(frozen=True)
class Timeline:
    """What the host and the devices did, in equal stretches of time, as shares (0 to 1)."""

    bin_ns: float = 0.0
    launching: list[float] = field(default_factory=list)
    host_operators: list[float] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)
    devices: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Fact:
    """A line about the machine."""

    section: str
    name: str
    value: str


@dataclass(frozen=True)
class Report:
    """Everything on the page."""

    title: str
    created: str
    wall_ns: int
    calls: int
    dropped: int
    device_times: bool
    on_chip_calls: float
    on_chip_time: float
    host_ns: int
    host_calls: int
    host_bytes: int
    syncs: int
    wait_ns: int
    peak_bytes: int
    routes: list[Share]
    candidates: list[Candidate]
    fallbacks: list[Row]
    groups: list[Row]
    groups_left: int
    groups_left_ns: int
    memory: dict[str, list[tuple[float, int]]]  # ms since the start, bytes
    timeline: Timeline
    environment: list[Fact]
    notes: list[str]
    failure: str = ""
    version: int = VERSION

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> Report:
        """Read what `to_json` wrote.

        Raises:
            ValueError: it is another version's, or no report.
        """
        found = json.loads(text)
        if not isinstance(found, dict) or found.get("version") != VERSION:
            version = found.get("version") if isinstance(found, dict) else None
            raise ValueError(f"expected a report of version {VERSION}, found version {version!r}")
        parts = {"routes": Share, "candidates": Candidate, "fallbacks": Row, "groups": Row, "environment": Fact}
        lists = {name: [kind(**row) for row in found[name]] for name, kind in parts.items()}
        return Report(**{**found, **lists, "timeline": Timeline(**found["timeline"])})


def collect(profile: Profile, title: str, failure: str = "") -> Report:
    """Make the report of a profile, in the process that was profiled."""
    from torch_fl.observe.report.environment import facts

    rows = [_row(group) for group in profile.groups(_SITE)]
    shares = _shares(rows)
    counted = [share for share in shares if share.route not in (*MADE_OF_OTHERS, "copy")]
    on_chip = [share for share in counted if share.route in ON_CHIP]
    told = any(row.device_ns for row in rows if row.route in ON_CHIP)
    # Who does not know how long the device worked knows at least how long it was waited for.
    waited = 0 if told or not on_chip else sum(row.wait_ns for row in rows)
    calls, time = sum(share.calls for share in counted), sum(share.time_ns for share in counted) + waited
    host = [row for row in rows if row.route == "host"]
    listed = sorted(rows, key=lambda row: (-row.cost_ns, -row.calls, row.op))
    window, timeline = _pass_over(profile)
    wall = profile.end_ns - profile.start_ns
    return Report(
        title=title,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        wall_ns=wall,
        calls=calls,
        dropped=profile.dropped,
        device_times=told,
        on_chip_calls=_of(sum(share.calls for share in on_chip), calls),
        on_chip_time=_of(sum(share.time_ns for share in on_chip) + waited, time),
        host_ns=sum(row.cost_ns for row in host),
        host_calls=sum(row.calls for row in host),
        host_bytes=sum(row.bytes for row in host),
        syncs=sum(row.syncs for row in rows),
        wait_ns=sum(row.wait_ns for row in rows),
        peak_bytes=max((sample.allocated_bytes for sample in profile.memory(POINTS)), default=0),
        routes=shares,
        candidates=_candidates(host, window, profile.end_ns, len(profile.records), wall),
        fallbacks=sorted(host, key=lambda row: (-row.cost_ns, -row.calls))[:CELLS],
        groups=listed[:GROUPS],
        groups_left=len(listed[GROUPS:]),
        groups_left_ns=sum(row.cost_ns for row in listed[GROUPS:]),
        memory=_memory(profile),
        timeline=timeline,
        environment=facts(),
        notes=list(profile.notes),
        failure=failure,
    )


def _of(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _row(group: Group) -> Row:
    known = {name: getattr(group, name) for name in (item.name for item in fields(Row)) if hasattr(group, name)}
    own = group.self_host_ns - group.wait_ns
    cost = (group.device_ns or own) if group.route in (*ON_CHIP, "copy") else own
    return Row(**{**known, "op": group.name, "cost_ns": max(0, cost)})


def _shares(rows: Iterable[Row]) -> list[Share]:
    sums: dict[str, tuple[int, int]] = {}
    for row in rows:
        calls, time = sums.get(row.route, (0, 0))
        sums[row.route] = calls + row.calls, time + row.cost_ns
    return sorted((Share(route, *both) for route, both in sums.items()), key=lambda share: -share.calls)


# ---- What to implement first ---------------------------------------------------------------------------------------

Key = tuple[str, str, int, str]  # operator, chip, device, reason


def _candidates(
    host: Sequence[Row], window: Sequence[gain.Call], end_ns: int, recorded: int, wall: int
) -> list[Candidate]:
    """Rank the operators on the host by what kernels for them would gain."""
    of_key: dict[Key, list[Row]] = {}
    for row in host:
        of_key.setdefault((row.op, row.chip, row.device, row.reason), []).append(row)
    costliest = sorted(of_key, key=lambda key: -sum(row.cost_ns + row.wait_ns for row in of_key[key]))[:CANDIDATES]
    gains = gain.estimate(window, costliest, end_ns, recorded / max(1, len(window)))
    found = [_candidate(key, of_key[key], gains[key], wall) for key in costliest if key in gains]
    return sorted(found, key=lambda candidate: (-candidate.gain_ns, -candidate.now_ns, candidate.op))


def _candidate(key: Key, rows: Sequence[Row], expected: gain.Gain, wall: int) -> Candidate:
    op, chip, device, reason = key
    top = max(rows, key=lambda row: row.cost_ns)
    sums = {name: sum(getattr(row, name) for row in rows) for name in _SUMS}
    return Candidate(
        op,
        chip,
        device,
        reason,
        fix(op, reason),
        **sums,
        now_ns=expected.now_ns,
        kernel_ns=expected.kernel_ns,
        gain_ns=expected.gain_ns,
        gain_share=_of(expected.gain_ns, wall),
        where=" · ".join(part for part in (top.layer, top.site) if part),
    )


_SUMS = ("calls", "bytes", "syncs", "copy_ns", "compute_ns", "wait_ns")
_BITS = re.compile(r"(\d+)$")


def _call(record: Record) -> gain.Call:
    touched = _touched(record.shapes, record.dtypes) if record.route in ON_CHIP else 0
    return gain.Call(
        key=(record.name, record.chip, record.device, record.reason),
        device=record.device,
        route=record.route,
        start_ns=record.start_ns,
        ns=record.host_ns,
        own_ns=record.self_host_ns,
        wait_ns=record.wait_ns,
        copy_ns=record.copy_ns,
        compute_ns=record.compute_ns,
        device_ns=record.device_ns,
        moved=record.bytes,
        touched=touched,
    )


@lru_cache(maxsize=4096)
def _touched(shapes: tuple[Shape, ...], dtypes: tuple[str, ...]) -> int:
    """Bytes that a kernel reads, and writes if its result is as large as its largest argument."""
    sizes = [
        prod(shape) * _item_bytes(dtype)
        for shape, dtype in zip(shapes, dtypes, strict=False)
    ]  # fmt: skip
    return sum(sizes) + max(sizes, default=0)


def _item_bytes(dtype: str) -> int:
    bits = _BITS.search(dtype)
    return max(1, int(bits[1]) // 8) if bits else 1


# ---- Over time -----------------------------------------------------------------------------------------------------


def _pass_over(profile: Profile) -> tuple[list[gain.Call], Timeline]:
    """Look at every record once: the calls to replay, and what the host did when."""
    start, wall = profile.start_ns, max(1, profile.end_ns - profile.start_ns)
    bins = Bins(start, wall, BINS)
    window: deque[gain.Call] = deque(maxlen=gain.MOST)
    launching, operators, waiting = bins.empty(), bins.empty(), bins.empty()
    for record in profile.records:
        window.append(_call(record))
        end, waited = record.start_ns + record.host_ns, record.start_ns + record.wait_ns
        bins.add(waiting, record.start_ns, waited, record.wait_ns)  # a call that waits does so first
        lane = operators if record.route == "host" else launching
        bins.add(lane, waited, end, record.self_host_ns - record.wait_ns)
    devices: dict[str, list[float]] = {}
    for event in profile.events:
        if event.kind != "runtime":
            lane = devices.setdefault(f"fl:{event.device}", bins.empty())
            bins.add(lane, event.start_ns, event.end_ns, event.end_ns - event.start_ns)
    shares = {name: bins.shares(lane) for name, lane in sorted(devices.items())}
    launched, worked, waited = (bins.shares(lane) for lane in (launching, operators, waiting))
    return list(window), Timeline(bins.width, launched, worked, waited, shares)


class Bins:
    """Equal stretches of a run, over which times are spread."""

    def __init__(self, start: int, length: int, count: int) -> None:
        self.start, self.width, self.count = start, length / count, count

    def empty(self) -> list[float]:
        """Return a lane with nothing in it."""
        return [0.0] * self.count

    def add(self, lane: list[float], begin: int, end: int, amount: float) -> None:
        """Spread an amount evenly over [begin, end)."""
        if amount <= 0 or end <= begin:
            return
        first, last = self._bin(begin), self._bin(end)
        if first == last:
            lane[first] += amount
            return
        rate = amount / (end - begin)
        for i in range(first, last + 1):
            low, high = self.start + i * self.width, self.start + (i + 1) * self.width
            lane[i] += rate * max(0.0, min(end, high) - max(begin, low))

    def _bin(self, instant: int) -> int:
        return min(self.count - 1, max(0, int((instant - self.start) / self.width)))

    def shares(self, lane: Sequence[float]) -> list[float]:
        """Return the share of each stretch; threads and streams side by side are at most all of it."""
        return [round(min(1.0, amount / self.width), 4) for amount in lane]


def _memory(profile: Profile) -> dict[str, list[tuple[float, int]]]:
    found: dict[str, list[tuple[float, int]]] = {}
    for sample in profile.memory(POINTS):
        moment = round((sample.time_ns - profile.start_ns) / 1e6, 4)
        found.setdefault(f"fl:{sample.device}", []).append((moment, sample.allocated_bytes))
    return found
