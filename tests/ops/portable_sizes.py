# SPDX-License-Identifier: Apache-2.0
"""Portable kernels at sizes that operator samples do not reach: many work items, several launches, long lines.

python -m tests.ops.portable_sizes        on the default device; every line must agree with the CPU
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

import torch_fl

LONG = 150_001


def _ties(*sizes: int) -> torch.Tensor:
    """Few different values, NaN and both zeros among them."""
    x = torch.randint(-40, 40, sizes).float() / 8
    x[torch.rand(sizes) < 0.01] = float("nan")
    x[torch.rand(sizes) < 0.01] = -0.0
    return x


def _bits(x: torch.Tensor) -> torch.Tensor:
    return x.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])


def _sorted(x: torch.Tensor, descending: bool) -> Any:
    values, places = torch.sort(x, stable=True, descending=descending)
    return _bits(values), places


def _chosen(found: Any) -> torch.Tensor:
    """Values only: of equal elements any place is right."""
    return torch.as_tensor(found.values)


def _products() -> dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]:
    """Shapes that choose each way to sum, with edges in every direction."""
    conv, transposed = torch.nn.functional.conv2d, torch.nn.functional.conv_transpose2d
    images, filters = torch.randn(3, 24, 37, 70), torch.randn(40, 24, 3, 3)
    small, strided = torch.randn(30, 24, 7, 6), {"stride": (2, 3), "padding": (1, 2), "dilation": (2, 1)}

    def gradients(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, w, b = x.clone().requires_grad_(), w.clone().requires_grad_(), w[:, 0, 0, 0].clone().requires_grad_()
        y = conv(x, w, b, **strided)
        return torch.autograd.grad((y * y).sum() / 1000, (x, w, b))

    a, b, v = torch.randn(301, 203), torch.randn(203, 190), torch.randn(203)
    heads = torch.randn(6, 100, 64), torch.randn(6, 64, 130)
    return {
        "mm": (torch.mm, (a, b)),
        "mm of transposed": (lambda x, y: x.t() @ y.t(), (b, a)),
        "mm of every second": (lambda x, y: x[:, ::2] @ y[::2], (a, b)),
        "mm of float64": (torch.mm, (a.double(), b.double())),
        "mm of few rows": (lambda x, y: x[:3] @ y, (a, b)),
        "mm of a row": (lambda x, y: x[:1] @ y, (a, b)),
        "linear of few rows": (lambda x, y: torch.nn.functional.linear(x[:5], y), (a, b.t().contiguous())),
        "mv": (torch.mv, (a, v)),
        "addmm": (lambda x, y: torch.addmm(y[:1, :1], x, y, beta=0.5, alpha=-2), (a, b)),
        "bmm": (torch.bmm, heads),
        "bmm of one and all": (lambda x, y: torch.bmm(x, y[:1].expand_as(y)), heads),
        "convolution": (lambda x, w: conv(x, w, padding=1), (images, filters)),
        "convolution of small images": (lambda x, w: conv(x, w, padding=1), (small, filters)),
        "convolution of one tap": (lambda x, w: conv(x, w[:, :, :1, :1]), (images, filters)),
        "convolution, channels last": (
            lambda x, w: conv(x.contiguous(memory_format=torch.channels_last), w, **strided),
            (images, filters),
        ),
        "convolution in groups": (lambda x, w: conv(x, w[:24, :1], padding=2, groups=24), (images, filters)),
        "transposed convolution": (lambda x, w: transposed(x, w[:24], **strided), (small, filters)),
        "gradients of a convolution": (gradients, (images, filters)),
    }


def cases() -> dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]:
    torch.manual_seed(0)
    pieces = [torch.randn(37, n, 50) for n in (1, 70, 3, 0, 29, 5, 8, 2, 64, 11)]
    wide = torch.randn(64, LONG // 64)
    line = torch.randn(LONG)
    found: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
        "cat in the middle": (lambda *t: torch.cat(t, 1), tuple(pieces)),
        "cat of columns": (lambda *t: torch.stack(t, -1), tuple(torch.randn(9, 4000))),
        "cat of bytes": (lambda *t: torch.cat(t), tuple(torch.randint(0, 2, (3, LONG)).bool())),
        "cat of strided and mixed": (lambda a, b: torch.cat([a.t(), b]), (wide, torch.arange(64).repeat(9, 1))),
        "flip": (lambda x: x.flip(0, 1), (wide,)),
        "roll": (lambda x: x.roll((-7, 1000), (0, 1)), (wide,)),
        "tril": (lambda x: x.tril(-3), (torch.randn(3, 300, 301),)),
        "cumsum of a line": (lambda x: x.cumsum(0), (line.double(),)),
        "cumsum of columns": (lambda x: x.cumsum(0), (torch.randint(-9, 9, (LONG // 8, 5)),)),
        "cumsum of float32": (lambda x: x.cumsum(0), (line,)),
        "logcumsumexp": (lambda x: x.logcumsumexp(0), (line.double(),)),
        "cummax": (lambda x: tuple(x.cummax(0)), (line.round(decimals=1) - 9,)),
        "cummin with NaN": (lambda x: tuple(x.cummin(0)), (_ties(LONG),)),
        "median": (lambda x: x.median(), (line,)),
        "nanmedian": (lambda x: x.nanmedian(), (_ties(LONG),)),
        "median of a line": (lambda x: _chosen(x.median(0)), (_ties(LONG),)),
        "kthvalue": (lambda x: _chosen(x.kthvalue(777, 1)), (wide,)),
        "mode of short lines": (lambda x: _chosen(x.mode(-1)), (torch.randint(0, 9, (LONG // 10, 10)),)),
        "topk": (lambda x: _chosen(x.topk(50)), (line,)),
        "topk of rows": (lambda x: _chosen(x.topk(7, largest=False)), (wide,)),
        "topk of much": (lambda x: _chosen(x.topk(5000)), (line,)),
        "topk of columns": (lambda x: _chosen(x.topk(3, 0)), (wide,)),
        "reflection": (lambda x: torch.nn.functional.pad(x, (50, 3), "reflect"), (wide,)),
    }
    found.update(_products())
    for descending in (False, True):
        for name, x in {
            "a line with ties": _ties(LONG),
            "rows with ties": _ties(40, 700),
            "short rows": _ties(900, 17),
            "int64": torch.randint(-(2**62), 2**62, (LONG,)),
            "uint8": torch.randint(0, 256, (LONG,), dtype=torch.uint8),
            "int16 rows": torch.randint(-(2**15), 2**15, (20, 400), dtype=torch.int16),
            "float16": _ties(LONG).half(),
            "bfloat16 rows": _ties(9, 900).bfloat16(),
            "float64": _ties(LONG).double(),
            "bool": torch.rand(LONG) < 0.5,
        }.items():
            title = f"sort of {name}{' downwards' if descending else ''}"
            found[title] = (lambda t, d=descending: _sorted(t, d), (x,))
    return found


def main() -> None:
    torch_fl.set_config("fallback", "deny")
    wrong = []
    for name, (function, arguments) in cases().items():
        expected = function(*arguments)
        for _ in range(2):  # the same bits each time
            mine = tree_map(lambda t: t.cpu(), function(*(x.to("fl") for x in arguments)))
            try:
                torch.testing.assert_close(mine, expected, equal_nan=True, rtol=1e-5, atol=1e-3)
            except (AssertionError, RuntimeError) as error:
                wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    main()
