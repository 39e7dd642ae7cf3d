# SPDX-License-Identifier: Apache-2.0
"""Which devices there are, may be used, are preferred; and ``torch_fl.auto``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch_fl import _load
from torch_fl._suggest import did_you_mean
from torch_fl.configuration.settings import get_config, set_config
from torch_fl.routing.errors import ConfigError

if TYPE_CHECKING:
    import torch

DeviceLike = "int | str | torch.device"


def set_preferred_device(device: int | str | torch.device | None) -> None:
    """Choose the device (or a chip, by name: its first device) that `auto` takes; None: the first of all."""
    set_config("preferred_device", device)


def exclude_device(device: int | str | torch.device) -> None:
    """Have a device, or all of a chip by its name, refused from now on. It must not be in use; numbers stay."""
    text = str(device)
    set_config("exclude_devices", tuple(dict.fromkeys((*get_config("exclude_devices"), text))))


def set_default_device(device: int | str | torch.device) -> None:
    """Choose the device that "fl" without a number means: in this thread, and in those that start later."""
    set_config("default_device", device)


def preferred_device() -> torch.device:
    """Return the device that `auto` takes."""
    import torch

    core = _load.core()
    usable = [row["index"] for row in core.devices() if row["index"] not in _excluded(core)]
    chosen = get_config("preferred_device")
    wanted = usable if chosen is None else [index for index in _indices(core, chosen) if index in usable]
    if not wanted:
        what = "no device that may be used" if chosen is None else f"the preferred device {chosen} is excluded"
        raise RuntimeError(f"torch_fl: {what}; `torch-fl doctor` says what became of every plugin")
    return torch.device(_load.DEVICE_TYPE, wanted[0])


def _excluded(core: Any) -> set[int]:
    return {index for word in get_config("exclude_devices") for index in _indices(core, word)}


def _indices(core: Any, word: str, by_place: bool = False) -> list[int]:
    """The devices that a word means: "1", "fl:1", "chip", "chip:0"."""
    rows = core.devices()
    name, colon, number = word.rpartition(":")
    name, number = (name, number) if colon else (("", word) if word.isdigit() else (word, ""))
    if name in ("", _load.DEVICE_TYPE):
        found = [row["index"] for row in rows if str(row["index"]) == number or (not number and name)]
    else:
        of_chip = [row for row in rows if row["chip"] == name]
        found = [row["index"] for row in of_chip if number in ("", str(row["local_index"]))]
    if found:
        return found
    chips = list(dict.fromkeys(row["chip"] for row in rows))
    there = ", ".join(f"{_load.DEVICE_TYPE}:{row['index']} ({row['chip']})" for row in rows) or "none"
    raise ConfigError(f"no device {word!r}{did_you_mean(name or word, chips)} (devices: {there})")


def apply_visible(core: Any, words: Iterable[str]) -> None:
    """Keep these devices only, in this order."""
    order: list[int] = []
    for word in words:
        for index in _indices(core, word):
            if index in order:
                raise ConfigError(f"{word!r} names the device fl:{index} a second time")
            order.append(index)
    core.renumber_devices(order, "its devices are hidden: visible_devices does not name them")


def apply_excluded(core: Any, words: Iterable[str]) -> None:
    """Have these devices refused."""
    rows, bits = {row["index"]: row for row in core.devices()}, 0
    for word in words:
        for index in _indices(core, word):
            if rows[index]["opened"]:
                raise ConfigError(f"{word!r}: the device fl:{index} is in use; exclude it before its first tensor")
            bits |= 1 << index
    core.set_excluded_devices(bits)


def apply_preferred(core: Any, word: str | None) -> None:
    """Check that there is such a device."""
    if word is not None:
        _indices(core, word)


def apply_default(core: Any, word: str | None) -> None:
    """Make it the current device of this thread and of threads to come."""
    if word is not None or core.device_count() > 0:
        core.set_default_device(0 if word is None else _indices(core, word)[0])
