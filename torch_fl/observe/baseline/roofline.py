# SPDX-License-Identifier: Apache-2.0
"""Rates, and how near they are to what the device can do at most (Williams, Waterman and Patterson, 2009)."""

from __future__ import annotations

from dataclasses import dataclass

from torch_fl.observe.baseline.results import CaseResult, Kind, Results


@dataclass(frozen=True)
class Roof:
    """One case under the roofs that the chip names."""

    flops: float  # operations a second; 0: unknown
    bandwidth: float  # bytes a second that must move at least; 0: unknown
    share: float | None  # of the roof that bounds the case; None: the chip names no peak, or nothing is known
    bound: str  # "compute", "memory" or ""


def moved(case: CaseResult) -> int:
    """Return the bytes that one call moves at least; a copy within the device reads each and writes it."""
    if case.kind is not Kind.COPY:
        return case.bytes
    return case.bytes_copied * (2 if case.direction == "d2d" else 1)


def roof(case: CaseResult, results: Results) -> Roof:
    """Return a case's rates and its share of the lower roof.

    The peak of operations is one of float32, so that other types have the roof of memory alone. The peak of bandwidth
    is one of the device's memory: copies between host and device are bound by what lies between, whose peak no chip
    names.
    """
    nanoseconds = case.time().median
    flops, bandwidth = ((count * 1e9 / nanoseconds if nanoseconds else 0.0) for count in (case.flops, moved(case)))
    device = results.device
    shares = {}
    if flops and device.peak_flops and case.dtype == "float32":
        shares["compute"] = flops / device.peak_flops
    if bandwidth and device.peak_bandwidth and (case.kind is not Kind.COPY or case.direction == "d2d"):
        shares["memory"] = bandwidth / device.peak_bandwidth
    if not shares:
        return Roof(flops, bandwidth, None, "")
    # The roof that takes longest by itself is the one that bounds.
    bound = max(shares, key=lambda name: shares[name])
    return Roof(flops, bandwidth, shares[bound], bound)
