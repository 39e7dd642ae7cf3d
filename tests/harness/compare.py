# SPDX-License-Identifier: Apache-2.0
"""Compare what the device returned with what the CPU returned."""

from __future__ import annotations

import math
from collections.abc import Callable
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
# From a tensor of the CPU's result to the same tensor computed in a wider type; None where nobody knows.
Exact = Callable[[torch.Tensor], torch.Tensor | None]
_ROUNDINGS = 8  # how many units in the last place of its largest element the CPU may be off and still set the measure


def default_tolerance(dtype: torch.dtype) -> Tolerance:
    """(rtol, atol) of a type; exact for integers and booleans."""
    return _TOLERANCES.get(dtype, (0.0, 0.0))


def to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """The values on the CPU, conj and neg bits applied."""
    return tensor.detach().to("cpu").resolve_conj().resolve_neg()


def check_tensor(
    actual: torch.Tensor,
    expected: torch.Tensor,
    tolerance: Tolerance | None,
    values: bool,
    at: str,
    exact: Exact | None = None,
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
    found, wanted = to_cpu(actual), expected.detach().resolve_conj().resolve_neg()
    try:
        _check_values(found, wanted, tolerance, at)
    except Mismatch:
        wider = exact(expected) if exact is not None and _is_inexact(expected) else None
        if wider is None or not _as_exact(found, wanted, wider, tolerance or default_tolerance(expected.dtype)):
            raise


def _is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _as_exact(actual: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor, tolerance: Tolerance) -> bool:
    """True when no element is further from the exact result than the tolerance and twice the CPU's own worst error.

    The CPU rounds where a device need not, and the other way round: being as close to the truth is no fault. Twice,
    because which of two results has the larger worst error is chance.
    """
    eps, largest = torch.finfo(expected.dtype).eps, torch.finfo(expected.dtype).max
    if exact.shape != expected.shape or exact.is_complex() != expected.is_complex():
        return False
    exact = exact.detach().resolve_conj().resolve_neg()
    actual, expected = actual.to(exact.dtype), expected.to(exact.dtype)
    close = torch.isclose(actual, expected, *tolerance, equal_nan=True)
    size, (rtol, atol) = exact.abs(), tolerance
    fits = size <= largest  # where the CPU has no finite value all the same, it overflowed on the way
    both = fits & expected.isfinite()
    slack = min(2 * (expected - exact)[both].abs().amax(), _ROUNDINGS * eps * size[both].amax()) if both.any() else 0
    return bool((close | (fits & ((actual - exact).abs() <= atol + rtol * size + slack))).all())


def _check_values(actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance | None, at: str) -> None:
    rtol, atol = tolerance or default_tolerance(expected.dtype)
    if expected.layout != torch.strided or expected.is_quantized:
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
        return
    wider = _WIDER.get(expected.dtype)
    if wider is not None:
        actual, expected = actual.to(wider), expected.to(wider)
    same = (
        torch.allclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
        if _is_inexact(expected)
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
    exact: Exact | None = None,
) -> None:
    """Raise Mismatch unless the trees have equal structure and close tensors; tensors must be on `device`."""
    if isinstance(expected, torch.Tensor):
        if not isinstance(actual, torch.Tensor):
            raise Mismatch(f"{at}expected a tensor, found {type(actual).__name__}")
        if device is not None and expected.device.type == "cpu" and actual.device.type != torch.device(device).type:
            raise Mismatch(f"{at}device: expected {device}, found {actual.device}")
        check_tensor(actual, expected, (tolerances or {}).get(expected.dtype), values, at, exact)
    elif isinstance(expected, dict):
        if not isinstance(actual, dict) or list(actual) != list(expected):
            raise Mismatch(f"{at}expected a dict with keys {list(expected)}, found {actual!r:.200}")
        for key in expected:
            check_tree(actual[key], expected[key], tolerances, values, device, f"{at}[{key!r}] ", exact)
    elif isinstance(expected, (list, tuple)):
        if type(actual) is not type(expected) or len(actual) != len(expected):
            raise Mismatch(f"{at}expected {_kind(expected)}, found {_kind(actual)}")
        for i, (found, wanted) in enumerate(zip(actual, expected, strict=True)):
            check_tree(found, wanted, tolerances, values, device, f"{at}[{i}] ", exact)
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


def exact_results(expected: Any, wider: Any) -> Exact:
    """Looks up the tensors of a result in that of the same call in a wider type."""
    pairs = {id(mine): other for mine, other in zip(tensors_of(expected), tensors_of(wider), strict=False)}
    return lambda tensor: pairs.get(id(tensor))


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
