# SPDX-License-Identifier: Apache-2.0
"""Random numbers of ``torch.fl``: one Philox generator for each device, the same numbers on every chip."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from torch_fl import _load
from torch_fl.device._devices import device_count
from torch_fl.device._utils import DeviceLike, _get_device_index


def _generator(device: DeviceLike = None) -> torch.Generator:
    generator: torch.Generator = _load.core().default_generator(_get_device_index(device, optional=True))
    return generator


def default_generators() -> tuple[torch.Generator, ...]:
    """Return the default generator of every device."""
    return tuple(_generator(index) for index in range(device_count()))


def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    if device_count():
        _generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices."""
    for generator in default_generators():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seed the current device's generator from the system's entropy."""
    if device_count():
        _generator().seed()


def seed_all() -> None:
    """Seed the generators of all devices alike from the system's entropy."""
    generators = default_generators()
    if generators:
        value = generators[0].seed()
        for generator in generators[1:]:
            generator.manual_seed(value)


def initial_seed() -> int:
    """Return the seed of the current device's generator."""
    return _generator().initial_seed()


def get_rng_state(device: DeviceLike = "fl") -> torch.Tensor:
    """Return the state of a device's generator: 16 bytes, seed and offset."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of all devices' generators."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "fl") -> None:
    """Set the state of a device's generator."""
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the states of all devices' generators."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
