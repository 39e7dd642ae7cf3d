# SPDX-License-Identifier: Apache-2.0
"""Compare what the device returned with what the CPU returned."""

from __future__ import annotations

import math
from typing import Any

import torch

from tests.harness.trees import tensors_of


class Mismatch(AssertionError):
    """The device's answer differs from the CPU's."""


_WIDER = {
    torch.complex32: torch.complex64,
    torch.float8_e5m2: torch.float32,
    torch.float8_e4m3fn: torch.float32,
    torch.float8_e5m2fnuz: torch.float32,
    torch.float8_e4m3fnuz: torch.float32,
    torch.uint16: torch.int64,
    torch.uint32: torch.int64,
    torch.uint64: torch.int64,  # bit pattern is enough for equality
}

# (rtol, atol), as torch.testing.assert_close has them.
_TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex32: (1e-3, 1e-5),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}
Tolerance = tuple[float, float]


def default_tolerance(dtype: torch.dtype) -> Tolerance:
    """(rtol, atol) of a type; exact for integers and booleans."""
    return _TOLERANCES.get(dtype, (0.0, 0.0))


def to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """The values on the CPU, conj and neg bits applied."""
    return tensor.detach().to("cpu").resolve_conj().resolve_neg()


def check_tensor(
    actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance | None, values: bool, at: str
) -> None:
    """Raise Mismatch unless dtype and sizes agree and, if `values`, the elements are close."""
    if actual.dtype != expected.dtype:
        raise Mismatch(f"{at}dtype: expected {expected.dtype}, found {actual.dtype}")
    if actual.shape != expected.shape:
        raise Mismatch(f"{at}shape: expected {list(expected.shape)}, found {list(actual.shape)}")
    if actual.layout != expected.layout:
        raise Mismatch(f"{at}layout: expected {expected.layout}, found {actual.layout}")
    if not values or expected.device.type == "meta":
        return
    _check_values(to_cpu(actual), expected.detach().resolve_conj().resolve_neg(), tolerance, at)


def _check_values(actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance | None, at: str) -> None:
    rtol, atol = tolerance or default_tolerance(expected.dtype)
    if expected.layout != torch.strided or expected.is_quantized:
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
        return
    wider = _WIDER.get(expected.dtype)
    if wider is not None:
        actual, expected = actual.to(wider), expected.to(wider)
    floating = expected.is_floating_point() or expected.is_complex()
    same = (
        torch.allclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
        if floating
        else torch.equal(actual, expected)
    )
    if not same:
        raise Mismatch(at + _difference(actual, expected, rtol, atol))


def _difference(actual: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float) -> str:
    if expected.dtype == torch.bool:
        wrong = actual != expected
    else:
        wrong = ~torch.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    index = tuple(int(i) for i in wrong.nonzero()[0])
    count, total = int(wrong.sum()), wrong.numel()
    found, wanted = actual[index].item(), expected[index].item()
    where = f"{count} of {total} differ (rtol {rtol:g}, atol {atol:g}), first at {list(index)}"
    return f"values: {where}: expected {wanted}, found {found}"


def check_tree(
    actual: Any,
    expected: Any,
    tolerances: dict[torch.dtype, Tolerance] | None = None,
    values: bool = True,
    device: str | None = None,
    at: str = "",
) -> None:
    """Raise Mismatch unless the trees have equal structure and close tensors; tensors must be on `device`."""
    if isinstance(expected, torch.Tensor):
        if not isinstance(actual, torch.Tensor):
            raise Mismatch(f"{at}expected a tensor, found {type(actual).__name__}")
        if device is not None and expected.device.type == "cpu" and actual.device.type != torch.device(device).type:
            raise Mismatch(f"{at}device: expected {device}, found {actual.device}")
        check_tensor(actual, expected, (tolerances or {}).get(expected.dtype), values, at)
    elif isinstance(expected, dict):
        if not isinstance(actual, dict) or list(actual) != list(expected):
            raise Mismatch(f"{at}expected a dict with keys {list(expected)}, found {actual!r:.200}")
        for key in expected:
            check_tree(actual[key], expected[key], tolerances, values, device, f"{at}[{key!r}] ")
    elif isinstance(expected, (list, tuple)):
        if type(actual) is not type(expected) or len(actual) != len(expected):
            raise Mismatch(f"{at}expected {_kind(expected)}, found {_kind(actual)}")
        for i, (found, wanted) in enumerate(zip(actual, expected, strict=True)):
            check_tree(found, wanted, tolerances, values, device, f"{at}[{i}] ")
    else:
        _check_object(actual, expected, tolerances, values, at)


def _kind(value: Any) -> str:
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, (list, tuple)) else type(value).__name__


def _check_object(
    actual: Any, expected: Any, tolerances: dict[torch.dtype, Tolerance] | None, values: bool, at: str
) -> None:
    if type(actual) is not type(expected):
        raise Mismatch(
            f"{at}expected {type(expected).__name__} {expected!r:.80}, found {type(actual).__name__} {actual!r:.80}"
        )
    if not values or isinstance(expected, torch.device):
        return
    if isinstance(expected, float):
        rtol, atol = (tolerances or {}).get(torch.float32) or default_tolerance(torch.float32)
        same = math.isclose(actual, expected, rel_tol=rtol, abs_tol=atol) or (
            math.isnan(actual) and math.isnan(expected)
        )
    elif isinstance(expected, (bool, int, complex, str, torch.dtype, torch.Size, type(None))):
        same = actual == expected
    else:
        same = True  # an object the harness knows nothing about: its type has been compared
    if not same:
        raise Mismatch(f"{at}expected {expected!r:.80}, found {actual!r:.80}")


def check_strides(actual: Any, expected: Any) -> None:
    """Raise Mismatch unless every dense tensor has the CPU's strides (sizes up to 1 aside)."""
    for i, (found, wanted) in enumerate(zip(tensors_of(actual), tensors_of(expected), strict=True)):
        if wanted.layout != torch.strided or wanted.is_nested or wanted.numel() == 0:
            continue
        for size, a, b in zip(wanted.shape, found.stride(), wanted.stride(), strict=True):
            if size > 1 and a != b:
                raise Mismatch(
                    f"output {i} strides: expected {wanted.stride()}, found {found.stride()} of {list(wanted.shape)}"
                )


def aliases(outputs: Any, inputs: Any) -> list[tuple[int, int]]:
    """Pairs (output, input) that share memory."""
    owners = [storage_id(tensor) for tensor in tensors_of(inputs)]
    pairs = []
    for i, output in enumerate(tensors_of(outputs)):
        mine = storage_id(output)
        pairs += [(i, j) for j, owner in enumerate(owners) if mine is not None and mine == owner]
    return pairs


def storage_id(tensor: torch.Tensor) -> int | None:
    """Identity of the tensor's storage, None when it owns no memory (empty, sparse, meta)."""
    try:
        storage = tensor.untyped_storage()
        return storage._cdata if storage.nbytes() else None
    except (NotImplementedError, RuntimeError):
        return None
