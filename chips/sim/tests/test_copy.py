# SPDX-License-Identifier: Apache-2.0
"""Copies, casts and fills: every pair of element types, and strides of many kinds."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from harness import DTYPES, Chip

FLOAT8 = [d for d in DTYPES if "float8" in str(d)]
ALL = [d for d in DTYPES if d not in FLOAT8]


@pytest.fixture(scope="session")
def chip() -> Chip:
    return Chip()


def numbers(dtype: torch.dtype) -> torch.Tensor:
    """Values that every type can hold (casts out of range are undefined), and for floats the special ones."""
    small = torch.tensor([0, 1, 2, 3, 5, 17, 100, 127, 64, 33, 1, 0], dtype=torch.float64)
    if dtype.is_floating_point or dtype.is_complex:
        small = small + torch.tensor([0, 0.25, 0.5, -0.25, 0.75, 0, 0, 0, 0.125, 0.3, 0, 0], dtype=torch.float64)
    if dtype.is_complex:
        return torch.complex(small, small.flip(0)).to(dtype)
    return small.to(dtype)


def copied(chip: Chip, src: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
    chip.run("aten::copy", [None, src.expand(dst.size()), False], [dst], src.dtype)
    return dst


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype in FLOAT8:
        return bool(a.view(torch.uint8).eq(b.view(torch.uint8)).all())
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b)
    a, b = a.to(torch.float64), b.to(torch.float64)
    return bool(torch.equal(a.isnan(), b.isnan()) and a.nan_to_num().eq(b.nan_to_num()).all())


@pytest.mark.parametrize(("source", "target"), itertools.product(ALL, ALL), ids=str)
def test_cast(chip: Chip, source: torch.dtype, target: torch.dtype) -> None:
    src = numbers(source)
    assert same(copied(chip, src, torch.empty(12, dtype=target)), src.to(target))
    strided = src.reshape(3, 4).t()
    expected = torch.empty(8, 3, dtype=target)[::2]
    assert same(copied(chip, strided, expected.clone()[:4]), strided.to(target))


@pytest.mark.parametrize("target", FLOAT8, ids=str)
def test_float8(chip: Chip, target: torch.dtype) -> None:
    values = [0.0, -0.0, 1, -1, 1.0625, 1.1875, 0.3, 448, 449, 464, 465, 480, 57344, 61440, 61441, 1e6, -1e6, 2**-9, 2**-10,
              3 * 2**-11, 2**-16, 2**-17, 3 * 2**-18, 240, 247, 248, 249, float("inf"), float("-inf"), float("nan")]  # fmt: skip
    if target == torch.float8_e8m0fnu:
        values = [abs(v) for v in values]
    src = torch.tensor(values, dtype=torch.float32)
    expected = src.to(target)
    mine = copied(chip, src, torch.empty(len(values), dtype=target))
    assert same(mine, expected), [(v, a, b) for v, a, b in zip(values, mine.tolist(), expected.tolist(), strict=True)]
    back = copied(chip, expected, torch.empty(len(values)))
    assert same(back, expected.to(torch.float32))


def test_half_rounding(chip: Chip) -> None:
    bits = torch.arange(0, 2**32 - 2**20, 104729, dtype=torch.int64).to(torch.uint32).view(torch.float32)
    for target in (torch.float16, torch.bfloat16):
        assert same(copied(chip, bits, torch.empty(bits.numel(), dtype=target)), bits.to(target))
    for source in (torch.float16, torch.bfloat16):
        every = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(source)
        assert same(copied(chip, every, torch.empty(2**16)), every.to(torch.float32))


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dense": lambda t: t,
    "transposed": lambda t: t.transpose(0, -1),
    "sliced": lambda t: t[1:, ::2],
    "expanded": lambda t: t[:1].expand_as(t),
    "permuted": lambda t: t.permute(2, 0, 1),
    "offset": lambda t: t[2:],
    "one": lambda t: t[0, 0, 0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int16, torch.float32, torch.int64, torch.complex128], ids=str)
def test_strides(chip: Chip, layout: str, dtype: torch.dtype) -> None:
    src = LAYOUTS[layout](torch.randint(0, 2 if dtype == torch.bool else 99, (40, 37, 35)).to(dtype))
    assert torch.equal(copied(chip, src, torch.empty(src.size(), dtype=dtype)), src)
    gaps = torch.zeros(*src.size(), 2, dtype=dtype)
    copied(chip, src, gaps[..., 0])
    assert torch.equal(gaps[..., 0], src)
    assert not gaps[..., 1].any()


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("value", [0, 1, 3, True, 2.5, 1 + 2j])
def test_fill(chip: Chip, dtype: torch.dtype, value: complex) -> None:
    if isinstance(value, complex) and not dtype.is_complex:
        pytest.skip("PyTorch refuses it")
    out = torch.zeros(5, 6, dtype=dtype)
    view = out[1:4, ::2]
    chip.run("aten::fill_.Scalar", [view, value], [view], dtype)
    expected = torch.zeros(5, 6, dtype=dtype)
    expected[1:4, ::2] = value
    assert same(out, expected)
    chip.run("aten::zero_", [view], [view], dtype)
    assert same(out, torch.zeros(5, 6, dtype=dtype))
