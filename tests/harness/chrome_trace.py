# SPDX-License-Identifier: Apache-2.0
"""A reader of Chrome traces (the Trace Event Format) that is as strict as a viewer would have to be."""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

Event = dict[str, Any]

_PHASES = frozenset("XBEbneiICMstf")
_METADATA = {
    "process_name": "name",
    "process_labels": "labels",
    "process_sort_index": "sort_index",
    "thread_name": "name",
    "thread_sort_index": "sort_index",
}
_ROUNDING_US = 0.0011  # times are written with three decimals


def load(path: Path) -> dict[str, Any]:
    """Parse a trace, plain or compressed. NaN and Infinity are no JSON."""

    def refuse(word: str) -> None:
        raise ValueError(f"{path}: {word} is no JSON")

    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    trace = json.loads(data, parse_constant=refuse)
    if not isinstance(trace, dict):
        raise ValueError(f"{path}: expected an object, found {type(trace).__name__}")
    return trace


def problems(trace: dict[str, Any]) -> list[str]:
    """Return everything that a viewer would stumble over, for people."""
    events = trace.get("traceEvents")
    if not isinstance(events, list):
        return ["traceEvents: expected a list"]
    found = [f"event {i} ({event}): {what}" for i, event in enumerate(events) for what in _of_event(event)]
    return found + _of_flows(events) + _of_nesting(events)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _of_event(event: Any) -> list[str]:
    if not isinstance(event, dict):
        return ["expected an object"]
    phase = event.get("ph")
    if phase not in _PHASES:
        return [f"unknown phase {phase!r}"]
    wrong = [f"{key} is missing" for key in ("name", "pid", "tid") if key not in event]
    if not isinstance(event.get("name", ""), str):
        wrong.append("name is no text")
    if not isinstance(event.get("args", {}), dict):
        wrong.append("args is no object")
    if phase == "M":
        return wrong + _of_metadata(event)
    if not _number(event.get("ts")):
        wrong.append("ts is no number")
    if phase == "X" and not (_number(event.get("dur")) and event["dur"] >= 0):
        wrong.append("dur is no length of time")
    if phase in "stf" and ("id" not in event or "cat" not in event):
        wrong.append("a flow without id or cat")
    if phase == "C" and not all(_number(value) for value in event.get("args", {}).values()):
        wrong.append("a counter whose value is no number")
    return wrong


def _of_metadata(event: Event) -> list[str]:
    key = _METADATA.get(event.get("name", ""))
    if key is None:
        return []
    return [] if key in event.get("args", {}) else [f"metadata without args.{key}"]


def _of_flows(events: list[Event]) -> list[str]:
    """Every arrow has one beginning, no later than its ends."""
    starts: dict[tuple[str, str, Any], float] = {}
    wrong = []
    for event in events:
        if event.get("ph") == "s":
            key = (event["cat"], event["name"], event["id"])
            if key in starts:
                wrong.append(f"two arrows begin as {key}")
            starts[key] = event["ts"]
    for event in events:
        if event.get("ph") in ("t", "f"):
            key = (event["cat"], event["name"], event["id"])
            if key not in starts:
                wrong.append(f"the arrow {key} has no beginning")
    return wrong


def _of_nesting(events: list[Event]) -> list[str]:
    """What one row shows lies side by side or within each other: viewers draw nothing else."""
    rows: dict[tuple[Any, Any], list[Event]] = defaultdict(list)
    for event in events:
        if event.get("ph") == "X" and _number(event.get("ts")) and _number(event.get("dur")):
            rows[(event["pid"], event["tid"])].append(event)
    wrong = []
    for row, members in rows.items():
        around: list[Event] = []
        for event in sorted(members, key=lambda e: (e["ts"], -e["dur"])):
            while around and around[-1]["ts"] + around[-1]["dur"] <= event["ts"] + _ROUNDING_US:
                around.pop()
            if around and event["ts"] + event["dur"] > around[-1]["ts"] + around[-1]["dur"] + _ROUNDING_US:
                wrong.append(f"row {row}: {event['name']!r} and {around[-1]['name']!r} overlap in part")
            around.append(event)
    return wrong
