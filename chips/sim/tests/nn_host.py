# SPDX-License-Identifier: Apache-2.0
"""Single kernels of the plugin on torch CPU tensors, compared with PyTorch's CPU kernels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from harness import DTYPES, Chip, PluginError

UNSUPPORTED = 1
CONTIGUOUS_INPUTS, CHANNELS_LAST_ONLY = 1 << 2, 1 << 8
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}

REALS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TOLERANCE = {
    torch.float32: (1e-4, 1e-4),
    torch.float64: (1e-10, 1e-10),
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (2e-2, 2e-2),
}


class KernelFailed(RuntimeError):
    """The kernel, or the device afterwards, reported an error."""


class Unsupported(RuntimeError):
    """The row's element types or its supports() refuse the call."""


def tensors_of(values: Sequence[Any]) -> list[torch.Tensor]:
    flat = [v for value in values for v in (value if isinstance(value, (list, tuple)) else [value])]
    return [v for v in flat if isinstance(v, torch.Tensor)]


class Host:
    """Applies a row's contract to the arguments, as a host does, and runs it."""

    def __init__(self) -> None:
        os.environ.setdefault("SIMCHIP_CHECK", "1")  # every range that a kernel is given is checked
        self.chip = Chip()

    def run(self, op: str, args: Sequence[Any], outs: Sequence[torch.Tensor | None]) -> None:
        """`outs` are written in place; an argument that is also an output is mutated."""
        row = self.chip.kernels[op]
        first = tensors_of(args)[0]
        if row.dtypes and not row.dtypes >> DTYPES[first.dtype] & 1:
            raise Unsupported(f"{op} has no kernel for {first.dtype}")
        try:
            self.chip.run(op, [self._adapt(a, row.flags) for a in args], outs, first.dtype)
        except PluginError as error:
            kind = Unsupported if error.status == UNSUPPORTED else KernelFailed
            raise kind(str(error)) from error

    def _adapt(self, value: Any, flags: int) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._adapt(v, flags) for v in value]
        if not isinstance(value, torch.Tensor):
            return value
        if flags & CHANNELS_LAST_ONLY and value.dim() in CHANNELS_LAST:
            return value.contiguous(memory_format=CHANNELS_LAST[value.dim()])
        return value.contiguous() if flags & CONTIGUOUS_INPUTS else value


def call_cpu(op: str, args: Sequence[Any]) -> list[torch.Tensor]:
    name, _, variant = op.removeprefix("aten::").partition(".")
    function = getattr(getattr(torch.ops.aten, name), variant or "default")
    schema = function._schema.arguments
    by_name = {schema[i].name: arg for i, arg in enumerate(args) if schema[i].kwarg_only}
    positional = [arg for i, arg in enumerate(args) if not schema[i].kwarg_only]
    with torch.no_grad():
        result = function(*positional, **by_name)
    return list(result) if isinstance(result, (tuple, list)) else [result]


def poison(like: torch.Tensor) -> torch.Tensor:
    """A dense tensor of the same shape whose content no kernel would leave by accident."""
    out = torch.empty(like.shape, dtype=like.dtype)
    return out.view(torch.uint8).fill_(0x5A).view(like.dtype) if like.dim() and like.numel() else out


def close(actual: torch.Tensor, expected: torch.Tensor, what: str, scale: float = 1) -> None:
    rtol, atol = TOLERANCE.get(expected.dtype, (0, 0))
    torch.testing.assert_close(
        actual, expected, rtol=rtol * scale, atol=atol * scale, equal_nan=True, msg=lambda m: f"{what}: {m}"
    )


def check(host: Host, op: str, *args: Any, scale: float = 1) -> list[torch.Tensor]:
    """Runs one functional kernel and compares every output with the CPU's."""
    expected = call_cpu(op, args)
    outs = [poison(e) for e in expected]
    host.run(op, list(args), outs)
    for i, (out, want) in enumerate(zip(outs, expected)):
        close(out, want, f"{op} output {i}", scale)
    return outs


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    return torch.randint(0, 9, shape).to(dtype)
