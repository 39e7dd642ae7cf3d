# SPDX-License-Identifier: Apache-2.0
"""Vendors' names for their devices: ``npu:0``, ``tensor.npu()``, ``torch.npu``; and `alias_cuda`.

A descriptor that says ``device_type: npu`` gives that name to its chip's devices. PyTorch reads the name wherever it
reads a device's name (csrc/torch/device_names.cpp); tensors go on calling the device ``fl:<index>``.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch

from torch_fl import _load
from torch_fl._words import counted

NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_UNAVAILABLE = (
    "this PyTorch reads device names where torch_fl cannot see it, so {0!r} means nothing as a device; "
    "write 'fl' instead"
)
_CUDA = "cuda"
_devices: dict[str, list[int]] = {}  # of each name in use


def start(types: dict[str, list[int]]) -> None:
    """Give the devices of each descriptor's ``device_type`` that name; what cannot be done is a warning."""
    for name, devices in types.items():
        problem = refusal(name)
        if problem is None and not _give(name, devices):
            problem = _UNAVAILABLE.format(name)
        if problem is not None:
            warnings.warn(f"torch_fl: {problem}", RuntimeWarning, stacklevel=2)
            continue
        module = VendorModule(name, devices)
        setattr(torch, name, module)
        sys.modules[f"torch.{name}"] = module
        _add_methods(name)


def _give(name: str, devices: list[int]) -> bool:
    """Let PyTorch read a name, also where `torch.load` maps to it; False: it cannot."""
    if _load.core().name_devices(name, devices) == 0:
        return False
    _teach_load()
    _devices[name] = devices
    return True


@functools.cache
def _teach_load() -> None:
    """Have `torch.load` ask us first; PyTorch's own "cuda" has 20. Tensors are never saved under one of these names."""
    torch.serialization.register_package(15, lambda storage: None, _restore)


def _restore(storage: Any, location: str) -> Any:
    """Move a loaded storage to a device that was named, or leave it to PyTorch."""
    return storage.to(device=torch.device(location)) if location.partition(":")[0] in _devices else None


def in_use() -> list[str]:
    """Return the names that devices have now."""
    return list(_devices)


def refusal(name: str) -> str | None:
    """Return why devices cannot be given a name, or None."""
    if not NAME.fullmatch(name):
        return f"device_type {name!r}: expected lower-case letters, digits and '_', at most 32, a letter first"
    if hasattr(torch, name) or hasattr(torch.Tensor, name) or _known(name):
        return f"device_type {name!r} is a name that PyTorch uses itself; the devices are called 'fl' only"
    return None


def _known(name: str) -> bool:
    """Tell whether PyTorch has a device type of that name."""
    try:
        torch.device(name)
    except RuntimeError:
        return False
    return True


class VendorModule(ModuleType):
    """``torch.<name>``: what ``torch.fl`` is, for the devices of one name, counted from 0."""

    def __init__(self, name: str, devices: Iterable[int]) -> None:
        super().__init__(f"torch.{name}", f"The devices called {name}; torch.fl has those of all chips.")
        self._name = name
        self._devices = tuple(devices)
        self.device = _device_context(self._index)

    def device_count(self) -> int:
        """Return the number of devices of this name."""
        return len(self._devices)

    def is_available(self) -> bool:
        """Return whether there is a device of this name."""
        return bool(self._devices)

    def current_device(self) -> int:
        """Return the index, within the name, of the current device; 0 if that is another chip's."""
        current = torch.fl.current_device()  # type: ignore[attr-defined]
        return self._devices.index(current) if current in self._devices else 0

    def set_device(self, device: Any) -> None:
        """Make a device of this name the calling thread's current one."""
        torch.fl.set_device(self._index(device))  # type: ignore[attr-defined]

    def manual_seed(self, seed: int) -> None:
        """Seed the generator of the current device of this name."""
        with self.device(None if self._current() else 0):
            torch.fl.manual_seed(seed)  # type: ignore[attr-defined]

    def manual_seed_all(self, seed: int) -> None:
        """Seed the generators of all devices of this name."""
        for index in self._devices:
            with torch.fl.device(index):  # type: ignore[attr-defined]
                torch.fl.manual_seed(seed)  # type: ignore[attr-defined]

    def _current(self) -> bool:
        return torch.fl.current_device() in self._devices  # type: ignore[attr-defined]

    def _index(self, device: Any) -> int:
        """Turn an index within the name, a name, a `torch.device` or None into a device index of ``torch.fl``."""
        if device is None:
            return self._devices[self.current_device()]
        if isinstance(device, bool) or not isinstance(device, int):
            device = torch.device(device)
            if device.type != _load.DEVICE_TYPE:
                raise ValueError(f"expected a device of {self._name}, found {device}")
            return self._devices[self.current_device()] if device.index is None else int(device.index)
        if device < 0:
            return device
        if device >= len(self._devices):
            raise RuntimeError(
                f"invalid device index {device}: {self._name} has {counted(len(self._devices), 'device')}"
            )
        return self._devices[device]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            value = getattr(torch.fl, name)  # type: ignore[attr-defined]
        except AttributeError:
            raise AttributeError(f"module 'torch.{self._name}' has no attribute {name!r}") from None
        if inspect.isfunction(value) and "device" in inspect.signature(value).parameters:
            value = _translated(value, self._index)
        elif isinstance(value, type) and "device" in inspect.signature(value.__new__).parameters:
            value = _translated_class(value, self._index)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(torch.fl)})  # type: ignore[attr-defined]


