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
        "mode": (lambda x: _chosen(x.mode(-1)), (torch.randint(0, 99, (LONG,)),)),
        "topk": (lambda x: _chosen(x.topk(50)), (line,)),
        "topk of rows": (lambda x: _chosen(x.topk(7, largest=False)), (wide,)),
        "topk of much": (lambda x: _chosen(x.topk(5000)), (line,)),
        "topk of columns": (lambda x: _chosen(x.topk(3, 0)), (wide,)),
        "reflection": (lambda x: torch.nn.functional.pad(x, (50, 3), "reflect"), (wide,)),
    }
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
