# SPDX-License-Identifier: Apache-2.0
"""Orders: sort, topk, ranks, searches, sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch_fl.conformance.operators.table import BOOL, REAL, WIDE, Call, Generator, add
from torch_fl.conformance.sampler import Sampler

_ROWS = (((5, 7), -1), ((5, 7), 0), ((3, 4, 5), 1), ((100,), 0))


def _sort(s: Sampler) -> Iterator[Call]:
    for shape, dim in _ROWS:
        for descending in (False, True):
            yield s.distinct(*shape), {"stable": True, "dim": dim, "descending": descending}
    yield s.tensor(5, 40), {"stable": True, "dim": 1}  # equal elements stay in their order


def _topk(s: Sampler) -> Iterator[Call]:
    for shape, dim in _ROWS:
        for largest in (True, False):
            yield s.distinct(*shape), 3, dim, largest, True


def _kth(s: Sampler) -> Iterator[Call]:
    for shape, dim in _ROWS:
        yield s.distinct(*shape), 2, dim, False


def _mode(s: Sampler) -> Iterator[Call]:
    for shape, dim in _ROWS:
        yield s.tensor(*shape), dim


def _modes_value(args: Any, outputs: list[Any]) -> list[Any]:
    """Any index of the most frequent value is right: what is there is compared."""
    values, indices = outputs
    source, dim = args[0], args[1] if len(args) > 1 else -1
    return [values, source.gather(dim, indices.unsqueeze(dim)).squeeze(dim)]


add("sort.stable", _sort, REAL + BOOL, lambda s: iter([(s.tensor(256, 1024), {"stable": True})]), exact=True)
add("topk", _topk, REAL, lambda s: iter([(s.tensor(256, 1024), 10)]), exact=True)
add("kthvalue", _kth, REAL, exact=True)
add("mode", _mode, REAL, exact=True, settle=_modes_value)


def _search(scalar: bool, swapped: bool) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for right in (False, True):
            edges = s.distinct(9).sort().values
            values = s.number(2.0) if scalar else s.tensor(5, 7, low=-6, high=6)
            yield (values, edges, {"right": right}) if swapped else (edges, values, {"right": right})

    return generate


def _isin(scalar: bool) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for invert in (False, True):
            yield s.number(2.0) if scalar else s.tensor(5, 7), s.tensor(6), {"invert": invert}

    return generate


def _histc(s: Sampler) -> Iterator[Call]:
    yield s.tensor(100, low=-3, high=3), 10, -3, 3
    yield s.tensor(100, low=-3, high=3), 7, -1, 1


add("searchsorted.Tensor", _search(False, False), REAL, exact=True)
add("searchsorted.Scalar", _search(True, False), REAL, exact=True)
add("bucketize.Tensor", _search(False, True), REAL, exact=True)
add("bucketize.Scalar", _search(True, True), REAL, exact=True)
add("isin.Tensor_Tensor", _isin(False), REAL, exact=True)
add("isin.Scalar_Tensor", _isin(True), REAL, exact=True)
add("histc", _histc, WIDE, exact=True)
