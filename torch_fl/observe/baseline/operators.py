# SPDX-License-Identifier: Apache-2.0
"""Common operators at a size of their own each, so that a comparison can name the one that changed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_fl.observe.baseline.case import Case, Kind, Work

Make = Callable[[torch.device, int], tuple[Callable[..., Any], tuple[Any, ...]]]
# At scale 1: a matrix and what is computed from it share a core's second-level cache, so that neighbours on the machine
# disturb little; and a call takes several times what its launch does.
_ROWS, _COLUMNS = 96, 256


def _numbers(device: torch.device, *shape: int) -> Tensor:
    return torch.randn(*shape).to(device)


def _square(device: torch.device, scale: int) -> Tensor:
    return _numbers(device, _ROWS * scale, _COLUMNS)


def _indices(device: torch.device, limit: int, *shape: int) -> Tensor:
    return torch.randint(0, limit, shape).to(device)


def _of(function: Callable[..., Any], operands: int = 1, *rest: Any) -> Make:
    """An operator of equally shaped matrices."""
    return lambda device, scale: (function, (*(_square(device, scale) for _ in range(operands)), *rest))


def _positive(function: Callable[..., Any]) -> Make:
    return lambda device, scale: (function, (_square(device, scale).abs() + 0.1,))


def _where(device: torch.device, scale: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    a, b = _square(device, scale), _square(device, scale)
    return torch.where, ((a > 0), a, b)


def _masked_fill(device: torch.device, scale: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    a = _square(device, scale)
    return torch.masked_fill, (a, a > 0, 0.5)


def _product(rows: int, inner: int, columns: int) -> Make:
    return lambda device, scale: (
        torch.mm,
        (_numbers(device, rows * scale, inner), _numbers(device, inner, columns)),
    )


def _linear(device: torch.device, scale: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return torch.addmm, (_numbers(device, 192), _numbers(device, 64 * scale, 192), _numbers(device, 192, 192))


def _bmm(device: torch.device, scale: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return torch.bmm, (_numbers(device, 8 * scale, 64, 64), _numbers(device, 8 * scale, 64, 64))


def _image(device: torch.device, scale: int, channels: int = 16) -> Tensor:
    return _numbers(device, scale, channels, 56, 56)


def _conv(groups: int) -> Make:
    def make(device: torch.device, scale: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        weight = _numbers(device, 16, 16 // groups, 3, 3)
        return torch.conv2d, (_image(device, scale), weight, None, 1, 1, 1, groups)

    return make


def _on_image(function: Callable[..., Any], *rest: Any) -> Make:
    return lambda device, scale: (function, (_image(device, scale), *rest))


def _layer_norm(device: torch.device, scale: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    weights = _numbers(device, _COLUMNS), _numbers(device, _COLUMNS)
    return F.layer_norm, (_square(device, scale), (_COLUMNS,), *weights)


def _batch_norm(device: torch.device, scale: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    statistics = _numbers(device, 16), _numbers(device, 16).abs() + 1
    return F.batch_norm, (_image(device, scale), *statistics)


def _embedding(device: torch.device, scale: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return F.embedding, (_indices(device, 200, _ROWS * scale), _numbers(device, 200, _COLUMNS))


def _index_select(device: torch.device, scale: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return torch.index_select, (_square(device, scale), 0, _indices(device, _ROWS, _ROWS * scale))


def _gather(device: torch.device, scale: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return torch.gather, (_square(device, scale), 1, _indices(device, _COLUMNS, _ROWS * scale, _COLUMNS))


def _scatter_add(device: torch.device, scale: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    index = _indices(device, _COLUMNS, _ROWS * scale, _COLUMNS)
    return torch.scatter_add, (_square(device, scale), 1, index, _square(device, scale))


def _advanced_index(device: torch.device, scale: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return torch.Tensor.__getitem__, (_square(device, scale), _indices(device, _ROWS, _ROWS * scale))


def _cat(device: torch.device, scale: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return torch.cat, ([_square(device, scale), _square(device, scale)], 1)


def _transpose(x: Tensor) -> Tensor:
    return x.t().contiguous()


def _fill(x: Tensor) -> Tensor:
    return x.fill_(1.0)


def _half(x: Tensor) -> Tensor:
    return x.to(torch.float16)


def _nll_loss(device: torch.device, scale: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return F.nll_loss, (_numbers(device, 8192 * scale, 16), _indices(device, 16, 8192 * scale))


def _sdpa(device: torch.device, scale: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return F.scaled_dot_product_attention, tuple(_numbers(device, scale, 4, 64, 32) for _ in range(3))


# Operators as a chip registers them, and what calls them.
_TABLE: tuple[tuple[str, Make], ...] = (
    ("aten::add.Tensor", _of(torch.add, 2)),
    ("aten::sub.Tensor", _of(torch.sub, 2)),
    ("aten::mul.Tensor", _of(torch.mul, 2)),
    ("aten::div.Tensor", _of(torch.div, 2)),
    ("aten::maximum", _of(torch.maximum, 2)),
    ("aten::relu", _of(torch.relu)),
    ("aten::gelu", _of(F.gelu)),
    ("aten::silu", _of(F.silu)),
    ("aten::sigmoid", _of(torch.sigmoid)),
    ("aten::tanh", _of(torch.tanh)),
    ("aten::exp", _of(torch.exp)),
    ("aten::log", _positive(torch.log)),
    ("aten::rsqrt", _positive(torch.rsqrt)),
    ("aten::clamp", _of(torch.clamp, 1, -1.0, 1.0)),
    ("aten::gt.Tensor", _of(torch.gt, 2)),
    ("aten::where.self", _where),
    ("aten::masked_fill.Scalar", _masked_fill),
    ("aten::sum.dim_IntList", _of(torch.sum, 1, 1)),
    ("aten::mean.dim", _of(torch.mean, 1, 1)),
    ("aten::amax", _of(torch.amax, 1, 1)),
    ("aten::argmax", _of(torch.argmax, 1, 1)),
    ("aten::cumsum", _of(torch.cumsum, 1, 1)),
    ("aten::_softmax", _of(torch.softmax, 1, 1)),
    ("aten::_log_softmax", _of(torch.log_softmax, 1, 1)),
    ("aten::native_layer_norm", _layer_norm),
    ("aten::native_batch_norm", _batch_norm),
    ("aten::mm", _product(64, 192, 192)),
    ("aten::addmm", _linear),
    ("aten::bmm", _bmm),
    ("aten::convolution", _conv(1)),
    ("aten::convolution depthwise", _conv(16)),
    ("aten::max_pool2d_with_indices", _on_image(F.max_pool2d, 2)),
    ("aten::avg_pool2d", _on_image(F.avg_pool2d, 2)),
    ("aten::upsample_nearest2d", _on_image(F.interpolate, (112, 112))),
    ("aten::embedding", _embedding),
    ("aten::index_select", _index_select),
    ("aten::index.Tensor", _advanced_index),
    ("aten::gather", _gather),
    ("aten::scatter_add", _scatter_add),
    ("aten::cat", _cat),
    ("aten::clone transposed", _of(_transpose)),
    ("aten::copy_ to float16", _of(_half)),
    ("aten::fill_.Scalar", _of(_fill)),
    ("aten::sort", _of(torch.sort, 1, 1)),
    ("aten::topk", _of(torch.topk, 1, 16, 1)),
    ("aten::nll_loss_forward", _nll_loss),
    ("aten::scaled_dot_product_attention", _sdpa),
)
# Of the two large sizes, in multiples of the small one.
SCALES = {"quick": (1,), "standard": (1, 16)}


def _work(make: Make, scale: int, device: torch.device) -> Work:
    """Ready an operator on a device."""
    function, args = make(device, scale)
    read = [item for arg in args for item in (arg if isinstance(arg, list) else [arg]) if isinstance(item, Tensor)]
    return Work(lambda: function(*args), tuple(read))


def cases(size: str) -> Iterator[Case]:
    """Return the operators' cases in a size, ``quick`` or ``standard``."""
    for title, make in _TABLE:
        op, _, variant = title.partition(" ")
        name = "operators/" + " ".join(filter(None, (op.removeprefix("aten::"), variant)))
        for scale in SCALES[size]:
            suffix = "" if scale == 1 else f" x{scale}"
            yield Case(name + suffix, Kind.KERNEL, functools.partial(_work, make, scale), op=op)
