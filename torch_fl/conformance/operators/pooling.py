# SPDX-License-Identifier: Apache-2.0
"""Pooling and its derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torch_fl.conformance.operators.table import FLOATS, INTEGERS, Call, Generator, add
from torch_fl.conformance.sampler import Sampler

_IMAGE = {2: (2, 3, 8, 9), 3: (1, 2, 6, 7, 6)}
_OPS = torch.ops.aten


def _max_arguments(n: int) -> list[tuple[Any, ...]]:
    return [
        ([2] * n, [2] * n, [0] * n, [1] * n, False),
        ([3] * n, [2] * n, [1] * n, [1] * n, True),
        ([2] * n, [1] * n, [0] * n, [2] * n, False),
    ]


def _average_arguments(n: int) -> list[tuple[Any, ...]]:
    return [
        ([2] * n, [2] * n, [0] * n, False, True, None),
        ([3] * n, [2] * n, [1] * n, True, False, None),
        ([3] * n, [1] * n, [1] * n, False, True, 5),
    ]


def _max(n: int) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for arguments in _max_arguments(n):
            yield (s.distinct(*_IMAGE[n]), *arguments)

    return generate


def _max_backward(n: int) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for arguments in _max_arguments(n):
            image = s.distinct(*_IMAGE[n])
            out, indices = getattr(_OPS, f"max_pool{n}d_with_indices")(image, *arguments)
            yield (s.tensor(*out.shape), image, *arguments, indices, {"terms": 3**n})

    return generate


def _average(n: int) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for arguments in _average_arguments(n):
            yield (s.tensor(*_IMAGE[n]), *arguments, {"terms": 3**n})

    return generate


def _average_backward(n: int) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for arguments in _average_arguments(n):
            image = s.tensor(*_IMAGE[n])
            out = getattr(_OPS, f"avg_pool{n}d")(image, *arguments)
            yield (s.tensor(*out.shape), image, *arguments, {"terms": 3**n})

    return generate


def _adaptive(n: int, distinct: bool) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for size in (3, 1, 4):
            image = s.distinct(*_IMAGE[n]) if distinct else s.tensor(*_IMAGE[n])
            yield image, [size] * n, {"terms": image[0, 0].numel()}

    return generate


def _adaptive_average_backward(n: int) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for size in (3, 1, 4):
            yield s.tensor(*_IMAGE[n][:2], *[size] * n), s.tensor(*_IMAGE[n]), {"terms": 8}

    return generate


def _adaptive_max_backward(n: int) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for size in (3, 1, 4):
            image = s.distinct(*_IMAGE[n])
            indices = getattr(_OPS, f"adaptive_max_pool{n}d")(image, [size] * n)[1]
            yield s.tensor(*indices.shape), image, indices, {"terms": 8}

    return generate


def _fractional(n: int) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        shape = _IMAGE[n]
        yield s.distinct(*shape), [2] * n, [3] * n, s.tensor(*shape[:2], n, low=0.05, high=0.95)

    return generate


def _fractional_backward(n: int) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for image, kernel, size, samples in _fractional(n)(s):
            indices = getattr(_OPS, f"fractional_max_pool{n}d")(image, kernel, size, samples)[1]
            yield s.tensor(*indices.shape), image, kernel, size, indices, {"terms": 2**n}

    return generate


def _unpool(n: int) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        image = s.distinct(*_IMAGE[n]).to(torch.float32)
        out, indices = getattr(_OPS, f"max_pool{n}d_with_indices")(image, [2] * n, [2] * n)
        size = list(image.shape[2:])
        yield (out.to(s.dtype), indices, size, *(([2] * n, [0] * n) if n == 3 else ()))

    return generate


_big = lambda s: iter([(s.tensor(8, 64, 56, 56), [2, 2], [2, 2])])  # noqa: E731
for _n in (2, 3):
    add(f"max_pool{_n}d_with_indices", _max(_n), FLOATS + INTEGERS[:3], _big if _n == 2 else None, exact=True)
    add(f"max_pool{_n}d_with_indices_backward", _max_backward(_n))
    add(f"avg_pool{_n}d", _average(_n), FLOATS, _big if _n == 2 else None)
    add(f"avg_pool{_n}d_backward", _average_backward(_n))
    add(f"_adaptive_avg_pool{_n}d", _adaptive(_n, False))
    add(f"_adaptive_avg_pool{_n}d_backward", _adaptive_average_backward(_n))
    add(f"adaptive_max_pool{_n}d", _adaptive(_n, True), exact=True)
    add(f"adaptive_max_pool{_n}d_backward", _adaptive_max_backward(_n))
    add(f"fractional_max_pool{_n}d", _fractional(_n), exact=True)
    add(f"fractional_max_pool{_n}d_backward", _fractional_backward(_n))
    add(f"max_unpool{_n}d", _unpool(_n), FLOATS, exact=True)
