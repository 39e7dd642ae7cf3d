# SPDX-License-Identifier: Apache-2.0
"""What is measured: a call on a device, and what is known of it before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from torch_fl.observe.baseline.results import Kind

__all__ = ["Case", "Kind", "Work", "bytes_of", "tensors"]


@dataclass(frozen=True)
class Work:
    """A case that is ready to run on one device. ``touched`` are the tensors that it reads, each once."""

    call: Callable[[], Any]
    touched: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Case:
    """One thing to measure. ``make`` may be called for any device; its numbers are the same on each."""

    name: str
    kind: Kind
    make: Callable[[torch.device], Work]
    op: str = ""  # the operator, where the case is about one
    dtype: str = "float32"
    gradients: bool = False
    bytes_copied: int = 0
    direction: str = ""  # of a copy: h2d, d2h, d2d
    on_cpu: bool = True  # it means something there, too


def tensors(value: Any) -> Iterator[Tensor]:
    """Find the tensors in nested containers, such as arguments and results of modules."""
    yield from (leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))


def bytes_of(found: Iterable[Tensor]) -> int:
    """Return the bytes of some tensors, each storage range once."""
    return sum({(t.data_ptr(), t.numel()): t.numel() * t.element_size() for t in found}.values())
