# SPDX-License-Identifier: Apache-2.0
"""Factorizations, solvers, distances, transforms. Where vectors are free in sign, what they rebuild is compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torch_fl.conformance.operators.table import COMPLEX, REAL, WIDE, Call, Generator, add
from torch_fl.conformance.sampler import Sampler

_OPS = torch.ops.aten
_SIZES = ((4, 4), (2, 5, 5), (9, 9))


def _square(*rest: Any, definite: bool = False, **named: Any) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for shape in _SIZES:
            matrix = s.positive_definite(*shape) if definite else s.well_conditioned(*shape)
            yield (matrix, *rest, {**named, "terms": shape[-1] ** 2})

    return generate


def _side(s: Sampler, matrix: torch.Tensor) -> torch.Tensor:
    return s.tensor(*matrix.shape[:-1], 3)


def _solve(s: Sampler) -> Iterator[Call]:
    for shape in _SIZES:
        matrix = s.well_conditioned(*shape)
        yield matrix, _side(s, matrix), {"terms": shape[-1] ** 2}


def _lu_solve(s: Sampler) -> Iterator[Call]:
    for shape in _SIZES:
        matrix = s.well_conditioned(*shape)
        factor, pivots, _ = _OPS.linalg_lu_factor_ex(matrix)
        yield factor, pivots, _side(s, matrix), {"terms": shape[-1] ** 2}


def _lu_unpack(s: Sampler) -> Iterator[Call]:
    for shape in _SIZES:
        yield _OPS.linalg_lu_factor_ex(s.well_conditioned(*shape))[:2]


def _cholesky_solve(s: Sampler) -> Iterator[Call]:
    for shape in _SIZES:
        factor = torch.linalg.cholesky(s.positive_definite(*shape))
        yield _side(s, factor), factor, False, {"terms": shape[-1] ** 2}


def _cholesky_inverse(s: Sampler) -> Iterator[Call]:
    for shape in _SIZES:
        yield torch.linalg.cholesky(s.positive_definite(*shape)), {"terms": shape[-1] ** 2}


def _triangular(s: Sampler) -> Iterator[Call]:
    for shape in _SIZES:
        matrix = s.well_conditioned(*shape).triu()
        yield matrix, _side(s, matrix), {"upper": True, "terms": shape[-1] ** 2}


def _triangular_old(s: Sampler) -> Iterator[Call]:
    for matrix, side, named in _triangular(s):
        yield side, matrix, {"terms": named["terms"]}


def _ldl_solve(s: Sampler) -> Iterator[Call]:
    for shape in _SIZES:
        matrix = s.positive_definite(*shape)
        factor, pivots, _ = _OPS.linalg_ldl_factor_ex(matrix)
        yield factor, pivots, _side(s, matrix), {"terms": shape[-1] ** 2}


def _tall(s: Sampler) -> Iterator[Call]:
    for shape in ((6, 4), (2, 5, 5)):
        yield s.tensor(*shape) + torch.eye(*shape[-2:], dtype=s.dtype) * 4, {"terms": 36}


def _reflectors(s: Sampler) -> Iterator[Call]:
    for matrix, named in _tall(s):
        yield (*_OPS.geqrf(matrix), named)


def _ormqr(s: Sampler) -> Iterator[Call]:
    for matrix, tau, named in _reflectors(s):
        yield matrix, tau, s.tensor(*matrix.shape[:-1], 3), named


def _lstsq(s: Sampler) -> Iterator[Call]:
    for matrix, named in _tall(s):
        yield matrix, s.tensor(*matrix.shape[:-1], 3), named


def _cross(s: Sampler) -> Iterator[Call]:
    yield s.tensor(5, 3), s.tensor(5, 3), {"terms": 2}
    yield s.tensor(3, 4), s.tensor(3, 4), {"dim": 0, "terms": 2}


def _rebuilt_by_columns(args: Any, outputs: list[Any]) -> list[Any]:
    """Of eigenvalues and -vectors: the values, and the matrix that both make."""
    values, vectors = outputs
    return [values, (vectors * values.unsqueeze(-2)) @ vectors.mH]


def _rebuilt_general(args: Any, outputs: list[Any]) -> list[Any]:
    """Of a general matrix: that each vector is stretched by its value."""
    values, vectors = outputs
    return [
        args[0].to(vectors.dtype) @ vectors - vectors * values.unsqueeze(-2) + 1,
        torch.linalg.vector_norm(vectors, dim=-2),
    ]


def _rebuilt_from_singular(args: Any, outputs: list[Any]) -> list[Any]:
    left, values, right = outputs
    return [values, (left * values.unsqueeze(-2)) @ right]


def _in_order(args: Any, outputs: list[Any]) -> list[Any]:
    return [outputs[0].real.sort(dim=-1).values]


add("linalg_lu_factor_ex linalg_lu", _square(), WIDE, roundings=32)
add("lu_unpack", _lu_unpack, WIDE, exact=True)
add("linalg_lu_solve", _lu_solve, WIDE, roundings=32)
add("_linalg_solve_ex", _solve, WIDE, roundings=32)
add("linalg_inv_ex", _square(), WIDE, roundings=32)
# The factors are those of the matrix or of its transpose, depending on its strides.
add("_linalg_det", _square(), WIDE, roundings=32, ignore=[1, 2])
add("_linalg_slogdet", _square(), WIDE, roundings=32, ignore=[2, 3])
add("linalg_cholesky_ex", _square(definite=True), WIDE, roundings=32)
add("cholesky_inverse", _cholesky_inverse, WIDE, roundings=64)
add("_cholesky_solve_helper", _cholesky_solve, WIDE, roundings=64)
add("linalg_solve_triangular", _triangular, WIDE, roundings=32)
add("triangular_solve", _triangular_old, WIDE, roundings=32)
add("linalg_ldl_factor_ex", _square(definite=True), WIDE, roundings=32)
add("linalg_ldl_solve", _ldl_solve, WIDE, roundings=64)
add("linalg_qr geqrf", _tall, WIDE, roundings=32)
add("linalg_householder_product", _reflectors, WIDE, roundings=32)
add("ormqr", _ormqr, WIDE, roundings=32)
add("_linalg_eigh", _square(definite=True), WIDE, roundings=64, settle=_rebuilt_by_columns)
add("linalg_eig", _square(), WIDE, roundings=64, settle=_rebuilt_general)
add("_linalg_eigvals", _square(), WIDE, roundings=64, settle=_in_order)
add("_linalg_svd", _tall, WIDE, roundings=64, settle=_rebuilt_from_singular)
add("linalg_lstsq", _lstsq, WIDE, roundings=64, ignore=[1, 3])
add("linalg_matrix_exp", lambda s: iter([(s.tensor(4, 4, low=-1, high=1), {"terms": 64})]), WIDE, roundings=64)
add("linalg_cross", _cross, REAL)


# ---- distances --------------------------------------------------------------------------------------------------


def _cdist(s: Sampler) -> Iterator[Call]:
    for p in (2.0, 1.0, 3.0):
        yield s.tensor(5, 4), s.tensor(6, 4), p, 2, {"terms": 4}


def _cdist_backward(s: Sampler) -> Iterator[Call]:
    for first, second, p, mode, named in _cdist(s):
        yield s.tensor(5, 6), first, second, p, _OPS._cdist_forward(first, second, p, mode), {"terms": 24}
        del named


def _pdist(s: Sampler) -> Iterator[Call]:
    for p in (2.0, 1.0, 3.0):
        yield s.tensor(5, 4), p, {"terms": 4}


def _pdist_backward(s: Sampler) -> Iterator[Call]:
    for points, p, _ in _pdist(s):
        yield s.tensor(10), points, p, _OPS._pdist_forward(points, p), {"terms": 20}


def _renorm(s: Sampler) -> Iterator[Call]:
    for p, dim in ((2, 0), (1, 1)):
        yield s.tensor(5, 7), p, dim, 2.0, {"terms": 7}


add("_cdist_forward", _cdist, WIDE, roundings=32)
add("_cdist_backward", _cdist_backward, WIDE, roundings=32)
add("_pdist_forward", _pdist, WIDE, roundings=32)
add("_pdist_backward", _pdist_backward, WIDE, roundings=32)
add("renorm", _renorm, roundings=16)


# ---- transforms -------------------------------------------------------------------------------------------------


def _c2c(s: Sampler) -> Iterator[Call]:
    for forward in (True, False):
        yield s.tensor(5, 8), [1], 0, forward, {"terms": 8}
        yield s.tensor(3, 6, 7), [1, 2], 2, forward, {"terms": 42}


def _r2c(s: Sampler) -> Iterator[Call]:
    yield s.tensor(5, 8), [1], 0, True, {"terms": 8}
    yield s.tensor(5, 9), [0, 1], 0, True, {"terms": 45}


def _c2r(s: Sampler) -> Iterator[Call]:
    yield torch.fft.rfft(s.tensor(5, 8).real).to(s.dtype), [1], 2, 8, {"terms": 8}


add("_fft_c2c", _c2c, COMPLEX, roundings=16)
add("_fft_r2c", _r2c, WIDE, roundings=16)
add("_fft_c2r", _c2r, COMPLEX, roundings=16)
