# SPDX-License-Identifier: Apache-2.0
"""Images of another size, and sampled at given places."""

from __future__ import annotations

from collections.abc import Iterator

from torch_fl.conformance.operators.table import FLOATS, Call, Generator, add
from torch_fl.conformance.sampler import Sampler

_IN = {1: (2, 3, 7), 2: (2, 3, 5, 6), 3: (1, 2, 4, 5, 4)}
_OUT = {1: ([9], [4]), 2: ([8, 9], [3, 4]), 3: ([6, 7, 5], [3, 3, 2])}


def _resize(n: int, corners: bool) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for size in _OUT[n]:
            for align in (False, True) if corners else (None,):
                yield (s.tensor(*_IN[n]), size, *(() if align is None else (align,)), {"terms": 4**n})

    return generate


def _resize_backward(n: int, corners: bool) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for size in _OUT[n]:
            for align in (False, True) if corners else (None,):
                more = () if align is None else (align,)
                yield (s.tensor(*_IN[n][:2], *size), size, list(_IN[n]), *more, {"terms": 8**n})

    return generate


def _add(name: str, n: int, corners: bool) -> None:
    add(name, _resize(n, corners), FLOATS, roundings=16, exact="nearest" in name)
    add(f"{name}_backward", _resize_backward(n, corners), FLOATS, roundings=16)


for _n in (1, 2, 3):
    _add(f"upsample_nearest{_n}d", _n, False)
    _add(f"_upsample_nearest_exact{_n}d", _n, False)
for _name, _n in (
    ("upsample_linear1d", 1),
    ("upsample_bilinear2d", 2),
    ("upsample_trilinear3d", 3),
    ("upsample_bicubic2d", 2),
    ("_upsample_bilinear2d_aa", 2),
    ("_upsample_bicubic2d_aa", 2),
    ("_upsample_lanczos2d_aa", 2),
):
    _add(_name, _n, True)


def _grid(n: int, backward: bool) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for mode, padding, align in ((0, 0, False), (1, 1, True), (0, 2, True), *(((2, 0, False),) if n == 2 else ())):
            out = (3, 4, 2)[:n]
            image, grid = s.tensor(*_IN[n]), s.tensor(_IN[n][0], *out, n, low=-1.2, high=1.2)
            grad = (s.tensor(*_IN[n][:2], *out),) if backward else ()
            mask = ([True, True],) if backward else ()
            yield (*grad, image, grid, mode, padding, align, *mask, {"terms": 32})

    return generate


for _n in (2, 3):
    add(f"grid_sampler_{_n}d", _grid(_n, False), FLOATS, roundings=32)
    add(f"grid_sampler_{_n}d_backward", _grid(_n, True), FLOATS, roundings=32)