def _translated(function: Callable[..., Any], index: Callable[[Any], int]) -> Callable[..., Any]:
    """Wrap a function of ``torch.fl`` so that its ``device`` is read within a name."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.arguments["device"] = index(bound.arguments.get("device"))
        return function(*bound.args, **bound.kwargs)

    return call


def _translated_class(base: type, index: Callable[[Any], int]) -> type:
    """Derive from a class of ``torch.fl`` one whose ``device`` is read within a name."""

    class Translated(base):  # type: ignore[misc, valid-type]
        __doc__ = base.__doc__

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            bound = inspect.signature(base.__new__).bind(cls, *args, **kwargs)
            if "stream_id" not in kwargs:
                bound.arguments["device"] = index(bound.arguments.get("device"))
            return base.__new__(*bound.args, **bound.kwargs)

    Translated.__name__ = Translated.__qualname__ = base.__name__
    return Translated


def _device_context(index: Callable[[Any], int]) -> type:
    class device(torch.fl.device):  # type: ignore[name-defined, misc]
        """Context manager that changes the current device; None and -1 change nothing."""

        def __init__(self, device: Any) -> None:
            super().__init__(None if device is None else index(device))

    return device


def _add_methods(name: str) -> None:
    """Give tensors and modules the methods ``.npu()`` and ``.is_npu`` of a name; none of PyTorch's own is replaced."""
    setattr(torch.Tensor, name, _tensor_method(name))
    setattr(torch.Tensor, f"is_{name}", property(lambda tensor: _of_name(tensor, name)))
    setattr(torch.nn.Module, name, _module_method(name))


def _of_name(tensor: torch.Tensor, name: str) -> bool:
    return tensor.device.type == _load.DEVICE_TYPE and tensor.device.index in _devices[name]


def _target(name: str, device: Any) -> torch.device:
    if isinstance(device, int) and not isinstance(device, bool):
        device = f"{name}:{device}"
    return torch.device(name if device is None else device)


def _tensor_method(name: str) -> Callable[..., torch.Tensor]:
    def move(
        self: torch.Tensor,
        device: Any = None,
        non_blocking: bool = False,
        memory_format: torch.memory_format = torch.preserve_format,
    ) -> torch.Tensor:
        return self.to(_target(name, device), non_blocking=non_blocking, memory_format=memory_format)

    move.__name__ = name
    move.__doc__ = f"Return a copy on a device of {name} (default: the current one), or self if it is there."
    return move


def _module_method(name: str) -> Callable[..., torch.nn.Module]:
    def move(self: torch.nn.Module, device: Any = None) -> torch.nn.Module:
        return self.to(_target(name, device))

    move.__name__ = name
    move.__doc__ = f"Move parameters and buffers to a device of {name} (default: the current one)."
    return move


# ---- Scripts that say cuda ----
class _Alias:
    """What `alias_cuda` replaced, to be put back."""

    replaced: list[tuple[Any, str, Any, bool]] = []


def alias_cuda() -> None:
    """Let scripts that say ``cuda`` run unchanged on ``fl``: device names, ``.cuda()``, ``is_cuda``, ``torch.cuda``.

    This replaces attributes of PyTorch in this process, which is why nothing but this call does it; `unalias_cuda`
    puts them back. Idempotent. What only CUDA has (graphs, NCCL, cuBLAS handles) stays as it was.

    Raises:
        RuntimeError: there is a CUDA device, or no ``fl`` device, or this PyTorch reads names where we cannot see it.
    """
    if _Alias.replaced:
        return
    if torch.cuda.is_available():
        raise RuntimeError(
            "alias_cuda: this machine has a CUDA device, which the name 'cuda' means; use 'fl' for others"
        )
    count = _load.core().device_count()
    if count == 0:
        raise RuntimeError("alias_cuda: there is no fl device; python -m torch_fl tells what became of each plugin")
    if not _give(_CUDA, list(range(count))):
        raise RuntimeError(f"alias_cuda: {_UNAVAILABLE.format(_CUDA)}")
    _replace(torch.Tensor, _CUDA, _tensor_method(_CUDA))
    _replace(torch.Tensor, "is_cuda", property(lambda tensor: tensor.device.type in (_CUDA, _load.DEVICE_TYPE)))
    _replace(torch.nn.Module, _CUDA, _module_method(_CUDA))
    module = torch.fl  # type: ignore[attr-defined]
    for name in module.__all__:
        if hasattr(torch.cuda, name) and not isinstance(getattr(module, name), ModuleType):
            _replace(torch.cuda, name, getattr(module, name))
            for part in (torch.cuda.memory, torch.cuda.random):
                if hasattr(part, name):
                    _replace(part, name, getattr(module, name))
    for name in ("_lazy_init", "_is_in_bad_fork"):
        _replace(torch.cuda, name, getattr(module, name))
    for old, new in (("memory_cached", "memory_reserved"), ("max_memory_cached", "max_memory_reserved")):
        _replace(torch.cuda, old, getattr(module, new))
    _replace(torch.cuda, "get_device_capability", lambda device=None: (0, 0))


def unalias_cuda() -> None:
    """Put back what `alias_cuda` replaced. Nothing happens if it was not called."""
    if not _Alias.replaced:
        return
    _load.core().name_devices(_CUDA, [])
    del _devices[_CUDA]
    for owner, name, value, own in reversed(_Alias.replaced):
        if own:
            setattr(owner, name, value)
        else:
            delattr(owner, name)
    _Alias.replaced.clear()


def _replace(owner: Any, name: str, value: Any) -> None:
    own = name in vars(owner)
    _Alias.replaced.append((owner, name, vars(owner).get(name), own))
    setattr(owner, name, value)
