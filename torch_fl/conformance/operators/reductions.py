# SPDX-License-Identifier: Apache-2.0
"""Reductions over all elements or over dimensions, and scans."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torch_fl.conformance.operators.table import ALL, BOOL, COMPLEX, FLOATS, INTEGERS, REAL, Call, Generator, add
from torch_fl.conformance.sampler import Sampler


def whole(low: float = -2.0, high: float = 2.0, distinct: bool = False) -> Generator:
    """All elements of a tensor."""

    def generate(s: Sampler) -> Iterator[Call]:
        for shape in ((5, 7), (100,), (), (2, 3, 4), (1030,)):
            if distinct and shape == (1030,) and s.dtype.itemsize == 1:
                continue
            values = s.distinct(*shape) if distinct else s.tensor(*shape, low=low, high=high)
            yield values, {"terms": values.numel()}

    return generate


def along(one: bool = False, low: float = -2.0, high: float = 2.0, distinct: bool = False) -> Generator:
    """Along a dimension (``one``), or along several."""

    def generate(s: Sampler) -> Iterator[Call]:
        for shape, dims, keep in (
            ((5, 7), [1], False),
            ((5, 7), [0], True),
            ((3, 4, 5), [1], False),
            ((3, 4, 5), [0, 2], True),
            ((2, 257), [-1], False),
            ((257, 3), [0], False),
        ):
            if one and len(dims) > 1:
                continue
            if distinct and s.dtype.itemsize == 1 and shape[0] * shape[1] > 127:
                continue
            values = s.distinct(*shape) if distinct else s.tensor(*shape, low=low, high=high)
            terms = 1
            for dim in dims:
                terms *= shape[dim]
            yield values, dims[0] if one else dims, keep, {"terms": terms}

    return generate


def _big(*rest: object) -> Generator:
    return lambda s: iter([(s.tensor(1024, 1024, low=1, high=2), *rest)])


add("sum nansum", whole(), ALL, _big())
add("sum.dim_IntList nansum", along(), ALL, _big([1]))
add("mean", whole(), FLOATS + COMPLEX, _big())
add("mean.dim", along(), FLOATS + COMPLEX, _big([1]))
add("prod", whole(0.8, 1.2), FLOATS + INTEGERS + BOOL)
add("prod.dim_int", along(True, 0.8, 1.2), FLOATS + INTEGERS + BOOL, _big(1))
add("amax amin", along(), REAL + BOOL, _big([1]), exact=True)
add("max min any all", whole(), REAL + BOOL, _big(), exact=True)
add("max.dim min.dim", along(True, distinct=True), REAL, _big(1), exact=True)
add("any.dim all.dim", along(True), ALL, _big(1), exact=True)
add("any.dims all.dims", along(), ALL, _big([1]), exact=True)
add("argmax argmin", along(True, distinct=True), REAL, _big(1), exact=True)
add("median nanmedian", whole(distinct=True), REAL, exact=True)
add("median.dim nanmedian.dim", along(True, distinct=True), REAL, exact=True)
add("count_nonzero", whole(), ALL, exact=True)
add("logsumexp", along(), FLOATS, _big([1]), roundings=16)


def _count_along(s: Sampler) -> Iterator[Call]:
    yield s.tensor(5, 7), [1]
    yield s.tensor(3, 4, 5), [0, 2]


def _aminmax(s: Sampler) -> Iterator[Call]:
    yield (s.tensor(5, 7),)
    yield s.tensor(5, 7), {"dim": 1}
    yield s.tensor(3, 4, 5), {"dim": 0, "keepdim": True}


def _moments(s: Sampler) -> Iterator[Call]:
    yield s.tensor(5, 7), {"terms": 35}
    yield s.tensor(5, 7), [1], {"correction": 1, "terms": 7}
    yield s.tensor(3, 4, 5), [0, 2], {"correction": 0, "keepdim": True, "terms": 15}
    yield s.tensor(2, 257), [-1], {"correction": 1, "terms": 257}


def _norms(s: Sampler) -> Iterator[Call]:
    for order in (2, 1, float("inf"), 3.0, 0):
        yield s.tensor(5, 7), order, [1], False, {"terms": 7}
    yield s.tensor(3, 4, 5), 2, [0, 2], True, {"terms": 15}


def _norms_in_type(s: Sampler) -> Iterator[Call]:
    for call in _norms(s):
        yield (*call[:-1], {"terms": 15, "dtype": torch.float64 if s.dtype == torch.float64 else torch.float32})


def _hash(s: Sampler) -> Iterator[Call]:
    yield (s.tensor(5, 7),)
    yield s.tensor(5, 7), [1]


add("count_nonzero.dim_IntList", _count_along, ALL, exact=True)
add("aminmax", _aminmax, REAL + BOOL, exact=True)
add("var.correction std.correction var_mean.correction std_mean.correction", _moments, FLOATS, roundings=16)
add("linalg_vector_norm norm.ScalarOpt_dim", _norms, FLOATS + COMPLEX, roundings=16)
add("norm.ScalarOpt_dim_dtype", _norms_in_type, FLOATS, roundings=16)
add("hash_tensor", _hash, REAL + BOOL, exact=True)


def scan(low: float, high: float, distinct: bool = False) -> Generator:
    """Along one dimension."""

    def generate(s: Sampler) -> Iterator[Call]:
        for shape, dim in (((5, 7), 1), ((5, 7), 0), ((3, 4, 5), 1), ((100,), 0)):
            yield s.distinct(*shape) if distinct else s.tensor(*shape, low=low, high=high), dim, {"terms": shape[dim]}

    return generate


add("cumsum", scan(-2, 2), ALL, _big(1))
add("cumprod", scan(0.8, 1.2), REAL + BOOL)
add("logcumsumexp", scan(-2, 2), FLOATS, roundings=16)
add("cummax cummin", scan(0, 0, distinct=True), REAL, exact=True)
