# SPDX-License-Identifier: Apache-2.0
"""Names of operators, checked against PyTorch's."""

from __future__ import annotations

from torch_fl._suggest import did_you_mean
from torch_fl.routing.errors import ConfigError


def checked_op(op: str) -> str:
    """Return the full name of an operator ("add.Tensor" -> "aten::add.Tensor"); refuse one that does not exist."""
    import torch

    if not isinstance(op, str) or not op.strip():
        raise ConfigError(f'no operator {op!r}: expected a name such as "aten::sort" or "add.Tensor"')
    name = _full_name(op)
    base, dot, overload = name.partition(".")
    schemas = torch._C._jit_get_schemas_for_operator(base)
    overloads = [schema.overload_name for schema in schemas if _has_dispatch(base, schema.overload_name)]
    if not overloads:
        known = {item.partition(".")[0] for item in torch._C._dispatch_get_all_op_names()}
        raise ConfigError(f"no operator {name!r}{did_you_mean(base, known)}")
    if dot and (not overload or overload not in overloads):
        guess = did_you_mean(overload, overloads) or f" (overloads: {', '.join(filter(None, overloads)) or 'none'})"
        raise ConfigError(f"operator {base} has no overload {overload!r}{guess}")
    return name


def _full_name(op: str) -> str:
    return op if "::" in op or not op else f"aten::{op}"


def _has_dispatch(base: str, overload: str) -> bool:
    """Tell whether an overload can be called with tensors; TorchScript has more of its own (``aten::sort.int``)."""
    import torch

    try:
        torch._C._dispatch_find_schema_or_throw(base, overload)
    except RuntimeError:
        return False
    return True
