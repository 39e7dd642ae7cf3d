# SPDX-License-Identifier: Apache-2.0
"""Run something on the CPU and on the device and require the same: results, arguments afterwards, exceptions."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from tests.harness import compare, device
from tests.harness.compare import Mismatch, Tolerance
from tests.harness.device import DEVICE
from tests.harness.trees import Mover, describe

device.load()

HIDDEN_KERNELS = os.environ.get("SIMCHIP_HIDE_KERNELS") == "1"
DTYPES = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.complex128,
    torch.bool,
]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
COMPLEXES = [torch.complex64, torch.complex128]
COMMON = [*FLOATS, *INTEGERS, *COMPLEXES, torch.bool]


def short(value: Any) -> str:
    """Readable ids for parametrized tests."""
    return str(value).removeprefix("torch.")


def attempt(function: Callable[..., Any], *args: Any) -> tuple[Any, Exception | None]:
    """(result, None) or (None, exception)."""
    try:
        return function(*args), None
    except Exception as error:
        return None, error


def _settled(result: Any) -> Any:
    """Wait for the device: what fails on its stream fails here, and not in the next test."""
    device.synchronize()
    return result


def agree(
    function: Callable[..., Any],
    *args: Any,
    tolerance: Tolerance | None = None,
    strides: bool = False,
    views: bool = True,
    may_raise: bool = True,
) -> Any:
    """Call with copies of the (CPU) arguments on the CPU and on the device, compare everything, return the latter."""
    here, there = Mover("cpu").move(args), Mover(DEVICE).move(args)
    expected, expected_error = attempt(function, *here)
    found, error = attempt(lambda: _settled(function(*there)))
    where = f"{getattr(function, '__name__', function)} {describe(args)}"
    if expected_error is not None and not may_raise:
        raise expected_error
    if type(error) is not type(expected_error):
        raise Mismatch(f"{where}: expected {expected_error!r:.300}, found {error!r:.300}") from error
    if expected_error is not None:
        return None
    tolerances = {dtype: tolerance for dtype in DTYPES if tolerance is not None}
    compare.check_tree(found, expected, tolerances, True, DEVICE, f"{where}: ")
    compare.check_tree(there, here, tolerances, True, DEVICE, f"{where}: argument afterwards ")
    if strides:
        compare.check_strides(found, expected)
    if views and compare.aliases(found, there) != compare.aliases(expected, here):
        raise Mismatch(f"{where}: results and arguments share memory otherwise than on the CPU")
    return found


def agree_gradients(
    function: Callable[..., torch.Tensor], *args: torch.Tensor, tolerance: Tolerance | None = None
) -> None:
    """The gradients of function(*args).sum() with respect to all (floating) arguments are the CPU's."""
    grads = []
    for where in ("cpu", DEVICE):
        leaves = [item.requires_grad_() for item in Mover(where).move(tuple(item.detach() for item in args))]
        output = function(*leaves)
        total = output.sum()
        grads.append(list(torch.autograd.grad(total.abs() if total.is_complex() else total, leaves, allow_unused=True)))
    tolerances = {dtype: tolerance for dtype in DTYPES if tolerance is not None}
    compare.check_tree(grads[1], grads[0], tolerances, True, DEVICE, "gradient ")


def values(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0, low: float = -4, high: float = 5) -> torch.Tensor:
    """Small reproducible values on the CPU, without zeros (safe to divide by) except for booleans."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_complex:
        parts = torch.rand((*shape, 2), generator=generator, dtype=torch.float64) * (high - low) + low
        return torch.view_as_complex(parts).to(dtype)
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    if dtype.is_floating_point:
        return torch.where(drawn.abs() < 0.1, 0.5, drawn).to(dtype)
    drawn = drawn.round().abs() if not dtype.is_signed else drawn.round()
    return torch.where(drawn == 0, 1.0, drawn).to(torch.int64).to(dtype)
