# SPDX-License-Identifier: Apache-2.0
"""The random kernels against the sequence that fl_plugin.h lays down, computed here a second time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from harness import Chip

SEED, OFFSET = 0x1234_5678_9ABC_DEF0, 41
MASK = 0xFFFF_FFFF


@pytest.fixture(scope="session")
def chip() -> Chip:
    return Chip()


def philox(seed: int, counter: int) -> list[int]:
    c = [counter & MASK, counter >> 32 & MASK, 0, 0]
    k = [seed & MASK, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & MASK, (a >> 32) ^ c[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def words(n: int) -> np.ndarray:
    blocks = [philox(SEED, OFFSET + i) for i in range((n + 3) // 4)]
    return np.array(blocks, dtype=np.uint64).reshape(-1)[:n]


def wide_words(n: int) -> np.ndarray:
    blocks = np.array([philox(SEED, OFFSET + i) for i in range((n + 1) // 2)], dtype=np.uint64)
    return (blocks[:, 0::2] | blocks[:, 1::2] << np.uint64(32)).reshape(-1)[:n]


def units(n: int, dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.float64:
        return torch.from_numpy((wide_words(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53)
    return torch.from_numpy((words(n) >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24))


def draw(chip: Chip, op: str, args: list[object], dtype: torch.dtype, n: int) -> torch.Tensor:
    out = torch.zeros(n, dtype=dtype)
    chip.run(op, [out, *args, None], [out], dtype, SEED, OFFSET)
    return out


SIZES = [1, 3, 4, 7, 512, 1029]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def test_known_answer() -> None:
    """The first vector of the paper's authors."""
    assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_uniform(chip: Chip, n: int, dtype: torch.dtype) -> None:
    u = units(n, dtype)
    low, high = torch.tensor(-2.5, dtype=u.dtype), torch.tensor(3.25, dtype=u.dtype)
    expected = low + u * (high - low)
    expected = torch.where(expected.to(dtype).to(u.dtype) >= high, low, expected).to(dtype)
    assert torch.equal(draw(chip, "aten::uniform_", [-2.5, 3.25], dtype, n), expected)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_normal(chip: Chip, n: int, dtype: torch.dtype) -> None:
    u = units(n + n % 2, dtype).reshape(-1, 2)
    radius, angle = torch.sqrt(-2 * torch.log(1 - u[:, 0])), 2 * math.pi * u[:, 1]
    z = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], 1).reshape(-1)[:n]
    torch.testing.assert_close(draw(chip, "aten::normal_", [1.5, 2.0], dtype, n), (1.5 + 2 * z).to(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_exponential(chip: Chip, dtype: torch.dtype) -> None:
    expected = (-torch.log(1 - units(100, dtype)) / 2.5).to(dtype)
    torch.testing.assert_close(draw(chip, "aten::exponential_", [2.5], dtype, 100), expected)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.bool, torch.uint8, torch.int64], ids=str)
def test_bernoulli(chip: Chip, dtype: torch.dtype) -> None:
    assert torch.equal(
        draw(chip, "aten::bernoulli_.float", [0.3], dtype, 1000), (units(1000, torch.float32) < 0.3).to(dtype)
    )


@pytest.mark.parametrize(("low", "high"), [(0, 10), (-7, 2**31), (-(2**40), 2**40), (0, None)])
def test_random(chip: Chip, low: int, high: int | None) -> None:
    span = 2**64 if high is None else high - low
    source = wide_words(50) if span > 2**32 else words(50)
    expected = [(low + int(w) % span + 2**63) % 2**64 - 2**63 for w in source]
    assert draw(chip, "aten::random_.from", [low, high], torch.int64, 50).tolist() == expected


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_dropout(chip: Chip, dtype: torch.dtype, p: float) -> None:
    x = torch.linspace(-3, 3, 1001).to(dtype)
    out, mask = torch.empty_like(x), torch.empty(1001, dtype=torch.bool)
    chip.run("aten::native_dropout", [x, p, True], [out, mask], dtype, SEED, OFFSET)
    keep = units(1001, torch.float32) >= p
    assert torch.equal(mask, keep)
    torch.testing.assert_close(out, (x * keep * (0 if p == 1 else 1 / (1 - p))).to(dtype))
