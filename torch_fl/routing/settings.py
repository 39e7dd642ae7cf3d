# SPDX-License-Identifier: Apache-2.0
"""Settings: ``set_config``, ``get_config``, ``config``, and the environment.

============================ ============================ =======================================================
key                          values                       meaning
============================ ============================ =======================================================
``fallback``                 allow, warn, deny, None      what to do with calls that would leave the chip; None: as
                                                          the chip's descriptor says, or allow
``fallback.<operator>``      allow, warn, deny, None      the same for one operator; None: as ``fallback`` says
============================ ============================ =======================================================

``TORCH_FL_FALLBACK`` holds the first values: ``deny``, or ``warn,aten::sort=allow,aten::topk=deny``.
A setting made in the program wins over the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from torch_fl import _load
from torch_fl._context import reusable
from torch_fl._suggest import did_you_mean
from torch_fl.routing.errors import ConfigError

POLICIES = ("allow", "warn", "deny")
KEYS = ("fallback",)
ENVIRONMENT = "TORCH_FL_FALLBACK"

_default: str | None = None
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
    policies: dict[str, str] = {}
    for item in _environment_items(text):
        name, equals, policy = (part.strip() for part in item.rpartition("="))
        op = _environment_op(name, item) if equals else ""
        if op in policies:
            what = f"operator {op!r}" if op else "all operators"
            raise ConfigError(
                f"{ENVIRONMENT}={text!r}: two policies for {what}, {policies[op]!r} and {policy!r}; keep one"
            )
        policies[op] = _checked_policy(policy, f"{ENVIRONMENT} for {name}" if equals else ENVIRONMENT)
    return policies.pop("", None), policies


def _environment_items(text: str) -> list[str]:
    """Split at commas, of which one may come last."""
    if not text.strip():
        return []
    items = [item.strip() for item in text.split(",")]
    if len(items) > 1 and not items[-1]:
        items.pop()
    if "" in items:
        raise ConfigError(f"{ENVIRONMENT}={text!r}: nothing before a comma, expected a policy or <operator>=<policy>")
    return items


def _environment_op(name: str, item: str) -> str:
    """Return the full name of an operator. Only PyTorch's own can be looked up: other libraries load theirs later."""
    if not name:
        raise ConfigError(f"{ENVIRONMENT}: {item!r} names no operator, expected <operator>=<policy>")
    if re.fullmatch(r"(?!aten::)\w+::\w+(\.\w+)?", name):
        return name
    try:
        return _checked_op(name)
    except ConfigError as error:
        raise ConfigError(f"{ENVIRONMENT}: {item!r}: {error}") from None


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
        _apply("", _checked_policy(value, name, True))


def _set_for_op(op: str, value: Any) -> None:
    _apply(_checked_op(op), _checked_policy(value, f"fallback.{op}", True))


def get_config(key: str | None = None) -> Any:
    """Return the value of a setting, or all settings as a dict."""
    if key is None:
        return {"fallback": _default or "allow"} | {f"fallback.{op}": policy for op, policy in sorted(_by_op.items())}
    _, _, op = _checked_key(key).partition(".")
    name = _checked_op(op) if op else ""
    return _by_op.get(name) or _by_op.get(name.partition(".")[0]) or _default or "allow"


@reusable
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
        _default = policy
    elif policy is None:
        del _by_op[op]
    else:
        _by_op[op] = policy


def _checked_key(key: str) -> str:
    name, dot, op = key.partition(".") if isinstance(key, str) else (str(key), "", "")
    if not isinstance(key, str) or name not in KEYS or (dot and not op.strip()):
        guess = did_you_mean(name.strip() or op, KEYS)
        raise ConfigError(f"no setting {key!r}{guess} (settings: {', '.join(KEYS)}, fallback.<operator>)")
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


def _has_dispatch(base: str, overload: str) -> bool:
    """Tell whether an overload can be called with tensors; TorchScript has more of its own (``aten::sort.int``)."""
    import torch

    try:
        torch._C._dispatch_find_schema_or_throw(base, overload)
    except RuntimeError:
        return False
    return True
