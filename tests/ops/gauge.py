# SPDX-License-Identifier: Apache-2.0
"""Eigenvectors and singular vectors are not unique: whichever solve the defining equations are right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from tests.ops.engine import Arguments

_ROUNDINGS = 200  # of the largest element; an eigenvector of the wrong matrix is off by far more


def settle(name: str, arguments: Arguments, output: Any, expected: Any) -> Any:
    """The output with the CPU's vectors where the device's solve the same equations; otherwise as it was."""
    try:
        if name == "linalg.eigh" and _are_matrices(output[1], expected[1]):
            if _are_eigenvectors(arguments, *(part.cpu() for part in output)):
                return type(output)((output[0], expected[1].to(output[1].device)))
        elif name == "linalg.eig" and _are_matrices(output[1], expected[1]):
            found = [part.cpu() for part in output]
            if _same_values(found[0], expected[0]) and _solve(arguments.input.detach(), *found):
                return type(output)(part.to(output[0].device) for part in expected)
        elif name == "linalg.eigvals" and _same_values(output.cpu(), expected):
            return expected.to(output.device)
        elif name in ("linalg.svd", "svd") and _are_matrices(output[0], expected[0]):
            adjoint = name == "linalg.svd"
            if _are_singular_vectors(arguments.input, *(part.cpu() for part in output), adjoint):
                device = output[0].device
                return type(output)((expected[0].to(device), output[1], expected[2].to(device)))
    except (RuntimeError, IndexError):  # shapes that do not fit: the comparison says so
        pass
    return output


def _are_matrices(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return found.dim() > 1 and found.shape == expected.shape and found.dtype == expected.dtype


def _same(left: torch.Tensor, right: torch.Tensor) -> bool:
    if not left.numel():
        return left.shape == right.shape
    size = max(1.0, float(right.abs().max()))
    return left.shape == right.shape and bool((left - right).abs().max() <= _ROUNDINGS * _eps(left) * size)


def _eps(tensor: torch.Tensor) -> float:
    return float(torch.finfo(tensor.dtype).eps)


def _orthonormal(columns: torch.Tensor) -> bool:
    unit = torch.eye(columns.shape[-1], dtype=columns.dtype).expand(*columns.shape[:-2], -1, -1)
    return _same(columns.mH @ columns, unit)


def _are_eigenvectors(arguments: Arguments, values: torch.Tensor, vectors: torch.Tensor) -> bool:
    lower = str(arguments.kwargs.get("UPLO", arguments.args[0] if arguments.args else "L")).upper() == "L"
    half = arguments.input.detach()
    half = half.tril() if lower else half.triu()
    source = half + half.mH - torch.diag_embed(half.diagonal(dim1=-2, dim2=-1).real).to(half.dtype)
    return _orthonormal(vectors) and _same(source @ vectors, vectors * values.unsqueeze(-2).to(vectors.dtype))


def _same_values(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """In any order."""
    if found.shape != expected.shape or found.dtype != expected.dtype or not bool(found.isfinite().all()):
        return False
    bound = _ROUNDINGS * _eps(expected) * max([1.0, *expected.abs().flatten().tolist()])
    for mine, theirs in zip(found.reshape(-1, found.shape[-1]), expected.reshape(-1, found.shape[-1])):
        left = mine.tolist()
        for value in theirs.tolist():
            nearest = min(left, key=lambda x: abs(x - value))
            left.remove(nearest)
            if abs(nearest - value) > bound:
                return False
    return True


def _solve(source: torch.Tensor, values: torch.Tensor, vectors: torch.Tensor) -> bool:
    """Eigenvectors of length 1 of a matrix that need not be symmetric."""
    lengths = torch.linalg.vector_norm(vectors, dim=-2)
    return _same(lengths, torch.ones_like(lengths)) and _same(
        source.to(vectors.dtype) @ vectors, vectors * values.unsqueeze(-2)
    )


def _are_singular_vectors(
    source: torch.Tensor, left: torch.Tensor, sizes: torch.Tensor, right: torch.Tensor, adjoint: bool
) -> bool:
    right = right if adjoint else right.mH
    count = sizes.shape[-1]
    product = (left[..., :count] * sizes.unsqueeze(-2).to(left.dtype)) @ right[..., :count, :]
    return _orthonormal(left) and _orthonormal(right.mH) and _same(product, source.detach())
