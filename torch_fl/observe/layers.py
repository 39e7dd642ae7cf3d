# SPDX-License-Identifier: Apache-2.0
"""Which layer of a model a call belongs to: hooks on its modules tell the core when one begins and ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch_fl import _load

if TYPE_CHECKING:
    import torch


@contextlib.contextmanager
def layer(name: str) -> Iterator[None]:
    """Count the calls of a ``with`` block to a layer of this name, inside the layer around it."""
    core = _load.core()
    core.push_layer(core.intern_layer(name))
    try:
        yield
    finally:
        core.pop_layer()


@contextlib.contextmanager
def layers_of(model: torch.nn.Module) -> Iterator[None]:
    """While the ``with`` block runs, calls inside a module of the model have its name, as in ``named_modules()``."""
    core = _load.core()
    handles: list[Any] = []

    def attach(module: torch.nn.Module, number: int) -> None:
        def enter(*_: Any) -> None:
            core.push_layer(number)

        def leave(*_: Any) -> None:
            core.pop_layer(number)

        handles.append(module.register_forward_pre_hook(enter))
        handles.append(module.register_forward_hook(leave, always_call=True))

    try:
        for name, module in model.named_modules():
            attach(module, core.intern_layer(name))
        yield
    finally:
        for handle in handles:
            handle.remove()
