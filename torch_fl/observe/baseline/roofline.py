# SPDX-License-Identifier: Apache-2.0
"""Rates, and how near they are to what the device can do at most (Williams, Waterman and Patterson, 2009)."""

from __future__ import annotations

from dataclasses import dataclass

from torch_fl.observe.baseline.results import CaseResult, Results


@dataclass(frozen=True)
class Roof:
    """One case under the roofs that the chip names."""

    flops: float  # operations a second; 0: unknown
    bandwidth: float  # bytes a second that must move at least; 0: unknown
    share: float | None  # of the roof that bounds the case; None: the chip names no peak, or nothing is known
    bound: str  # "compute", "memory" or ""


def roof(case: CaseResult, results: Results) -> Roof:
    """Return a case's rates and its share of the lower roof.

    The peak of operations is one of float32, so that other types have the roof of memory alone.
    """
    nanoseconds = case.time().median
    moved = case.bytes_copied or case.bytes
    flops, bandwidth = ((count * 1e9 / nanoseconds if nanoseconds else 0.0) for count in (case.flops, moved))
    peaks = {key: float(results.device.get(key) or 0.0) for key in ("peak_flops", "peak_bandwidth")}
    shares = {}
    if flops and peaks["peak_flops"] and case.dtype == "float32":
        shares["compute"] = flops / peaks["peak_flops"]
    if bandwidth and peaks["peak_bandwidth"]:
        shares["memory"] = bandwidth / peaks["peak_bandwidth"]
    if not shares:
        return Roof(flops, bandwidth, None, "")
    # The roof that takes longest by itself is the one that bounds.
    bound = max(shares, key=lambda name: shares[name])
    return Roof(flops, bandwidth, shares[bound], bound)
