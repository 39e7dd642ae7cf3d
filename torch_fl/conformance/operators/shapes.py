# SPDX-License-Identifier: Apache-2.0
"""Rearrangements that move data: concatenation, flips, padding, windows; factories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torch_fl.conformance.operators.table import ALL, FLOATS, REAL, Call, Generator, add
from torch_fl.conformance.sampler import Sampler


def _cat(s: Sampler) -> Iterator[Call]:
    yield [s.tensor(5, 7), s.tensor(3, 7)], 0
    yield [s.tensor(5, 7), s.tensor(5, 2), s.tensor(5, 1)], 1
    yield [s.tensor(2, 3, 4), s.tensor(2, 1, 4)], -2
    yield [s.tensor(5), s.tensor(0), s.tensor(4)], 0
    if s.dtype.is_floating_point:
        yield [s.tensor(5, 7), s.tensor(5, 7, dtype=torch.int64)], 0


def _several(shape: tuple[int, ...], *arguments: tuple[Any, ...]) -> Generator:
    return lambda s: iter([(s.tensor(*shape), *more) for more in arguments])


_big_cat = lambda s: iter([([s.tensor(1024, 512), s.tensor(1024, 512)], 1)])  # noqa: E731
add("cat", _cat, ALL, _big_cat, exact=True)
add("tril triu", _several((2, 5, 7), (0,), (1,), (-2,)), ALL, exact=True)
add("flip", _several((3, 4, 5), ([0],), ([1, 2],)), ALL, exact=True)
add("roll", _several((3, 4, 5), ([2], [1]), ([1, -1], [0, 2])), ALL, exact=True)
add("repeat", _several((3, 4), ([2, 3],), ([2, 1, 2],)), ALL, exact=True)
add("narrow_copy", _several((5, 7), (1, 2, 3), (0, 1, 4)), ALL, exact=True)
add("pixel_shuffle", _several((2, 8, 3, 4), (2,)), ALL, exact=True)
add("pixel_unshuffle", _several((2, 2, 6, 4), (2,)), ALL, exact=True)
add("channel_shuffle", _several((2, 6, 3, 4), (3,)), FLOATS, exact=True)
add("trace", lambda s: iter([(s.tensor(5, 7), {"terms": 5}), (s.tensor(6, 6), {"terms": 6})]), REAL)


def _factory(*calls: tuple[Any, ...]) -> Generator:
    """Calls without a tensor: the device and the type are named."""

    def generate(s: Sampler) -> Iterator[Call]:
        for call in calls:
            yield (*call, {"dtype": s.dtype, "device": torch.device("cpu")})

    return generate


add("arange.start_step", _factory((1, 10, 2), (0, 100, 3), (7, 1, -2)), REAL)
add("eye", _factory((5,), (1,)), ALL, exact=True)
add("eye.m", _factory((5, 7), (3, 2)), ALL, exact=True)
add("linspace", _factory((0, 10, 11), (-2, 3, 7)), FLOATS)
add("logspace", _factory((0, 2, 5), (-1, 1, 7)), FLOATS, roundings=64)


# ---- padding and windows ----------------------------------------------------------------------------------------

_PADS = {1: [1, 2], 2: [1, 2, 2, 1], 3: [1, 2, 2, 1, 1, 0]}


def _shape(n: int) -> tuple[int, ...]:
    return (2, 3, *(5, 6, 4)[:n])


def _pad(n: int) -> Generator:
    return lambda s: iter([(s.tensor(*_shape(n)), _PADS[n])])


def _pad_backward(n: int) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        sizes = list(_shape(n))
        for i in range(n):
            sizes[-1 - i] += _PADS[n][2 * i] + _PADS[n][2 * i + 1]
        yield s.tensor(*sizes), s.tensor(*_shape(n)), _PADS[n], {"terms": 4**n}

    return generate


for _n in (1, 2, 3):
    add(f"reflection_pad{_n}d replication_pad{_n}d", _pad(_n), FLOATS, exact=True)
    add(f"reflection_pad{_n}d_backward replication_pad{_n}d_backward", _pad_backward(_n), FLOATS)


def _im2col(s: Sampler) -> Iterator[Call]:
    yield s.tensor(2, 3, 6, 7), [2, 3], [1, 1], [0, 0], [1, 1]
    yield s.tensor(2, 3, 6, 7), [2, 2], [2, 1], [1, 1], [2, 2]


def _col2im(s: Sampler) -> Iterator[Call]:
    for image, *more in _im2col(s):
        columns = torch.ops.aten.im2col(image, *more)
        yield s.tensor(*columns.shape), [6, 7], *more, {"terms": 6}


def _unfold_backward(s: Sampler) -> Iterator[Call]:
    yield s.tensor(3, 3, 4), [3, 8], 1, 4, 2, {"terms": 2}


add("im2col", _im2col, FLOATS, exact=True)
add("col2im", _col2im, FLOATS)
add("unfold_backward", _unfold_backward, FLOATS)
