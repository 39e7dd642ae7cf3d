# SPDX-License-Identifier: Apache-2.0
"""Names of operators, checked against PyTorch's."""

from __future__ import annotations

from torch_fl._suggest import did_you_mean
from torch_fl.routing import operators
from torch_fl.routing.errors import ConfigError


def checked_op(op: str) -> str:
    """Return the full name of an operator ("add.Tensor" -> "aten::add.Tensor"); refuse one that does not exist."""
    if not isinstance(op, str) or not op.strip():
        raise ConfigError(f'no operator {op!r}: expected a name such as "aten::sort" or "add.Tensor"')
    name = _full_name(op)
    base, dot, overload = name.partition(".")
    known = operators.overloads(base)
    if not known:
        raise ConfigError(f"no operator {name!r}{did_you_mean(base, operators.known_operators())}")
    if dot and (not overload or overload not in known):
        guess = did_you_mean(overload, known) or f" (overloads: {', '.join(filter(None, known)) or 'none'})"
        raise ConfigError(f"operator {base} has no overload {overload!r}{guess}")
    return name


def _full_name(op: str) -> str:
    return op if "::" in op or not op else f"aten::{op}"
