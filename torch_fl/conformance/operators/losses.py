# SPDX-License-Identifier: Apache-2.0
"""Losses and their derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torch_fl.conformance.operators.table import FLOATS, WIDE, Call, Generator, add
from torch_fl.conformance.sampler import Sampler

_OPS = torch.ops.aten


def _pairs(*rest: Any, low: float = -3.0, high: float = 3.0) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for reduction in (1, 0, 2):
            shape = (5, 7)
            yield (
                s.tensor(*shape, low=low, high=high),
                s.tensor(*shape, low=low, high=high),
                reduction,
                *rest,
                {"terms": 35},
            )

    return generate


def _pairs_backward(*rest: Any) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for reduction in (1, 0, 2):
            grad = s.tensor(5, 7) if reduction == 0 else s.tensor()
            yield grad, s.tensor(5, 7), s.tensor(5, 7), reduction, *rest

    return generate


def _cross_entropy(s: Sampler) -> Iterator[Call]:
    for reduction in (1, 0, 2):
        x, target = s.tensor(5, 7, low=0.1, high=0.9), s.tensor(5, 7, low=0, high=1)
        yield x, target, s.tensor(7, low=0.5, high=2) if reduction == 1 else None, reduction, {"terms": 35}


def _cross_entropy_backward(s: Sampler) -> Iterator[Call]:
    for x, target, weight, reduction, _ in _cross_entropy(s):
        yield s.tensor(5, 7) if reduction == 0 else s.tensor(), x, target, weight, reduction


add("mse_loss", _pairs(), FLOATS, roundings=8)
add("smooth_l1_loss huber_loss", _pairs(1.0), FLOATS, roundings=8)
add("binary_cross_entropy", _cross_entropy, FLOATS, roundings=16)
add("mse_loss_backward", _pairs_backward(), FLOATS, roundings=8)
add("smooth_l1_loss_backward huber_loss_backward", _pairs_backward(1.0), FLOATS, roundings=8)
add("binary_cross_entropy_backward", _cross_entropy_backward, FLOATS, roundings=16)


def _nll(*image: int) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for reduction in (1, 0, 2):
            for weighted, ignored in ((False, -100), (True, 2)):
                weight = s.tensor(6, low=0.5, high=2) if weighted else None
                x, target = s.tensor(5, 6, *image, low=-3, high=0), s.index(6, 5, *image)
                yield x, target, weight, reduction, ignored, {"terms": target.numel()}

    return generate


def _nll_backward(name: str, *image: int) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for x, target, weight, reduction, ignored, _ in _nll(*image)(s):
            _, total = getattr(_OPS, name)(x, target, weight, reduction, ignored)
            grad = s.tensor(*target.shape) if reduction == 0 else s.tensor()
            yield grad, x, target, weight, reduction, ignored, total

    return generate


add("nll_loss_forward", _nll(), FLOATS, roundings=8)
add("nll_loss_backward", _nll_backward("nll_loss_forward"), FLOATS, roundings=8)
add("nll_loss2d_forward", _nll(3, 4), FLOATS, roundings=8)
add("nll_loss2d_backward", _nll_backward("nll_loss2d_forward", 3, 4), FLOATS, roundings=8)


def _multi_margin(s: Sampler) -> Iterator[Call]:
    for p, reduction in ((1, 1), (2, 0), (1, 2)):
        yield s.tensor(5, 6), s.index(6, 5), p, 1.0, None, reduction, {"terms": 30}


def _multi_margin_backward(s: Sampler) -> Iterator[Call]:
    for x, target, p, margin, weight, reduction, _ in _multi_margin(s):
        yield s.tensor(5) if reduction == 0 else s.tensor(), x, target, p, margin, weight, reduction


def _labels(s: Sampler) -> torch.Tensor:
    rows = [torch.cat([s.permutation(6)[:3], torch.full((3,), -1)]) for _ in range(5)]
    return torch.stack(rows)


def _multilabel(s: Sampler) -> Iterator[Call]:
    for reduction in (1, 0, 2):
        yield s.tensor(5, 6), _labels(s), reduction, {"terms": 30}


def _multilabel_backward(s: Sampler) -> Iterator[Call]:
    for x, target, reduction, named in _multilabel(s):
        _, is_target = _OPS.multilabel_margin_loss_forward(x, target, reduction)
        yield s.tensor(5) if reduction == 0 else s.tensor(), x, target, reduction, is_target, named


def _ctc(s: Sampler) -> Iterator[Call]:
    for blank in (0, 3):
        chances = torch.log_softmax(s.tensor(12, 2, 6), -1)
        targets = s.index(2, 2, 4) + 1
        yield chances, targets, [12, 10], [4, 3], blank, False, {"terms": 48}


def _ctc_backward(s: Sampler) -> Iterator[Call]:
    for chances, targets, lengths, sizes, blank, zero, named in _ctc(s):
        loss, alpha = _OPS._ctc_loss(chances, targets, lengths, sizes, blank, zero)
        yield s.tensor(2), chances, targets, lengths, sizes, loss, alpha, blank, zero, named


add("multi_margin_loss", _multi_margin, FLOATS, roundings=8)
add("multi_margin_loss_backward", _multi_margin_backward, FLOATS, roundings=8)
add("multilabel_margin_loss_forward", _multilabel, FLOATS, roundings=8)
add("multilabel_margin_loss_backward", _multilabel_backward, FLOATS, roundings=8)
# The second output is the table that the derivative reads; its unreachable entries are nobody's business.
add("_ctc_loss", _ctc, WIDE, roundings=64, ignore=[1])
add("_ctc_loss_backward", _ctc_backward, WIDE, roundings=64)
