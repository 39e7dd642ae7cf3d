# SPDX-License-Identifier: Apache-2.0
"""Shape rules of FakeTensor where PyTorch's own know nothing of out-of-tree devices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def teach_fake_convolution(device_type: str) -> None:
    """Give fake convolutions on the device the memory format that real ones have.

    PyTorch's rule asks which of its backends would run the convolution and says "contiguous" for those it does not
    know. `torch.compile` would then trace other strides than eager has, silently where a program reads them. The rules
    are entries of PyTorch's registry; two are wrapped, and only look at tensors of this device.
    """
    from torch._subclasses import fake_impls

    rules = getattr(fake_impls, "op_implementations_dict", {})
    for op in (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default):
        if op in rules:
            rules[op] = functools.partial(_convolution, device_type, rules[op])


def _convolution(device_type: str, stock: Callable[..., Any], mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    result = stock(mode, func, *args, **kwargs)
    named = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    data, weight = named["input"], named["weight"]
    if data.fake_device.type != device_type:
        return result
    with mode:
        layout = _memory_format(data, weight)
        if layout is None:
            return result
        if func is torch.ops.aten.convolution.default:
            return _with_format(result, layout)
        return (*(_with_format(t, layout) for t in result[:2]), result[2])


def _memory_format(data: torch.Tensor, weight: torch.Tensor) -> torch.memory_format | None:
    """Return channels-last where either has it, as the real convolution does; None: leave the result alone."""
    from torch._prims_common import suggest_memory_format
    from torch.fx.experimental.symbolic_shapes import has_guarding_hint

    if data.dim() not in (4, 5) or not all(has_guarding_hint(size) for t in (data, weight) for size in t.shape):
        return None
    formats = {suggest_memory_format(t) for t in (data, weight)} - {torch.contiguous_format}
    return formats.pop() if formats else None


def _with_format(t: torch.Tensor | None, layout: torch.memory_format) -> torch.Tensor | None:
    return None if t is None else torch.empty(t.shape, dtype=t.dtype, device=t.device, memory_format=layout)
