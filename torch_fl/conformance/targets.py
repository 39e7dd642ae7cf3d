# SPDX-License-Identifier: Apache-2.0
"""What is to be checked on a chip: operators, each with element types."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch_fl
from torch_fl.conformance.case import dtype_name, overload_name
from torch_fl.conformance.operators import OPERATORS

ROUTES = ("kernel", "portable", "override", "decomposed", "host")
DEFAULT_ROUTES = ("kernel", "portable", "override")
QUICK_DTYPES = ("float32", "float16", "int64", "bool", "complex64")
GRAD_DTYPES = ("float32", "float64")
OPINFO = "opinfo:"


@dataclass
class Target:
    """One operator, the element types to check it in, and why others are not checked."""

    op: str
    dtypes: list[str]
    untested: dict[str, str] = field(default_factory=dict)  # reason by type


@dataclass(frozen=True)
class Selection:
    """What was asked for."""

    chip: str
    mode: str = "test"
    routes: tuple[str, ...] = DEFAULT_ROUTES
    ops: str = ""
    dtypes: tuple[str, ...] = ()
    quick: bool = False
    opinfo: bool = False


def targets(selection: Selection) -> list[Target]:
    """Return what to check on a chip that is loaded, sorted by name."""
    claimed = _claimed(selection)
    names = set(claimed)
    if not names or selection.mode == "support" or {"host", "decomposed"} & set(selection.routes):
        names |= set(OPERATORS)
    found = [_target(name, claimed.get(name), selection) for name in sorted(names) if _matches(name, selection.ops)]
    if selection.opinfo:
        found += [target for target in _opinfo_targets(selection) if _matches(target.op, selection.ops)]
    return found


def _claimed(selection: Selection) -> dict[str, set[str]]:
    """Types by operator for which the chip has kernels on the wanted routes."""
    kernels = torch_fl.registered_ops_summary().chips.get(selection.chip, ())
    result: dict[str, set[str]] = {}
    for kernel in kernels:
        if kernel.route in selection.routes:
            result.setdefault(kernel.op, set()).update(kernel.dtypes or (ANY,))
    return result


ANY = "any"


def _target(name: str, claimed: set[str] | None, selection: Selection) -> Target:
    operator = OPERATORS.get(name)
    if operator is None:
        return Target(name, [], {"-": "the kit has no case for it"})
    known = [dtype_name(dtype) for dtype in operator.dtypes]
    if selection.mode == "grad":
        known = [name for name in known if name in GRAD_DTYPES]
    if claimed is not None and ANY not in claimed and selection.mode != "support":
        known = [name for name in known if name in claimed]
    wanted = selection.dtypes or (QUICK_DTYPES if selection.quick else ())
    chosen = [name for name in known if not wanted or name in wanted]
    return Target(name, chosen)


def _matches(name: str, patterns: str) -> bool:
    """Tell whether a name fits one of the comma-separated patterns: "add", "add.*", "*pool*"."""
    if not patterns:
        return True
    short = overload_name(name)
    return any(
        fnmatch.fnmatchcase(candidate, pattern.strip())
        for pattern in patterns.split(",")
        for candidate in (name, short, short.partition(".")[0])
    )


def _opinfo_targets(selection: Selection) -> Iterable[Target]:
    from torch_fl.conformance.opinfo import catalogue

    wanted: Sequence[str] = selection.dtypes or (QUICK_DTYPES[:3] if selection.quick else QUICK_DTYPES)
    for name, info in catalogue().items():
        supported = {dtype_name(dtype) for dtype in info.supported_dtypes("cpu")}
        yield Target(OPINFO + name, [dtype for dtype in wanted if dtype in supported])


def as_task(target: Target) -> dict[str, Any]:
    """Return the message that asks a worker for a target."""
    return {"op": target.op, "dtypes": target.dtypes}
