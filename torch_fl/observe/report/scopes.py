# SPDX-License-Identifier: Apache-2.0
"""Layers of models that nobody names: hooks on all modules find out, when one is called, which model it belongs to."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules import module as hooks

from torch_fl import _load


@contextmanager
def layers_of_all() -> Iterator[None]:
    """While the block runs, calls inside any module have its name: as the first model's ``named_modules()`` has it.

    In other models, and loss modules, which are models of their own, the class's name comes first.
    """
    names = _Names()
    handles = [
        hooks.register_module_forward_pre_hook(names.enter),
        hooks.register_module_forward_hook(names.leave, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Names:
    def __init__(self) -> None:
        self.core = _load.core()
        self.numbers: weakref.WeakKeyDictionary[torch.nn.Module, int] = weakref.WeakKeyDictionary()
        self.models = 0
        self.inside = threading.local()

    def enter(self, module: torch.nn.Module, _: Any) -> None:
        if torch.compiler.is_compiling():  # no part of anybody's graph
            return
        module = getattr(module, "_orig_mod", module)  # of torch.compile()
        depth = getattr(self.inside, "depth", 0)
        self.inside.depth = depth + 1
        if module not in self.numbers:
            self._name(module, is_model=depth == 0)
        self.core.push_layer(self.numbers[module])

    def leave(self, module: torch.nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return
        module = getattr(module, "_orig_mod", module)
        self.inside.depth = max(0, getattr(self.inside, "depth", 0) - 1)
        if module in self.numbers:  # entered before the block began
            self.core.pop_layer(self.numbers[module])

    def _name(self, module: torch.nn.Module, is_model: bool) -> None:
        """Name a model's modules, or one that came to a model later."""
        prefix = type(module).__name__ if self.models or not is_model else ""
        self.models += is_model
        for name, part in module.named_modules():
            if part not in self.numbers:
                full = ".".join(word for word in (prefix, name) if word)
                self.numbers[part] = self.core.intern_layer(full)
