# SPDX-License-Identifier: Apache-2.0
"""Settings from ``TORCH_FL_<KEY>``.

A setting for operators lists them: ``TORCH_FL_FALLBACK=deny``, or ``warn,aten::sort=allow,aten::topk=deny``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torch_fl.configuration.operators import checked_op
from torch_fl.configuration.table import PREFIX, SETTINGS, Setting
from torch_fl.routing.errors import ConfigError

# Variables that are no settings.
OTHERS = {
    "TORCH_FL_PLUGIN_PATH": "where to look for plugins, instead of everywhere else",
    "TORCH_FL_ADD_PLUGIN_PATH": "where to look for plugins first",
    "TORCHFL_DEVICE_DIR": "alias of TORCH_FL_ADD_PLUGIN_PATH",
    "TORCH_FL_CONFIG": "the configuration file",
    "TORCH_FL_CACHE_DIR": "where compiled kernels are kept",
    "TORCH_FL_MEMORY_CACHING": "0: every tensor is an allocation of the chip's",
    "TORCH_FL_WORK_PER_ITEM": "elements of a portable kernel's work item",
    "TORCH_FL_TUNE": "0: no measuring of tiles",
    "TORCH_FL_ALLOW_UNSAFE_PLUGINS": "1: take plugins that others may write",
    "TORCH_FL_RUN": "what torch-fl run was asked for",
    "TORCH_FL_DEVELOPED_BACKEND": "the Python class that torch-fl check registers",
}
_NEAR = 0.85  # so alike that a setting's variable must have been meant


def read() -> dict[str, tuple[Any, str]]:
    """Return full key, value and variable of everything that is set."""
    refuse_misspelt()
    found: dict[str, tuple[Any, str]] = {}
    for setting in SETTINGS.values():
        for variable in (*setting.aliases, setting.variable):
            if variable in os.environ:
                values = parse(setting, os.environ[variable], variable)
                found |= {key: (value, variable) for key, value in values.items()}
    return found


def parse(setting: Setting, text: str, variable: str) -> dict[str, Any]:
    """Return the full keys and values that a variable's text means."""
    if not setting.for_operators:
        empty_means_unset = not text.strip() and not setting.only_at_load
        return {} if empty_means_unset else {setting.key: setting.type.from_text(text, variable)}
    values: dict[str, Any] = {}
    for item in _items(text, variable, setting):
        name, equals, value = (part.strip() for part in item.rpartition("="))
        op = _op(name, item, variable) if equals else ""
        key = f"{setting.key}.{op}" if op else setting.key
        if key in values:
            what = f"operator {op!r}" if op else "all operators"
            raise ConfigError(f"{variable}={text!r}: two values for {what}, {values[key]!r} and {value!r}; keep one")
        if not op and not setting.for_process:
            raise ConfigError(f"{variable}: {item!r} names no operator, expected <operator>=<value>")
        values[key] = setting.type.from_text(value, f"{variable} for {name}" if equals else variable)
    return values


def _items(text: str, variable: str, setting: Setting) -> list[str]:
    """Split at commas, of which one may come last."""
    if not text.strip():
        return []
    items = [item.strip() for item in text.split(",")]
    if len(items) > 1 and not items[-1]:
        items.pop()
    if "" in items:
        expected = "a value or <operator>=<value>" if setting.for_process else "<operator>=<value>"
        raise ConfigError(f"{variable}={text!r}: nothing before a comma, expected {expected}")
    return items


def _op(name: str, item: str, variable: str) -> str:
    """Return the full name of an operator. Only PyTorch's own can be looked up: other libraries load theirs later."""
    if not name:
        raise ConfigError(f"{variable}: {item!r} names no operator, expected <operator>=<value>")
    if re.fullmatch(r"(?!aten::)\w+::\w+(\.\w+)?", name):
        return name
    try:
        return checked_op(name)
    except ConfigError as error:
        raise ConfigError(f"{variable}: {item!r}: {error}") from None


def known() -> set[str]:
    """Return the variables that mean something."""
    settings = (name for setting in SETTINGS.values() for name in (setting.variable, *setting.aliases))
    return {*settings, *OTHERS}


def unknown(environment: Iterable[str] | None = None) -> Iterator[tuple[str, list[str]]]:
    """Yield the variables that look like ours and mean nothing, with those that they resemble."""
    import difflib

    folders = (Path(__file__).parents[1] / "chips").glob("*/libfl_*.so")
    chips = tuple(f"{PREFIX}{file.parent.name.upper()}_" for file in folders)  # a chip's own variables
    for variable in sorted(os.environ if environment is None else environment):
        if variable.startswith((PREFIX, "TORCHFL_")) and variable not in known() and not variable.startswith(chips):
            yield variable, difflib.get_close_matches(variable, sorted(known()), n=2, cutoff=0.7)


def refuse_misspelt() -> None:
    """Refuse a variable that nearly names a setting: who sets it believes that it holds."""
    if not any(name.startswith(PREFIX) and name not in known() for name in os.environ):
        return
    import difflib

    variables = [setting.variable for setting in SETTINGS.values()]
    for variable, _ in unknown():
        close = difflib.get_close_matches(variable, variables, n=1, cutoff=_NEAR)
        if close:
            raise ConfigError(f"no setting has the variable {variable}; did you mean {close[0]!r}?")
