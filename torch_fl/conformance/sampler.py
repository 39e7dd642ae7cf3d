# SPDX-License-Identifier: Apache-2.0
"""Arguments for cases: tensors on the CPU, the same for the same seed, operator and type."""

from __future__ import annotations

import zlib

import torch


class Sampler:
    """Makes tensors of one element type. ``big`` asks for the sizes of mode perf."""

    def __init__(self, seed: int, op: str, dtype: torch.dtype, big: bool = False) -> None:
        self.dtype, self.big = dtype, big
        self._generator = torch.Generator().manual_seed(seed * 1_000_003 + zlib.crc32(f"{op} {dtype}".encode()))

    @property
    def is_float(self) -> bool:
        """Whether the type has fractions: real or complex."""
        return self.dtype.is_floating_point or self.dtype.is_complex

    def tensor(
        self, *shape: int, low: float = -3.0, high: float = 3.0, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Values between low and high: uniform, or integers of both bounds."""
        dtype = dtype or self.dtype
        if dtype == torch.bool:
            return torch.rand(shape, generator=self._generator) < 0.5
        if dtype.is_complex:
            parts = [self._uniform(shape, low, high) for _ in range(2)]
            return torch.complex(*parts).to(dtype)
        if dtype.is_floating_point:
            return self._uniform(shape, low, high).to(dtype)
        least = 0 if not dtype.is_signed else int(low)
        return torch.randint(least, max(least, int(high)) + 1, shape, generator=self._generator).to(dtype)

    def _uniform(self, shape: tuple[int, ...], low: float, high: float) -> torch.Tensor:
        return torch.rand(shape, generator=self._generator, dtype=torch.float64) * (high - low) + low

    def nonzero(self, *shape: int) -> torch.Tensor:
        """Values from which 0 is at least 0.5 away."""
        values = self.tensor(*shape)
        if self.dtype == torch.bool:
            return torch.ones(shape, dtype=torch.bool)
        if self.dtype.is_complex:
            return values + 4
        return torch.where(values.abs() < 0.5, torch.ones_like(values), values)

    def distinct(self, *shape: int) -> torch.Tensor:
        """Values of which no two are equal (in types that have so many): no order of ties to agree on."""
        count = torch.Size(shape).numel()
        values = torch.randperm(count, generator=self._generator).reshape(shape)
        if self.dtype == torch.bool:
            return values % 2 == 0
        return (values - (count // 2 if self.dtype.is_signed else 0)).to(self.dtype)

    def index(self, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Indices below high."""
        return torch.randint(0, high, shape, generator=self._generator).to(dtype)

    def permutation(self, count: int) -> torch.Tensor:
        """Indices, each once."""
        return torch.randperm(count, generator=self._generator)

    def well_conditioned(self, *shape: int) -> torch.Tensor:
        """Square matrices that can be solved with: dominated by their diagonals."""
        return self.tensor(*shape, low=-1, high=1) + 2 * shape[-1] * torch.eye(shape[-1], dtype=self.dtype)

    def positive_definite(self, *shape: int) -> torch.Tensor:
        """Symmetric matrices with positive eigenvalues."""
        half = self.tensor(*shape, low=-1, high=1)
        return half @ half.mT + shape[-1] * torch.eye(shape[-1], dtype=self.dtype)

    def number(self, value: float) -> float | int:
        """Return a scalar that fits the type: 1.5 for floats, 1 for integers."""
        return value if self.is_float else int(value)
