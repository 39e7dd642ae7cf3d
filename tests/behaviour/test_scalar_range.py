# SPDX-License-Identifier: Apache-2.0
"""Scalars at and beyond the edges of the type that an operator computes in: converted, wrapped or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.behaviour.agree import agree, attempt, short

DTYPES = [
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.bool),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
]
VALUES = [
    *(-1, -1.5, -0.5, 255, 256, -129, -255, -256, 65504, 70000, 2**31, 2**32, 2**53 + 1, 2**63 - 1, -(2**63)),
    *(2**63, 2**64 - 1, 1e30, -1e30, 1e300, float("inf"), float("nan"), 1 + 1j, 1e30j, True),
]
OPERATORS: dict[str, Callable[[torch.Tensor, Any], torch.Tensor]] = {
    "fill_": lambda x, v: x.fill_(v),
    "full": lambda x, v: torch.full((2,), v, dtype=x.dtype, device=x.device),
    "set item": lambda x, v: x.__setitem__(0, v) or x,
    "masked_fill": lambda x, v: x.masked_fill(x == x, v),
    "index_fill": lambda x, v: x.index_fill(0, torch.tensor([1], device=x.device), v),
    "scatter": lambda x, v: x.scatter(0, torch.tensor([1], device=x.device), v),
    "pad": lambda x, v: F.pad(x, (1, 0), value=v),
    "add": lambda x, v: x + v,
    "mul_": lambda x, v: x.mul_(v),
    "rsub": lambda x, v: v - x,
    "less": lambda x, v: x < v,
    "clamp": lambda x, v: x.clamp(max=v),
    "where": lambda x, v: torch.where(x == x, x, v),
    "foreach": lambda x, v: torch._foreach_add([x, x], [v, v])[0],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=short)
@pytest.mark.parametrize("name", OPERATORS)
def test_scalar(name: str, dtype: torch.dtype) -> None:
    for value in VALUES:
        _, error = attempt(OPERATORS[name], torch.ones(2, dtype=torch.uint8).to(dtype), value)
        if "not implemented for" in str(error):
            continue  # a type that the CPU lacks is no rule for others
        agree(lambda x, v=value: OPERATORS[name](x, v), torch.ones(2, dtype=torch.uint8).to(dtype))


@pytest.mark.parametrize("value", [2**63, 2**64 - 1])
def test_zero_dim_uint64(value: int) -> None:
    big = torch.tensor(value, dtype=torch.uint64)
    for dtype in (torch.float32, torch.float64, torch.uint64):
        agree(lambda x: x * big, torch.ones(2, dtype=torch.uint8).to(dtype))
