# SPDX-License-Identifier: Apache-2.0
"""Settings: ``set_config``, ``get_config``, ``config``, and the environment.

============================ ============================ =======================================================
key                          values                       meaning
============================ ============================ =======================================================
``fallback``                 allow, warn, deny            what to do with calls that would leave the chip
``fallback.<operator>``      allow, warn, deny, None      the same for one operator; None: as ``fallback`` says
============================ ============================ =======================================================

``TORCH_FL_FALLBACK`` holds the first values: ``deny``, or ``warn,aten::sort=allow,aten::topk=deny``.
A setting made in the program wins over the environment.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from torch_fl import _load
from torch_fl._suggest import did_you_mean
from torch_fl.routing.errors import ConfigError

POLICIES = ("allow", "warn", "deny")
KEYS = ("fallback",)
ENVIRONMENT = "TORCH_FL_FALLBACK"

_default = "allow"
_by_op: dict[str, str] = {}


def start(core: Any) -> None:
    """Apply the environment to the extension, which is being loaded."""
    global _default
    default, by_op = parse_environment(os.environ.get(ENVIRONMENT, ""))
    if default is not None:
        _default = default
        core.set_policy("", default)
    for op, policy in by_op.items():
        _by_op[op] = policy
        core.set_policy(op, policy)


def parse_environment(text: str) -> tuple[str | None, dict[str, str]]:
    """Split ``"warn,aten::sort=allow"`` into the default policy and those of single operators."""
    default: str | None = None
    by_op: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        op, equals, policy = item.rpartition("=")
        if equals:
            by_op[_full_name(op.strip())] = _checked_policy(policy.strip(), f"{ENVIRONMENT} for {op.strip()}")
        else:
            default = _checked_policy(item, ENVIRONMENT)
    return default, by_op


def set_config(key: str, value: str | Mapping[str, str | None] | None) -> None:
    """Change a setting of this process.

    ``set_config("fallback", "deny")``, ``set_config("fallback", {"aten::sort": "warn"})``,
    ``set_config("fallback.aten::sort", None)``.
    """
    name, _, op = _checked_key(key).partition(".")
    if op:
        _set_for_op(op, value)
    elif isinstance(value, Mapping):
        checked = {_checked_op(item): _checked_policy(policy, f"{name}.{item}", True) for item, policy in value.items()}
        for item, policy in checked.items():
            _apply(item, policy)
    else:
        _apply("", _checked_policy(value, name))


def _set_for_op(op: str, value: Any) -> None:
    _apply(_checked_op(op), _checked_policy(value, f"fallback.{op}", True))


def get_config(key: str | None = None) -> Any:
    """Return the value of a setting, or all settings as a dict."""
    if key is None:
        return {"fallback": _default} | {f"fallback.{op}": policy for op, policy in sorted(_by_op.items())}
    _, _, op = _checked_key(key).partition(".")
    name = _full_name(op)
    return _by_op.get(name) or _by_op.get(name.partition(".")[0]) or _default


@contextlib.contextmanager
def config(**values: Any) -> Iterator[None]:
    """Change settings for the duration of a ``with`` block: ``with torch_fl.config(fallback="deny"): ...``."""
    before_default, before_ops = _default, dict(_by_op)
    try:
        for key, value in values.items():
            set_config(key, value)
        yield
    finally:
        for op in set(_by_op) - set(before_ops):
            _apply(op, None)
        for op, policy in before_ops.items():
            _apply(op, policy)
        _apply("", before_default)


def _apply(op: str, policy: str | None) -> None:
    """Set one policy (op "": the default; policy None: none of its own) here and in the extension."""
    global _default
    if (_by_op.get(op) if op else _default) == policy:
        return
    _load.core().set_policy(op, policy or "")
    if not op:
        assert policy is not None
        _default = policy
    elif policy is None:
        del _by_op[op]
    else:
        _by_op[op] = policy


def _checked_key(key: str) -> str:
    if not isinstance(key, str) or key.partition(".")[0] not in KEYS:
        name = str(key).partition(".")[0]
        raise ConfigError(
            f"no setting {key!r}{did_you_mean(name, KEYS)} (settings: {', '.join(KEYS)}, fallback.<operator>)"
        )
    return key


def _checked_policy(value: Any, where: str, optional: bool = False) -> Any:
    if value in POLICIES or (optional and value is None):
        return value
    expected = ", ".join(POLICIES) + (" or None" if optional else "")
    raise ConfigError(f"{where}: {value!r} is not one of {expected}{did_you_mean(str(value), POLICIES)}")


def _full_name(op: str) -> str:
    return op if "::" in op or not op else f"aten::{op}"


def _checked_op(op: str) -> str:
    """Return the full name of an operator ("add.Tensor" -> "aten::add.Tensor"); refuse one that does not exist."""
    import torch

    name = _full_name(op)
    base, _, overload = name.partition(".")
    overloads = [schema.overload_name for schema in torch._C._jit_get_schemas_for_operator(base)]
    if not overloads:
        known = {item.partition(".")[0] for item in torch._C._dispatch_get_all_op_names()}
        raise ConfigError(f"no operator {name!r}{did_you_mean(base, known)}")
    if overload and overload not in overloads:
        raise ConfigError(f"operator {base} has no overload {overload!r}{did_you_mean(overload, overloads)}")
    return name
