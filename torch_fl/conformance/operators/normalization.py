# SPDX-License-Identifier: Apache-2.0
"""Batch, layer, group and root-mean-square norms, softmax, and their derivatives."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torch_fl.conformance.operators.table import FLOATS, Call, Generator, add
from torch_fl.conformance.sampler import Sampler

_OPS = torch.ops.aten
_RUNNING = ("running_mean", "running_var")  # updated in training, unknown to the schema
_IMAGES = ((4, 6, 5, 5), (8, 6), (3, 6, 17))


def _batch_norm(s: Sampler) -> Iterator[Call]:
    for shape in _IMAGES:
        c, terms = shape[1], torch.Size(shape).numel() // shape[1]
        scale, shift = s.tensor(c, low=0.5, high=1.5), s.tensor(c)
        mean, var = s.tensor(c), s.tensor(c, low=0.5, high=2)
        yield s.tensor(*shape), scale, shift, mean, var, True, 0.1, 1e-5, {"terms": terms}
        yield s.tensor(*shape), scale, shift, mean.clone(), var.clone(), False, 0.1, 1e-5
    yield s.tensor(*_IMAGES[0]), None, None, None, None, True, 0.1, 1e-5, {"terms": 100}


def _batch_norm_no_stats(s: Sampler) -> Iterator[Call]:
    for shape in _IMAGES:
        c, terms = shape[1], torch.Size(shape).numel() // shape[1]
        yield s.tensor(*shape), s.tensor(c, low=0.5, high=1.5), s.tensor(c), True, 0.1, 1e-5, {"terms": terms}


def _batch_norm_backward(s: Sampler) -> Iterator[Call]:
    for shape in _IMAGES:
        c, terms = shape[1], torch.Size(shape).numel() // shape[1]
        image, scale = s.tensor(*shape), s.tensor(c, low=0.5, high=1.5)
        mean, var = s.tensor(c), s.tensor(c, low=0.5, high=2)
        _, save_mean, save_inverse = _OPS.native_batch_norm(image, scale, scale, None, None, True, 0.1, 1e-5)
        saved = (mean, var, save_mean, save_inverse)
        for train in (True, False):
            yield s.tensor(*shape), image, scale, *saved, train, 1e-5, [True, True, True], {"terms": terms}


def _layer_norm(s: Sampler) -> Iterator[Call]:
    for shape, count in (((4, 16), 1), ((2, 3, 5, 7), 2), ((3, 257), 1)):
        inner = list(shape[-count:])
        terms = torch.Size(inner).numel()
        yield s.tensor(*shape), inner, s.tensor(*inner, low=0.5, high=1.5), s.tensor(*inner), 1e-5, {"terms": terms}
    yield s.tensor(4, 16), [16], None, None, 1e-5, {"terms": 16}


def _layer_norm_backward(s: Sampler) -> Iterator[Call]:
    for x, inner, scale, shift, eps, named in _layer_norm(s):
        _, mean, inverse = _OPS.native_layer_norm(x, inner, scale, shift, eps)
        mask = [True, scale is not None, shift is not None]
        yield s.tensor(*x.shape), x, inner, mean, inverse, scale, shift, mask, {"terms": named["terms"] * 4}


def _group_norm(s: Sampler) -> Iterator[Call]:
    for n, c, rest, groups in ((2, 6, (5, 5), 3), (3, 4, (9,), 1), (2, 4, (3, 3), 4)):
        count = torch.Size(rest).numel()
        x, scale, shift = s.tensor(n, c, *rest), s.tensor(c, low=0.5, high=1.5), s.tensor(c)
        yield x, scale, shift, n, c, count, groups, 1e-5, {"terms": count * c // groups}


def _group_norm_backward(s: Sampler) -> Iterator[Call]:
    for x, scale, shift, n, c, count, groups, eps, named in _group_norm(s):
        _, mean, inverse = _OPS.native_group_norm(x, scale, shift, n, c, count, groups, eps)
        sizes = (n, c, count, groups)
        yield s.tensor(*x.shape), x, mean, inverse, scale, *sizes, [True, True, True], {"terms": 4 * named["terms"]}


def _rms_norm(s: Sampler) -> Iterator[Call]:
    for shape, count in (((4, 16), 1), ((2, 3, 5, 7), 2)):
        inner = list(shape[-count:])
        yield s.tensor(*shape), inner, s.tensor(*inner, low=0.5, high=1.5), 1e-5, {"terms": 35}


def _rms_norm_backward(s: Sampler) -> Iterator[Call]:
    for x, inner, scale, eps, named in _rms_norm(s):
        inverse = _OPS._fused_rms_norm(x, inner, scale, eps)[1]
        yield s.tensor(*x.shape), x, inner, inverse, scale, [True, True], named


def _rms_norm_derivative(
    grad: torch.Tensor, x: torch.Tensor, inner: list[int], inverse: torch.Tensor, scale: torch.Tensor, mask: list[bool]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The CPU has no kernel: in float64, by the definition."""
    g, normal, scale_ = grad.double(), x.double() * inverse.double(), scale.double()
    rows = list(range(x.dim() - len(inner), x.dim()))
    projected = (g * scale_ * normal).mean(rows, keepdim=True)
    for_input = inverse.double() * (g * scale_ - normal * projected)
    return for_input.to(x.dtype), (g * normal).sum(list(range(x.dim() - len(inner)))).to(scale.dtype)


_big = lambda s: iter([(s.tensor(8, 64, 56, 56), *(s.tensor(64, low=0.5, high=2) for _ in range(4)), True, 0.1, 1e-5)])  # noqa: E731
_big_rows = lambda s: iter([(s.tensor(1024, 1024), [1024], s.tensor(1024), s.tensor(1024), 1e-5)])  # noqa: E731
add("native_batch_norm", _batch_norm, FLOATS, _big, roundings=32, written=_RUNNING)
add("_native_batch_norm_legit.no_stats", _batch_norm_no_stats, FLOATS, roundings=32)
add("native_batch_norm_backward", _batch_norm_backward, FLOATS, roundings=32)
add("native_layer_norm", _layer_norm, FLOATS, _big_rows, roundings=32)
add("native_layer_norm_backward", _layer_norm_backward, FLOATS, roundings=32)
add("native_group_norm", _group_norm, FLOATS, roundings=32)
add("native_group_norm_backward", _group_norm_backward, FLOATS, roundings=32)
add("_fused_rms_norm", _rms_norm, FLOATS, roundings=32)
add("_fused_rms_norm_backward", _rms_norm_backward, FLOATS, roundings=32, oracle=_rms_norm_derivative)

_ROWS = (((5, 7), 1), ((5, 7), 0), ((3, 4, 5), 1), ((2, 257), -1))


def _softmax(s: Sampler) -> Iterator[Call]:
    for shape, dim in _ROWS:
        yield s.tensor(*shape), dim, False, {"terms": shape[dim]}


def _softmax_backward(forward: str) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for shape, dim in _ROWS:
            output = getattr(_OPS, forward)(s.tensor(*shape), dim, False)
            yield s.tensor(*shape), output, dim, s.dtype, {"terms": shape[dim]}

    return generate


_big_softmax = lambda s: iter([(s.tensor(1024, 1024), 1, False)])  # noqa: E731
add("_softmax _log_softmax", _softmax, FLOATS, _big_softmax, roundings=8)
add("_softmax_backward_data", _softmax_backward("_softmax"), FLOATS, roundings=16)
add("_log_softmax_backward_data", _softmax_backward("_log_softmax"), FLOATS, roundings=16)
