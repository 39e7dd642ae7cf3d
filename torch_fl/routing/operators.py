# SPDX-License-Identifier: Apache-2.0
"""The operators of the installed torch, by name."""

from __future__ import annotations

from typing import Any


def overloads(base: str) -> dict[str, Any]:
    """Return the schemas of an operator's overloads, by their names ("" is the default overload's).

    Those that cannot be called with tensors are left out; TorchScript has some of its own (``aten::sort.int``).
    """
    import torch

    schemas = torch._C._jit_get_schemas_for_operator(base)
    return {schema.overload_name: schema for schema in schemas if _has_dispatch(base, schema.overload_name)}


def known_operators() -> set[str]:
    """Return the names of all operators, without overloads."""
    import torch

    return {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}


def _has_dispatch(base: str, overload: str) -> bool:
    import torch

    try:
        torch._C._dispatch_find_schema_or_throw(base, overload)
    except RuntimeError:
        return False
    return True
