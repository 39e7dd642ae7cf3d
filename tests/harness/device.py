# SPDX-License-Identifier: Apache-2.0
"""The device under test: its name, how it is loaded, and its counters.

TORCH_FL_TEST_DEVICE names the device (default "fl"). With "cpu" the suites compare the CPU with itself, which is how
the harness is tested without a chip.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch

DEVICE = os.environ.get("TORCH_FL_TEST_DEVICE", "fl")

# Operators that move, view or allocate. They say nothing about where the arithmetic ran, so they are not counted.
NON_COMPUTE = frozenset(
    [
        "_copy_from",
        "_copy_from_and_resize",
        "copy_",
        "_to_copy",
        "set_",
        "empty",
        "empty_strided",
        "resize_",
        "view",
        "as_strided",
        "_reshape_alias",
        "unfold",
        "view_as_real",
        "view_as_complex",
        "_local_scalar_dense",
        "clone",
        "detach",
        "alias",
        "record_stream",
    ]
)


def is_stock() -> bool:
    """True when the device under test is one that stock PyTorch has (the harness testing itself)."""
    return torch.device(DEVICE).type in ("cpu", "cuda", "meta")


def load() -> Any:
    """Make the device available. Returns the torch_fl module, or None for a stock device."""
    if DEVICE.split(":")[0] in ("cpu", "cuda", "meta"):
        return None
    return importlib.import_module("torch_fl")


def synchronize() -> None:
    """Wait for the device, so that failures surface here."""
    if not is_stock():
        torch.accelerator.synchronize()


def reset_counters() -> None:
    """Forget the calls so far."""
    module = load()
    if module is not None:
        module.reset_counters()


def _field(row: Any, name: str) -> Any:
    return row[name] if isinstance(row, dict) else getattr(row, name)


def route_calls(include_moves: bool = False) -> dict[tuple[str, str], int]:
    """Calls since the last reset by ("op.overload", route), without the operators that only move data."""
    module = load()
    calls: dict[tuple[str, str], int] = {}
    for row in module.counters() if module is not None else ():
        op = str(_field(row, "op")).removeprefix("aten::")
        if op in NON_COMPUTE and not include_moves:
            continue
        overload = str(_field(row, "overload") or "")
        name = f"{op}.{overload}" if overload and overload != "default" else op
        key = (name, str(_field(row, "route")))
        calls[key] = calls.get(key, 0) + int(_field(row, "calls"))
    return calls


def native_share(calls: dict[tuple[str, str], int]) -> float:
    """Share of calls that did not go to the host, 1.0 when nothing was called."""
    total = sum(calls.values())
    host = sum(count for (_, route), count in calls.items() if route == "host")
    return 1.0 - host / total if total else 1.0
