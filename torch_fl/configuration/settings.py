# SPDX-License-Identifier: Apache-2.0
"""``set_config``, ``get_config``, ``config``, ``config_sources``.

A value comes from the program, else from the environment, else from the configuration file, else it is the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch_fl import _load
from torch_fl._context import reusable
from torch_fl._suggest import did_you_mean
from torch_fl.configuration.operators import checked_op
from torch_fl.configuration.table import SETTINGS, Setting, names
from torch_fl.routing.errors import ConfigError

DEFAULT, PROGRAM = "default", "set_config"

_values: dict[str, Any] = {}  # those that somebody set, by full key
_sources: dict[str, str] = {}


def start(core: Any) -> None:
    """Read file and environment, and tell the extension, which is being loaded and has no chips yet."""
    from torch_fl.configuration import environment, file

    for key, (value, source) in {**file.read(), **environment.read()}.items():
        _values[key], _sources[key] = value, source
    _apply_all(core, needs_devices=False)


def chips_loaded(core: Any) -> None:
    """Tell the extension what depends on which devices there are."""
    _apply_all(core, needs_devices=True)


def _apply_all(core: Any, needs_devices: bool) -> None:
    for key in sorted(_values, key=lambda key: list(SETTINGS).index(key.partition(".")[0])):
        setting, op = split(key)
        if setting.needs_devices != needs_devices:
            continue
        try:
            setting.apply(core, op, _values[key])
        except ConfigError as error:
            raise ConfigError(f"{_sources[key]}: {error}") from None


def set_config(key: str, value: Any) -> None:
    """Change a setting of this process, from the next call on.

    ``set_config("fallback", "deny")``, ``set_config("fallback", {"aten::sort": "warn"})``,
    ``set_config("fallback.aten::sort", None)``, ``set_config("memory_pool_size", 512)``.

    Raises:
        ConfigError: no such setting, operator or value; the message suggests the nearest.
    """
    setting, op = split(key)
    if setting.only_at_load:
        message = f"{setting.key} is settled when torch-fl is loaded: set {setting.variable} before Python starts"
        raise ConfigError(f"{message}, or write it into the configuration file")
    for name, item in checked(setting, op, value, setting.key).items():
        _apply(setting, name, item, PROGRAM)


def checked(setting: Setting, op: str, value: Any, where: str) -> dict[str, Any]:
    """Return the full keys that a value means, and their values."""
    if op:
        op = checked_op(op)
        return {f"{setting.key}.{op}": _checked_for_op(setting, value, f"{where}.{op}")}
    if setting.for_operators and isinstance(value, Mapping):
        keys = {item: f"{setting.key}.{checked_op(item)}" for item in value}
        return {keys[item]: _checked_for_op(setting, one, f"{where}.{item}") for item, one in value.items()}
    if not setting.for_process:
        raise ConfigError(f'{where} is set for single operators: set_config("{setting.key}.aten::add", ...)')
    return {setting.key: setting.type.checked(value, where)}


def _checked_for_op(setting: Setting, value: Any, where: str) -> Any:
    """None means that the operator has no value of its own."""
    try:
        return None if value is None else setting.type.checked(value, where)
    except ConfigError as error:
        raise ConfigError(str(error).replace(" is not one of ", " is neither None nor one of ")) from None


def get_config(key: str | None = None) -> Any:
    """Return the value of a setting, or all settings as a dict."""
    if key is None:
        process = {name: setting.default for name, setting in SETTINGS.items() if setting.for_process}
        return process | dict(sorted(_values.items()))
    setting, op = split(key)
    name = _holder(setting, checked_op(op) if op else "")
    return _values.get(name, setting.default)


def config_sources() -> dict[str, str]:
    """Tell for every setting where its value comes from: "default", a variable, a file with its line, "set_config"."""
    return {key: _sources.get(key, DEFAULT) for key in get_config()}


def _holder(setting: Setting, op: str) -> str:
    """The full key whose value holds for an operator: its overload's, its own, the process's."""
    for name in (f"{setting.key}.{op}", f"{setting.key}.{op.partition('.')[0]}"):
        if op and name in _values:
            return name
    return setting.key


@reusable
def config(**values: Any) -> Iterator[None]:
    """Change settings for the duration of a ``with`` block: ``with torch_fl.config(fallback="deny"): ...``."""
    before, sources = dict(_values), dict(_sources)
    try:
        for key, value in values.items():
            set_config(key, value)
        yield
    finally:
        for key in {*_values, *before}:
            setting, op = split(key)
            _apply(setting, key, before.get(key, None if op else setting.default), sources.get(key, DEFAULT))


def _apply(setting: Setting, key: str, value: Any, source: str) -> None:
    """Set one value (None for an operator: none of its own) here and in the extension."""
    op = key.partition(".")[2]
    unset = None if op or setting.defers else setting.default
    new = unset if source == DEFAULT else value
    if _values.get(key, unset) != new:
        setting.apply(_load.core(), op, new)
    if (op and value is None) or source == DEFAULT:
        _values.pop(key, None)
        _sources.pop(key, None)
    else:
        _values[key], _sources[key] = value, source


def split(key: Any) -> tuple[Setting, str]:
    """Return the setting of a key and its operator, if it names one; refuse a key that does not exist."""
    name, dot, op = key.partition(".") if isinstance(key, str) else (str(key), "", "")
    setting = SETTINGS.get(name)
    if setting is None or not isinstance(key, str) or (dot and not (op.strip() and setting.for_operators)):
        guess = did_you_mean(name.strip() or op, SETTINGS)
        raise ConfigError(f"no setting {key!r}{guess} (settings: {names()})")
    return setting, op
