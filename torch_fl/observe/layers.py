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
    """Count the calls of a ``with`` block to a layer of this name, inside the layer around it.

    Raises:
        TypeError: the name is no text.
    """
    if not isinstance(name, str):
        raise TypeError(f"layer: expected a name, found {name!r} ({type(name).__name__})")
    core = _load.core()
    number = core.intern_layer(name)
    core.push_layer(number)
    try:
        yield
    finally:
        core.drop_layer(number)  # generators end in any order


@contextlib.contextmanager
def layers_of(model: torch.nn.Module) -> Iterator[None]:
    """While the ``with`` block runs, calls inside a module of the model have its name, as in ``named_modules()``.

    The hooks are PyTorch's on all modules, not the model's own: a model can be saved, copied and compiled meanwhile.
    Calls inside a compiled region have the name around it.

    Raises:
        TypeError: it is no module.
    """
    import torch
    from torch.nn.modules import module as hooks

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"layers: expected a torch.nn.Module, found {model!r:.60} ({type(model).__name__})")
    core = _load.core()
    # The modules themselves are kept, so that no other takes the place of one that is gone.
    numbers = {id(part): (core.intern_layer(name), part) for name, part in model.named_modules()}

    def enter(module: torch.nn.Module, _: Any) -> None:
        if not torch.compiler.is_compiling() and id(module) in numbers:
            core.push_layer(numbers[id(module)][0])

    def leave(module: torch.nn.Module, *_: Any) -> None:
        if not torch.compiler.is_compiling() and id(module) in numbers:
            core.pop_layer(numbers[id(module)][0])

    handles = [
        hooks.register_module_forward_pre_hook(enter),
        hooks.register_module_forward_hook(leave, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
