# SPDX-License-Identifier: Apache-2.0
"""The settings: their values, defaults, and what they do to the core. docs/configuration.md explains each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch_fl._suggest import did_you_mean
from torch_fl.routing.errors import ConfigError

PREFIX = "TORCH_FL_"


class Type(Protocol):
    """What a setting's values are."""

    def checked(self, value: Any, where: str) -> Any:
        """Return the value as it is kept, or raise ConfigError."""

    def from_text(self, text: str, where: str) -> Any:
        """Read a value from an environment variable."""


@dataclass(frozen=True)
class Choice:
    """One of some words."""

    words: Sequence[str]

    def checked(self, value: Any, where: str) -> str:
        """Return the word."""
        if isinstance(value, str) and value in self.words:
            return value
        guess = did_you_mean(str(value), self.words)
        raise ConfigError(f"{where}: {value!r} is not one of {', '.join(self.words)}{guess}")

    def from_text(self, text: str, where: str) -> str:
        """Return the word."""
        return self.checked(text.strip(), where)


@dataclass(frozen=True)
class Size:
    """A whole number of megabytes."""

    largest: int = 1 << 30

    def checked(self, value: Any, where: str) -> int:
        """Return the number."""
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= self.largest:
            return value
        raise ConfigError(f"{where}: {value!r} is not a whole number of megabytes from 0 to {self.largest}")

    def from_text(self, text: str, where: str) -> int:
        """Read digits."""
        text = text.strip()
        return self.checked(int(text) if text.isascii() and text.isdigit() else text, where)


@dataclass(frozen=True)
class Count:
    """A whole number."""

    largest: int = 1 << 62

    def checked(self, value: Any, where: str) -> int:
        """Return the number."""
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= self.largest:
            return value
        raise ConfigError(f"{where}: {value!r} is not a whole number from 0 to {self.largest}")

    def from_text(self, text: str, where: str) -> int:
        """Read digits."""
        text = text.strip()
        return self.checked(int(text) if text.isascii() and text.isdigit() else text, where)


@dataclass(frozen=True)
class Share:
    """A part of a whole, 0 to 1."""

    def checked(self, value: Any, where: str) -> float:
        """Return the number."""
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
        raise ConfigError(f"{where}: {value!r} is not a number from 0 to 1")

    def from_text(self, text: str, where: str) -> float:
        """Read a decimal number."""
        try:
            return self.checked(float(text), where)
        except ValueError:
            raise ConfigError(f"{where}: {text!r} is not a number from 0 to 1") from None


@dataclass(frozen=True)
class Switch:
    """True or false."""

    def checked(self, value: Any, where: str) -> bool:
        """Return the value."""
        if isinstance(value, bool):
            return value
        raise ConfigError(f"{where}: {value!r} is not True or False")

    def from_text(self, text: str, where: str) -> bool:
        """Read what people write for true and false."""
        word = text.strip().lower()
        if word in (*_TRUE, *_FALSE):
            return word in _TRUE
        raise ConfigError(f"{where}: {text!r} is not one of {', '.join((*_TRUE, *_FALSE))}")


_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True)
class Device:
    """A device by number or name, a chip by name; or None. Which there are is known once the chips are loaded."""

    def checked(self, value: Any, where: str) -> str | None:
        """Return it as text."""
        if value is None:
            return None
        text = str(value).strip()
        if isinstance(value, bool) or not text or not isinstance(value, int | str) and type(value).__name__ != "device":
            raise ConfigError(f'{where}: {value!r} is no device: expected a number, "fl:1", or a chip\'s name')
        return text

    def from_text(self, text: str, where: str) -> str | None:
        """Return it, or None for nothing."""
        return self.checked(text, where) if text.strip() else None


@dataclass(frozen=True)
class Devices:
    """Several of these."""

    def checked(self, value: Any, where: str) -> tuple[str, ...]:
        """Return them as texts."""
        if isinstance(value, str):
            return self.from_text(value, where)
        items = list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
        return tuple(Device().checked(item, where) or "" for item in items)

    def from_text(self, text: str, where: str) -> tuple[str, ...]:
        """Split at commas."""
        items = [item.strip() for item in text.split(",")] if text.strip() else []
        if "" in items:
            raise ConfigError(f"{where}: {text!r} has nothing beside a comma; expected devices, such as 1,0 or a chip")
        return tuple(items)


