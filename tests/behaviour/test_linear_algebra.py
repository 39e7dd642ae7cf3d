# SPDX-License-Identifier: Apache-2.0
"""Linear algebra where PyTorch's samples do not go: larger, many, singular, at the ends of the range, malformed."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.agree import HIDDEN_KERNELS
from tests.harness.device import DEVICE

DTYPES = (torch.float32, torch.float64)
SIZES = ((1, 37, 37), (70, 5, 5), (2, 40, 17), (2, 17, 40))


def _matrices(sizes: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(sizes, dtype=dtype, generator=torch.Generator().manual_seed(3))


def _close(found: torch.Tensor, expected: torch.Tensor, size: float = 1.0) -> None:
    eps = torch.finfo(expected.dtype).eps
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=200 * eps * max(size, float(expected.abs().max())))


def _unit(columns: torch.Tensor) -> torch.Tensor:
    return torch.eye(columns.shape[-1], dtype=columns.dtype).expand(*columns.shape[:-2], -1, -1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_factors_give_the_matrix_back(sizes: tuple[int, ...], dtype: torch.dtype) -> None:
    source = _matrices(sizes, dtype)
    there = source.to(DEVICE)
    p, lower, upper = (part.cpu() for part in torch.linalg.lu(there))
    _close(p @ lower @ upper, source)
    for mode in ("reduced", "complete"):
        q, r = (part.cpu() for part in torch.linalg.qr(there, mode))
        _close(q @ r, source)
        _close(q.mT @ q, _unit(q))
    for full in (False, True):
        u, s, v = (part.cpu() for part in torch.linalg.svd(there, full_matrices=full))
        k = s.shape[-1]
        _close((u[..., :k] * s.unsqueeze(-2)) @ v[..., :k, :], source, float(s.max()))
        _close(u.mT @ u, _unit(u))
        _close(v @ v.mT, _unit(v.mT))
        _close(s, torch.linalg.svdvals(source), float(s.max()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_symmetric_matrices_of_every_magnitude(scale: float, dtype: torch.dtype) -> None:
    half = _matrices((3, 33, 33), dtype)
    source = (half + half.mT) * scale
    values, vectors = (part.cpu() for part in torch.linalg.eigh(source.to(DEVICE)))
    _close(vectors.mT @ vectors, _unit(vectors))
    _close((source / scale) @ vectors, vectors * (values / scale).unsqueeze(-2), float(values.abs().max()) / scale)
    assert bool((values.diff(dim=-1) >= 0).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_has_not_full_rank(dtype: torch.dtype) -> None:
    source = _matrices((9, 2), dtype) @ _matrices((2, 6), dtype)
    for matrix in (source, source.mT, torch.zeros(4, 3, dtype=dtype), torch.ones(5, 5, dtype=dtype)):
        u, s, v = (part.cpu() for part in torch.linalg.svd(matrix.to(DEVICE)))
        _close(u.mT @ u, _unit(u))
        _close(v @ v.mT, _unit(v.mT))
        _close(s, torch.linalg.svdvals(matrix), float(s.max()))
    sides = _matrices((9, 3), dtype)
    found, expected = (torch.linalg.lstsq(a, b) for a, b in ((source.to(DEVICE), sides.to(DEVICE)), (source, sides)))
    assert int(found.rank) == 2
    _close(found.solution, expected.solution, 10.0)


def test_singular_matrices_say_so() -> None:
    flat = torch.ones(2, 3, 3)
    flat[1] += torch.eye(3)
    info = torch.linalg.inv_ex(flat.to(DEVICE)).info.cpu()
    assert info.tolist() == torch.linalg.inv_ex(flat).info.tolist()
    assert torch.linalg.det(flat.to(DEVICE)).cpu().tolist() == pytest.approx(torch.linalg.det(flat).tolist(), abs=1e-5)
    sign, size = torch.linalg.slogdet(torch.zeros(3, 3, device=DEVICE))
    assert (float(sign), float(size)) == (0.0, -float("inf"))
    assert torch.linalg.cholesky_ex(-torch.eye(3, device=DEVICE)).info.item() == 1


@pytest.mark.skipif(HIDDEN_KERNELS, reason="LAPACK may find a finite inverse")
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_matrices_that_are_not_finite_end(value: float) -> None:
    source = torch.eye(4)
    source[1, 2] = source[2, 1] = value
    there = source.to(DEVICE)
    inverse = torch.linalg.inv_ex(there).inverse.cpu()
    assert value == float("inf") or not bool(inverse.isfinite().all())  # the inverse of infinity may be 0
    assert not bool(torch.matrix_exp(there).cpu().isfinite().all())


@pytest.mark.skipif(not DEVICE.startswith("fl"), reason="LAPACK trusts its pivots")
def test_pivots_that_name_no_row() -> None:
    """A kernel cannot raise; it must not reach beyond the matrix either."""
    import torch_fl

    factor, sides = torch.eye(4, device=DEVICE), torch.ones(4, 2, device=DEVICE)
    torch_fl.set_config("fallback.aten::linalg_ldl_solve", "deny")
    try:
        for wrong in (0, -7, 5, 2**31 - 1):
            pivots = torch.full((4,), wrong, dtype=torch.int32).to(DEVICE)
            assert torch.linalg.ldl_solve(factor, pivots, sides).cpu().shape == (4, 2)
    except torch_fl.UnsupportedOpError:
        pytest.skip("the chip has no such kernel, and LAPACK trusts its pivots")
    finally:
        torch_fl.set_config("fallback.aten::linalg_ldl_solve", None)


def test_matrices_without_elements() -> None:
    none, flat = torch.empty(2, 0, 0, device=DEVICE), torch.empty(0, 3, device=DEVICE)
    assert torch.linalg.det(none).cpu().tolist() == [1.0, 1.0]
    assert torch.linalg.inv(none).shape == none.shape
    assert torch.linalg.eigh(none)[1].shape == none.shape
    _close(torch.linalg.svd(flat).Vh, torch.eye(3))
    assert torch.linalg.qr(flat.mT, "complete").Q.cpu().equal(torch.eye(3))
