# SPDX-License-Identifier: Apache-2.0
"""Sorting without `stable=True` may order equal elements in any way, and any of them may be the k-th: other indices of
equal elements are right too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from tests.ops.engine import Arguments

# Position of `dim` behind the input.
_DIM = {"sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1}
# Operators whose gradient depends on the order of equal elements, and what they sort along by default.
_DEFAULT_DIM = {"sort": -1, "topk": -1, "msort": 0}


def settle(name: str, arguments: Arguments, output: Any, expected: Any) -> Any:
    """The output with the CPU's indices where the device's point at equal elements; otherwise as it was."""
    if name not in _DIM or arguments.kwargs.get("stable"):
        return output
    position = _DIM[name]
    dim = arguments.kwargs.get("dim", arguments.args[position] if len(arguments.args) > position else -1)
    if isinstance(output, torch.Tensor):
        return _indices(arguments.input, output, expected, dim)
    values, indices = output
    return type(output)((values, _indices(arguments.input, indices, expected[1], dim)))


def _indices(source: torch.Tensor, found: torch.Tensor, expected: torch.Tensor, dim: int) -> torch.Tensor:
    if source.dim() > 0 and found.dim() == expected.dim() == source.dim() - 1:  # a dimension that is gone
        return _indices(source, found.unsqueeze(dim), expected.unsqueeze(dim), dim).squeeze(dim)
    mine = found.cpu()
    if source.dim() == 0 or mine.shape != expected.shape or {mine.dtype, expected.dtype} != {torch.int64}:
        return found
    if not mine.numel() or mine.min() < 0 or mine.max() >= source.shape[dim] or _repeats(mine, dim):
        return found
    same = torch.allclose(
        source.gather(dim, mine).double(), source.gather(dim, expected).double(), rtol=0, atol=0, equal_nan=True
    )
    return expected.to(found.device) if same else found


def _repeats(indices: torch.Tensor, dim: int) -> bool:
    """True when a lane names an element twice."""
    return bool((indices.sort(dim)[0].diff(dim=dim) == 0).any())


def settle_gradients(
    name: str, arguments: Arguments, found: list[torch.Tensor | None], expected: list[torch.Tensor | None]
) -> tuple[list[torch.Tensor | None], list[torch.Tensor | None]]:
    """Both gradients as they were; of sorting, with those of equal elements in ascending order."""
    source = arguments.input
    if name not in _DEFAULT_DIM or arguments.kwargs.get("stable") or source.dim() == 0:
        return found, expected
    position = _DIM.get(name, len(arguments.args))
    dim = arguments.kwargs.get("dim", arguments.args[position] if len(arguments.args) > position else None)
    dim = _DEFAULT_DIM[name] if dim is None else dim
    return [_ordered(source, found[0], dim), *found[1:]], [_ordered(source, expected[0], dim), *expected[1:]]


def _ordered(source: torch.Tensor, gradient: torch.Tensor | None, dim: int) -> torch.Tensor | None:
    """The gradient of the sorted elements, equal ones by ascending gradient."""
    if gradient is None or gradient.shape != source.shape:
        return gradient
    mine = gradient.cpu()
    by_gradient = mine.sort(dim=dim, stable=True)[1]
    by_value = source.detach().gather(dim, by_gradient).sort(dim=dim, stable=True)[1]
    return mine.gather(dim, by_gradient.gather(dim, by_value)).to(gradient.device)