@dataclass(frozen=True)
class Setting:
    """One key. ``apply(core, operator, value)``; the operator is "" unless the setting is for operators."""

    key: str
    type: Type
    default: Any
    meaning: str
    apply: Callable[[Any, str, Any], None] = field(default=lambda core, op, value: None)
    for_operators: bool = False  # "key.<operator>" exists
    for_process: bool = True  # "key" alone does
    needs_devices: bool = False  # is applied once the chips are loaded
    only_at_load: bool = False
    defers: bool = False  # where it is not set, a chip's descriptor may say something else
    aliases: tuple[str, ...] = ()  # older names of its variable

    @property
    def variable(self) -> str:
        """The environment variable that holds it."""
        return PREFIX + self.key.upper()


LEVELS = ("debug", "info", "warning", "error")
POLICIES = ("allow", "warn", "deny")
ROUTES = ("kernel", "portable", "override", "decomposed", "host")


def _adapter_cache(core: Any, _: str, megabytes: int) -> None:
    core.set_adapter_cache_mb(megabytes)


def _precision(core: Any, _: str, value: str) -> None:
    from torch_fl.configuration import precision

    precision.apply(core, value)


def _device(name: str) -> Callable[[Any, str, Any], None]:
    def apply(core: Any, _: str, value: Any) -> None:
        from torch_fl.configuration import devices

        getattr(devices, name)(core, value)

    return apply


SETTINGS = {
    setting.key: setting
    for setting in (
        Setting(
            "log_level",
            Choice(LEVELS),
            "warning",
            "the least that is told on stderr",
            lambda core, _, value: core.set_log_level(LEVELS.index(value)),
            aliases=("TORCH_FL_LOG",),
        ),
        Setting(
            "fallback",
            Choice(POLICIES),
            "allow",
            "what to do with calls that would leave the chip",
            lambda core, op, value: core.set_policy(op, value or ""),
            for_operators=True,
            defers=True,
        ),
        Setting(
            "route",
            Choice(ROUTES),
            None,
            "the first route that calls of an operator may take",
            lambda core, op, value: core.set_route(op, value or ""),
            for_operators=True,
            for_process=False,
        ),
        Setting(
            "fusion_level",
            Choice(("conservative", "balanced", "aggressive")),
            "balanced",
            "how much the graph compiler may merge",
        ),
        Setting(
            "memory_pool_size",
            Size(),
            0,
            "MB that the allocator of a device may hold; 0: all that there is",
            lambda core, _, value: core.set_memory_pool_size(value << 20),
        ),
        Setting(
            "async_execution",
            Switch(),
            True,
            "whether calls return before the device is done",
            lambda core, _, value: core.set_async_execution(value),
        ),
        Setting("adapter_cache_mb", Size(), 256, "MB of converted arguments that are kept", _adapter_cache),
        Setting("precision", Choice(("default", "high")), "default", "high: full-precision arithmetic", _precision),
        Setting(
            "storm_share",
            Share(),
            0.1,
            "the share of calls, or of time, off the chip that is worth a warning; 0: none is",
            lambda core, _, value: core.set_storm_share(value),
        ),
        Setting(
            "storm_minimum_calls",
            Count(),
            1000,
            "how many calls have to run on the host before that is told",
            lambda core, _, value: core.set_storm_minimum_calls(value),
        ),
        Setting(
            "storm_minimum_ms",
            Count(1 << 40),
            100,
            "milliseconds that they have to take before that is told",
            lambda core, _, value: core.set_storm_minimum_ms(value),
        ),
        Setting(
            "visible_devices",
            Devices(),
            None,
            "the devices that there are, in this order",
            _device("apply_visible"),
            needs_devices=True,
            only_at_load=True,
        ),
        Setting(
            "exclude_devices",
            Devices(),
            (),
            "devices that must not be used",
            _device("apply_excluded"),
            needs_devices=True,
        ),
        Setting(
            "preferred_device",
            Device(),
            None,
            "the device that torch_fl.auto() takes; None: the first that is not excluded",
            _device("apply_preferred"),
            needs_devices=True,
        ),
        Setting(
            "default_device",
            Device(),
            None,
            'the device that "fl" without a number means; None: fl:0',
            _device("apply_default"),
            needs_devices=True,
        ),
    )
}


def names() -> str:
    """Return what keys look like, for messages."""
    keys = [key for key, setting in SETTINGS.items() if setting.for_process]
    return ", ".join([*keys, *(f"{key}.<operator>" for key, setting in SETTINGS.items() if setting.for_operators)])
