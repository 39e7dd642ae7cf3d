# SPDX-License-Identifier: Apache-2.0
"""Products of matrices and vectors, and convolutions."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torch_fl.conformance.operators.table import COMPLEX, FLOATS, REAL, Call, add
from torch_fl.conformance.sampler import Sampler

_SIZES = ((5, 7, 3), (1, 1, 1), (16, 16, 16), (33, 65, 17), (4, 0, 3), (64, 128, 96))


def _mm(s: Sampler) -> Iterator[Call]:
    for m, k, n in _SIZES:
        yield s.tensor(m, k), s.tensor(k, n), {"terms": k}
    yield s.tensor(7, 5).mT, s.tensor(3, 7).mT, {"terms": 7}


def _bmm(s: Sampler) -> Iterator[Call]:
    for m, k, n in _SIZES:
        yield s.tensor(3, m, k), s.tensor(3, k, n), {"terms": k}


def _addmm(s: Sampler) -> Iterator[Call]:
    for m, k, n in _SIZES:
        yield s.tensor(m, n), s.tensor(m, k), s.tensor(k, n), {"terms": k + 1}
    yield s.tensor(3), s.tensor(5, 7), s.tensor(3, 7).mT, {"beta": 2, "alpha": 3, "terms": 8}
    yield s.tensor(5, 3), s.tensor(5, 7), s.tensor(7, 3), {"beta": 0, "terms": 8}


def _baddbmm(s: Sampler) -> Iterator[Call]:
    for m, k, n in _SIZES:
        yield s.tensor(3, m, n), s.tensor(3, m, k), s.tensor(3, k, n), {"terms": k + 1}
    yield s.tensor(5, 3), s.tensor(2, 5, 7), s.tensor(2, 7, 3), {"beta": 2, "alpha": 3, "terms": 8}


def _mv(s: Sampler) -> Iterator[Call]:
    for m, k, _ in _SIZES:
        yield s.tensor(m, k), s.tensor(k), {"terms": k}


def _addmv(s: Sampler) -> Iterator[Call]:
    for m, k, _ in _SIZES:
        yield s.tensor(m), s.tensor(m, k), s.tensor(k), {"beta": 2, "alpha": 3, "terms": k + 1}


def _addr(s: Sampler) -> Iterator[Call]:
    yield s.tensor(5, 7), s.tensor(5), s.tensor(7), {"beta": 2, "alpha": 3}
    yield s.tensor(5, 7), s.tensor(5), s.tensor(7)


def _dot(s: Sampler) -> Iterator[Call]:
    for n in (7, 1, 100, 1030):
        yield s.tensor(n), s.tensor(n), {"terms": n}


def _flops(args: Call) -> float:
    a, b = args[-2:]
    return 2.0 * int(a.numel()) * (int(b.shape[-1]) if b.dim() > 1 else 1)


_big_mm = lambda s: iter([(s.tensor(512, 512), s.tensor(512, 512))])  # noqa: E731
add("mm", _mm, REAL + COMPLEX, _big_mm, _flops)
add("bmm", _bmm, REAL + COMPLEX, lambda s: iter([(s.tensor(8, 256, 256), s.tensor(8, 256, 256))]), _flops)
add("addmm", _addmm, REAL + COMPLEX, lambda s: iter([tuple(s.tensor(512, 512) for _ in range(3))]), _flops)
add("baddbmm", _baddbmm, REAL + COMPLEX)
add("mv", _mv, REAL + COMPLEX, lambda s: iter([(s.tensor(1024, 1024), s.tensor(1024))]), _flops)
add("addmv", _addmv, REAL + COMPLEX)
add("addr", _addr, REAL)
add("dot vdot", _dot, REAL + COMPLEX)


# ---- convolutions: input, weight, stride, padding, dilation, transposed, output padding, groups ------------------

_CONVOLUTIONS = (
    ((2, 4, 9, 9), (6, 4, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    ((2, 4, 9, 8), (6, 4, 1, 1), [2, 2], [0, 0], [1, 1], False, [0, 0], 1),
    ((1, 4, 11, 11), (4, 1, 3, 3), [1, 2], [1, 0], [2, 1], False, [0, 0], 4),
    ((2, 4, 6, 6), (4, 3, 3, 3), [2, 2], [1, 1], [1, 1], True, [1, 1], 1),
    ((2, 6, 17), (4, 3, 5), [2], [2], [1], False, [0], 2),
    ((1, 2, 5, 6, 5), (4, 2, 3, 3, 2), [1, 1, 1], [1, 1, 0], [1, 1, 1], False, [0, 0, 0], 1),
)


def _terms(weight: tuple[int, ...]) -> int:
    return torch.Size(weight[1:]).numel()


def _convolution(s: Sampler) -> Iterator[Call]:
    for i, (x, w, stride, padding, dilation, transposed, extra, groups) in enumerate(_CONVOLUTIONS):
        channels = w[1] * groups if transposed else w[0]
        bias = s.tensor(channels) if i != 1 else None
        more = (stride, padding, dilation, transposed, extra, groups)
        yield (s.tensor(*x), s.tensor(*w), bias, *more, {"terms": _terms(w) * 4})


def _convolution_backward(s: Sampler) -> Iterator[Call]:
    for x, w, stride, padding, dilation, transposed, extra, groups in _CONVOLUTIONS:
        image, weight = s.tensor(*x, low=-1, high=1), s.tensor(*w, low=-1, high=1)
        more = (stride, padding, dilation, transposed, extra, groups)
        out = torch.ops.aten.convolution(image.float(), weight.float(), None, *more)
        grad, channels = s.tensor(*out.shape, low=-1, high=1), [out.shape[1]]
        yield (grad, image, weight, channels, *more, [True, True, True], {"terms": out.numel()})


def _big_convolution(s: Sampler) -> Iterator[Call]:
    yield s.tensor(4, 64, 56, 56), s.tensor(64, 64, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1


def _convolution_flops(args: Call) -> float:
    x, w, groups = args[0], args[1], args[8]
    return 2.0 * int(x.shape[0]) * int(x[0, 0].numel()) * int(w.numel()) if groups == 1 else 0.0


add("convolution", _convolution, REAL, _big_convolution, _convolution_flops)
add("convolution_backward", _convolution_backward, FLOATS)
