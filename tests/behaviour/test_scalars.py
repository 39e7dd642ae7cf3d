# SPDX-License-Identifier: Apache-2.0
"""Python scalars and 0-dim tensors in every position, reflected operators, integer division."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.behaviour.agree import COMMON, DEVICE, FLOATS, INTEGERS, agree, short, values

SCALARS: list[Any] = [2, 0, -3, 2.5, True, float("inf"), float("nan"), 1 + 2j]
IN_PLACE = [
    "add_", "sub_", "mul_", "div_", "true_divide_", "floor_divide_", "remainder_", "fmod_", "pow_", "eq_", "ne_",
    "lt_", "le_", "gt_", "ge_", "fill_", "clamp_min_", "clamp_max_", "bitwise_and_", "bitwise_or_", "bitwise_xor_",
    "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__", "__iand__",
    "__ior__", "__ixor__", "__ilshift__", "__irshift__", "xlogy_", "float_power_", "masked_fill_",
]  # fmt: skip
REFLECTED = [
    "__radd__", "__rsub__", "__rmul__", "__rtruediv__", "__rfloordiv__", "__rmod__", "__rpow__", "__rand__",
    "__ror__", "__rxor__", "__rlshift__", "__rrshift__",
]  # fmt: skip


@pytest.mark.parametrize("dtype", COMMON, ids=short)
@pytest.mark.parametrize("name", IN_PLACE)
def test_inplace_with_python_scalars(name: str, dtype: torch.dtype) -> None:
    for scalar in SCALARS:
        if name in ("__ilshift__", "__irshift__") and scalar not in (0, 2):
            continue  # undefined in C for others
        if name == "masked_fill_":
            agree(lambda x, s=scalar: x.masked_fill_(x == x.flatten()[0], s), values((3, 4), dtype))
        else:
            agree(lambda x, s=scalar: getattr(x, name)(s), values((3, 4), dtype))


@pytest.mark.parametrize("dtype", COMMON, ids=short)
@pytest.mark.parametrize("name", REFLECTED)
def test_reflected_operators(name: str, dtype: torch.dtype) -> None:
    for scalar in (1, 2, 2.0, True, 0):
        if "shift" in name and (dtype.is_floating_point or isinstance(scalar, float)):
            continue
        agree(lambda x, s=scalar: getattr(x, name)(s), values((3, 4), dtype, low=1, high=5))


@pytest.mark.parametrize("dtype", COMMON, ids=short)
def test_the_famous_three(dtype: torch.dtype) -> None:
    x = values((5,), dtype)
    agree(lambda a: 1 - a, x)
    agree(lambda a: 2 // a, x)
    agree(lambda a: 2**a, x)
    agree(lambda a: 2.0**a, x)
    agree(lambda a: 1.0 / a, x)
    agree(lambda a: 7 % a, x)


@pytest.mark.parametrize("dtype", COMMON, ids=short)
def test_where_with_scalars(dtype: torch.dtype) -> None:
    x = values((3, 4), dtype)
    condition = values((3, 4), torch.bool, 1)
    for scalar in (1.0, 1, True, -2):
        agree(lambda c, a, s=scalar: torch.where(c, s, a), condition, x)
        agree(lambda c, a, s=scalar: torch.where(c, a, s), condition, x)
    agree(lambda c: torch.where(c, 1.0, 0.0), condition)
    agree(lambda c: torch.where(c, 1, 0), condition)
    agree(lambda c: torch.where(c), condition)
    agree(lambda c, a: torch.where(c, a, torch.tensor(1.0)), condition, x)  # a 0-dim tensor of the CPU
    agree(lambda c, a: torch.where(c[:, :1], a, a[0]), condition, x)


@pytest.mark.parametrize("dtype", INTEGERS, ids=short)
def test_integer_division(dtype: torch.dtype) -> None:
    x, y = values((30,), dtype, 0, -20, 20), values((30,), dtype, 1, -6, 6)
    for function in (
        torch.true_divide,
        torch.floor_divide,
        torch.remainder,
        torch.fmod,
        operator.truediv,
        operator.floordiv,
        operator.mod,
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
        lambda a, b: a.div_(b),
        lambda a, b: a.floor_divide_(b),
        lambda a, b: a.div_(b, rounding_mode="floor"),
        lambda a, b: torch.gcd(a, b),
    ):
        agree(function, x, y)
    for scalar in (3, -3, 2.5, -0.5):
        agree(lambda a, s=scalar: a / s, x)
        agree(lambda a, s=scalar: a // s, x)
        agree(lambda a, s=scalar: a % s, x)


@pytest.mark.parametrize("dtype", INTEGERS, ids=short)
def test_integer_division_by_zero_raises_what_the_cpu_raises(dtype: torch.dtype) -> None:
    agree(lambda a: a // 0, values((3,), dtype))
    agree(lambda a: a % torch.zeros_like(a), values((3,), dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=short)
def test_float_division_by_zero(dtype: torch.dtype) -> None:
    x = torch.tensor([1, -1, 0, float("inf"), float("nan")]).to(dtype)
    for function in (lambda a: a / 0, lambda a: a // 0, lambda a: a % 0, lambda a: 1 / (a * 0), lambda a: a / -0.0):
        agree(function, x)


BINARY: list[Callable[..., torch.Tensor]] = [
    torch.add,
    torch.sub,
    torch.mul,
    torch.div,
    torch.maximum,
    torch.eq,
    torch.lt,
]


@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.__name__)
def test_zero_dim_tensors_of_the_cpu_mix_with_the_device(function: Callable[..., torch.Tensor]) -> None:
    """Stock PyTorch lets a 0-dim CPU tensor take part as a scalar, on either side."""
    x, scalar = values((3, 4), torch.float32), torch.tensor(2.5, dtype=torch.float64)
    expected = function(x, scalar)
    if function is torch.maximum:  # no wrapped-number rule on devices: compare only one side
        expected = function(x, scalar)
    for found in (function(x.to(DEVICE), scalar), function(scalar, x.to(DEVICE))):
        assert found.device.type == torch.device(DEVICE).type
        assert found.dtype == expected.dtype
    torch.testing.assert_close(function(x.to(DEVICE), scalar).cpu(), expected)
    torch.testing.assert_close(function(scalar, x.to(DEVICE)).cpu(), function(scalar, x))


def test_type_promotion_matrix() -> None:
    for left in COMMON:
        for right in COMMON:
            agree(torch.add, values((2, 3), left), values((2, 3), right, 1), tolerance=(1e-2, 1e-2))
            agree(torch.mul, values((2, 3), left), values((), right, 1), tolerance=(1e-2, 1e-2))


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "div", "pow", "clamp", "lerp", "addcmul", "hypot", "atan2", "copysign"]
)
def test_scalar_results_have_the_cpus_type(name: str) -> None:
    x = values((4,), torch.int32)
    functions: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "clamp": lambda a: a.clamp(0, 2.5),
        "lerp": lambda a: torch.lerp(a.float(), a.float() * 2, 0.25),
        "addcmul": lambda a: torch.addcmul(a, a, a, value=2),
        "hypot": lambda a: torch.hypot(a.float(), a.float()),
        "atan2": lambda a: torch.atan2(a, a),
        "copysign": lambda a: torch.copysign(a, -1.0),
    }
    agree(functions.get(name, lambda a: getattr(a, name)(2.5)), x)


def test_item_bool_float_and_index() -> None:
    x = torch.tensor(3, device=DEVICE)
    assert x.item() == 3
    assert int(x) == 3
    assert float(x) == 3.0
    assert bool(x)
    assert [10, 11, 12, 13][x] == 13
    assert torch.tensor([2.5], device=DEVICE).item() == 2.5
    assert torch.tensor(True, device=DEVICE).item() is True
    assert torch.tensor(1 + 2j, device=DEVICE).item() == 1 + 2j
    with pytest.raises(RuntimeError):
        torch.ones(2, device=DEVICE).item()
    with pytest.raises(RuntimeError):
        bool(torch.ones(2, device=DEVICE))
