# SPDX-License-Identifier: Apache-2.0
"""The operators, modules and optimizers that PyTorch's own tests know, as tasks for the pool."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Sequence
from typing import Any

import torch

KINDS = ("op", "module", "optimizer")


@functools.cache
def ops() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


@functools.cache
def modules() -> list[Any]:
    from torch.testing._internal.common_modules import module_db

    return list(module_db)


@functools.cache
def optimizers() -> list[Any]:
    from torch.testing._internal.common_optimizers import optim_db

    return list(optim_db)


def name_of(kind: str, info: Any) -> str:
    """The name used in reports and in the table of exceptions."""
    if kind == "op":
        return str(info.full_name)
    return f"{kind}:{info.name if kind == 'module' else info.optim_cls.__name__}"


def items(kind: str) -> list[Any]:
    """All entries of one kind."""
    return {"op": ops, "module": modules, "optimizer": optimizers}[kind]()


def dtypes_of(kind: str, info: Any) -> list[str]:
    """The types an entry is checked in."""
    if kind == "op":
        return sorted(str(dtype).removeprefix("torch.") for dtype in info.dtypes)
    if kind == "module":
        return sorted(str(dtype).removeprefix("torch.") for dtype in info.dtypes)
    return ["complex64", "float32", "float64"]


def tasks(
    patterns: Sequence[str] = ("*",), dtypes: Sequence[str] = (), kinds: Sequence[str] = KINDS
) -> list[dict[str, Any]]:
    """One task per entry whose name matches a pattern, restricted to `dtypes` when given."""
    result = []
    for kind in kinds:
        for index, info in enumerate(items(kind)):
            name = name_of(kind, info)
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                continue
            chosen = [dtype for dtype in dtypes_of(kind, info) if not dtypes or dtype in dtypes]
            result.append({"kind": kind, "index": index, "name": name, "dtypes": chosen})
    return result


def as_dtype(name: str) -> torch.dtype:
    return getattr(torch, name)
