# SPDX-License-Identifier: Apache-2.0
"""``torch_fl.auto``: a script that names no device runs on the preferred one."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch
from torch.utils._device import DeviceContext

from torch_fl.configuration.devices import preferred_device


class _OnPreferred(DeviceContext):
    """PyTorch's own mode behind ``torch.set_default_device``, but for what must stay on the host."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        generator = kwargs.get("generator")
        on_host = generator is not None and generator.device.type == "cpu"  # a sampler's shuffling, for example
        if on_host or torch.utils.data.get_worker_info() is not None:  # a forked worker must not touch the device
            return func(*args, **kwargs)
        return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]


class auto:
    """Create tensors on the preferred device wherever the script names none.

    ``torch_fl.auto()`` holds until the thread ends (or `close`), ``with torch_fl.auto(): ...`` for the block.
    What is made of memory that is there already stays where it is: ``torch.from_numpy``, ``torch.load``, tensors that
    exist, batches of a DataLoader's workers. Move these with ``.to(torch.get_default_device())``.
    """

    def __init__(self) -> None:
        self.device = preferred_device()
        self._mode: _OnPreferred | None = _OnPreferred(self.device)
        self._mode.__enter__()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """End what the call began."""
        mode, self._mode = self._mode, None
        if mode is not None:
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def __enter__(self) -> auto:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()
