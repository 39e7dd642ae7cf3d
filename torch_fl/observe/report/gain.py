# SPDX-License-Identifier: Apache-2.0
"""What a run would gain if the chip had a kernel for an operator that ran on the host.

The run is replayed twice on two clocks, the host's and the device's: as it was, and with the operator's calls as
kernels. Replayed, because costs do not add up: a call on the host first waits for the device, which is no cost of its
own where the device is what the run waits for anyway, and is one where it keeps host and device from working side by
side.

The kernel's time is estimated from the run itself: the launch cost of the chip's kernels, and the bytes that the
operator touches at the rate at which its kernels touch theirs. docs/reports.md has the formula.
"""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

ON_CHIP = ("kernel", "portable", "override")
MOST = 200_000  # calls that are replayed, the last ones; longer runs are scaled


@dataclass(frozen=True, slots=True)
class Call:
    """One operator call, in nanoseconds and bytes. ``own_ns`` leaves out the calls inside it."""

    key: Hashable  # calls with one key would become kernels together
    device: int
    route: str
    start_ns: int
    ns: int
    own_ns: int
    wait_ns: int = 0  # for earlier work of the device
    copy_ns: int = 0
    compute_ns: int = 0
    device_ns: int = 0
    moved: int = 0  # between host and device
    touched: int = 0  # read and written by a kernel; 0: unknown


@dataclass(frozen=True)
class Chip:
    """How fast a chip's kernels were in a run."""

    launch_ns: float  # the host's share of a kernel call
    start_ns: float  # the device's time for the smallest kernels
    bytes_per_ns: float  # that its larger kernels touch; 0: unknown


@dataclass(frozen=True)
class Gain:
    """What kernels for one key's calls would change."""

    now_ns: float  # what the calls take on the host, without waiting for earlier work
    kernel_ns: float  # what they would take as kernels
    gain_ns: float  # by how much the run would be shorter


def measure(calls: Iterable[Call]) -> Chip | None:
    """Return how fast the chip's kernels were, or None if there were none."""
    kernels = [call for call in calls if call.route in ON_CHIP]
    if not kernels:
        return None
    launch = statistics.median(call.own_ns - call.wait_ns for call in kernels)
    timed = sorted(call.device_ns for call in kernels if call.device_ns)
    if not timed:
        return Chip(launch, 0.0, 0.0)
    start = float(timed[len(timed) // 20])
    touching = [call for call in kernels if call.touched and call.device_ns]
    large = [call for call in touching if call.device_ns > 2 * start] or touching
    rates = sorted(call.touched / call.device_ns for call in large)
    return Chip(launch, start, rates[3 * len(rates) // 4] if rates else 0.0)


def copy_rate(calls: Iterable[Call]) -> float:
    """Return the bytes that the host moves in a nanosecond, 0 if it moved none."""
    moving = [call for call in calls if call.moved and call.copy_ns]
    taken = sum(call.copy_ns for call in moving)
    return sum(call.moved for call in moving) / taken if taken else 0.0


def kernel_ns(call: Call, chip: Chip | None, rate: float) -> float:
    """Estimate what a call on the host would take the device.

    It touches no more than it moved, and no more than the host could touch while it computed.
    """
    if chip is None or not chip.bytes_per_ns:
        return float(call.compute_ns)
    touched = min([size for size in (call.moved, call.compute_ns * rate) if size], default=0.0)
    return max(chip.start_ns, touched / chip.bytes_per_ns)


def device_times(calls: Sequence[Call]) -> list[int]:
    """Return what each of the calls, by start, took its device.

    Where a chip tells no times, a call that had to wait tells how long the device worked on what was enqueued before:
    as long as the host went on, and then waited. Kernels since the call that waited before share that time.
    """
    told = {call.device for call in calls if call.device_ns}
    times = [call.device_ns for call in calls]
    began: dict[int, int] = {}  # when the device was given the first of
    pending: dict[int, list[int]] = {}
    for i, call in enumerate(calls):
        if call.device in told:
            continue
        if call.route in ON_CHIP:
            began.setdefault(call.device, call.start_ns)
            pending.setdefault(call.device, []).append(i)
        elif call.wait_ns:
            kernels = pending.pop(call.device, [])
            worked = call.start_ns + call.wait_ns - began.pop(call.device, call.start_ns)
            for j in kernels:
                times[j] = max(0, worked // len(kernels))
    return times


def replay(
    calls: Sequence[Call],
    times: Sequence[int],
    end_ns: int = 0,
    replaced: Hashable = None,
    chip: Chip | None = None,
    rate: float = 0.0,
) -> float:
    """Return how long a run takes that ended at an instant, with the calls of a key as kernels.

    Args:
        calls: by start.
        times: what each took its device.
        end_ns: when the run ended.
        replaced: the key.
        chip: how fast kernels are.
        rate: at which the host moves bytes.
    """
    if not calls:
        return 0.0
    host, covered = 0.0, calls[0].start_ns
    devices: dict[int, float] = {}
    for call, device_ns in zip(calls, times, strict=True):
        host += max(0, call.start_ns - covered)  # what the program does between calls
        covered = max(covered, call.start_ns + call.ns)
        busy_until = devices.get(call.device, 0.0)
        if call.route == "host" and call.key == replaced:
            host += chip.launch_ns if chip else 0.0
            devices[call.device] = max(busy_until, host) + kernel_ns(call, chip, rate)
        elif call.route in ON_CHIP:
            host += call.own_ns - call.wait_ns
            devices[call.device] = max(busy_until, host) + device_ns
        else:
            if call.wait_ns:
                host = max(host, busy_until)
            host += call.own_ns - call.wait_ns
    host += max(0, end_ns - covered)
    return max(host, *devices.values()) if devices else host


def estimate(
    calls: Sequence[Call], keys: Iterable[Hashable], end_ns: int = 0, scale: float = 1.0
) -> dict[Hashable, Gain]:
    """Return the gain of kernels for the calls of each key, each on its own.

    Args:
        calls: of a run, or of its last part.
        keys: of calls on the host.
        end_ns: when the run ended.
        scale: how many calls the run had for each of these.
    """
    window = sorted(calls, key=lambda call: call.start_ns)
    of_device: dict[int, list[Call]] = {}
    for call in window:
        of_device.setdefault(call.device, []).append(call)
    chips = {device: measure(some) for device, some in of_device.items()}
    rate, times = copy_rate(window), device_times(window)
    as_it_was = replay(window, times, end_ns)
    gains: dict[Hashable, Gain] = {}
    for key in keys:
        mine = [call for call in window if call.route == "host" and call.key == key]
        if not mine:
            continue
        chip = chips[mine[0].device]
        gains[key] = Gain(
            now_ns=scale * sum(call.own_ns - call.wait_ns for call in mine),
            kernel_ns=scale * sum(kernel_ns(call, chip, rate) for call in mine),
            gain_ns=scale * max(0.0, as_it_was - replay(window, times, end_ns, key, chip, rate)),
        )
    return gains
