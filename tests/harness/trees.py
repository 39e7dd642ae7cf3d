# SPDX-License-Identifier: Apache-2.0
"""Copy the arguments of a call to another device, keeping everything an operator can see.

Sizes, strides, offsets, conj and neg bits, requires_grad, and which arguments share memory with which others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


class Mover:
    """Copies trees of arguments to one device. One Mover per call: it remembers what it has already copied."""

    def __init__(self, device: str, source: str = "cpu") -> None:
        self.device = torch.device(device)
        self.source = torch.device(source)
        self._tensors: dict[int, torch.Tensor] = {}
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._keep: list[Any] = []  # the ids above stay valid while the originals live

    def move(self, value: Any) -> Any:
        """The same tree with tensors, devices and generators on the target device."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, (bool, int, float, complex, type(None), torch.dtype)):
            return value
        if isinstance(value, torch.device):
            return self.device if value.type == self.source.type else value
        if isinstance(value, str):
            return str(self.device) if value in (self.source.type, f"{self.source.type}:0") else value
        if isinstance(value, torch.Generator):
            return torch.Generator(device=self.device).manual_seed(value.initial_seed())
        if isinstance(value, dict):
            return type(value)((key, self.move(item)) for key, item in value.items())
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self.move(item) for item in value))
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            return type(value)(self.move(item) for item in value)
        return value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        known = self._tensors.get(id(tensor))
        if known is None:
            with torch.no_grad():
                known = self._copy(tensor)
            if isinstance(tensor, torch.nn.Parameter):
                known = torch.nn.Parameter(known, requires_grad=tensor.requires_grad)
            elif tensor.requires_grad:
                known.requires_grad_(True)
            self._tensors[id(tensor)] = known
            self._keep.append(tensor)
        return known

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != self.source.type:
            return tensor.detach().clone() if tensor.device.type != "meta" else tensor.detach()
        if tensor.layout != torch.strided or tensor.is_nested or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            return tensor.detach().clone().to(self.device)
        result = torch.empty(0, dtype=tensor.dtype, device=self.device)
        result.set_(self._storage(tensor), tensor.storage_offset(), tensor.size(), tensor.stride())
        if tensor.is_conj():
            result = torch._conj(result)
        return torch._neg_view(result) if tensor.is_neg() else result

    def _storage(self, tensor: torch.Tensor) -> torch.UntypedStorage:
        storage = tensor.untyped_storage()
        known = self._storages.get(storage._cdata)
        if known is None:
            flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            copied = torch.empty(flat.numel(), dtype=torch.uint8, device=self.device)
            known = copied.copy_(flat).untyped_storage()
            self._storages[storage._cdata] = known
            self._keep.append(storage)
        return known


_WIDEST = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}


class Widener(Mover):
    """Copies on the CPU in the widest floating-point type: what a call would give if it hardly rounded."""

    def __init__(self) -> None:
        super().__init__("cpu")

    def move(self, value: Any) -> Any:
        return _WIDEST.get(value, value) if isinstance(value, torch.dtype) else super().move(value)

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone().to(_WIDEST.get(tensor.dtype, tensor.dtype))


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a tree, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_of(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item)


def describe(value: Any) -> str:
    """A short text of a tree of arguments for failure messages."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        try:
            strides = "" if value.is_contiguous() else f" strides {tuple(value.stride())}"
        except RuntimeError:
            strides = f" {value.layout}"
        return f"{dtype}{list(value.shape)}{strides}"
    if isinstance(value, dict):
        return ", ".join(f"{key}={describe(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        inner = ", ".join(describe(item) for item in value[:6]) + (", ..." if len(value) > 6 else "")
        return f"({inner})"
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."
