# SPDX-License-Identifier: Apache-2.0
"""The same call with other data, sizes and layouts: faults that a model's own data do not show."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from torch_fl.conformance.case import Case, map_tensors, tensors_of
from torch_fl.conformance.execute import as_list, on_cpu
from torch_fl.conformance.forms import forms_of, writes

MOST_ELEMENTS = 1 << 20  # of a call that is probed: larger ones would take long and show nothing more
_FORMS = {
    "strided": "strided arguments",
    "transposed": "transposed arguments",
    "in-place": "the in-place form",
    "out=": "an out= argument",
}
_LARGE, _SMALL, _CHANGE = 64.0, 2.0**-10, 0.625


def probes(case: Case) -> Iterator[tuple[str, Case]]:
    """Yield variants of a call, each with what is special about it."""
    for name, value in (("NaN", math.nan), ("infinity", math.inf)):
        for i in range(_special(case)):
            yield f"{name} in tensor {i}", _with_values(case, value, i)
    narrow = any(t.dtype == torch.float16 for t in _floating(case))
    yield "large values", _scaled(case, 8.0 if narrow else _LARGE, 1 if _is_derivative(case) else None)
    yield "small values", _scaled(case, _SMALL)
    for size in sorted({size for t in tensors_of((case.args, case.kwargs)) for size in t.shape[-2:]}):
        if size > 3 and _can_be_cut(case, size, size - 1):
            yield f"size {size - 1} instead of {size}", resized(case, size, size - 1)
    larger, smaller = _oblong(case)
    if smaller < larger - 1 and _can_be_cut(case, larger, smaller):
        yield f"size {smaller} instead of {larger}, so that two dimensions are equal", resized(case, larger, smaller)
    answer = on_cpu(case)
    if answer is not None and not writes(case.function):
        for form in forms_of(case, as_list(answer.outputs)):
            yield _FORMS[form.form], form


def _oblong(case: Case) -> tuple[int, int]:
    """The last two sizes of the largest tensor: a kernel that takes one for the other is right where they differ."""
    shape = max((t.shape for t in tensors_of((case.args, case.kwargs))), key=math.prod, default=())
    return (max(shape[-2:]), min(shape[-2:])) if len(shape) > 1 else (0, 0)


def _can_be_cut(case: Case, size: int, smaller: int) -> bool:
    """Whether a call is still one with a smaller size: kernels trust what they cannot see to be wrong.

    Whole numbers may be indices into what is cut. Sizes and scales of interpolation must agree, and so must the heads
    of queries and keys where several of the former share one of the latter. Tensors that a forward call saved have
    sizes that follow from the gradient's, such as four times a size of it: no other dimension may be taken for one that
    is cut.
    """
    tensors = list(tensors_of((case.args, case.kwargs)))
    if "upsample" in case.op or _is_grouped(case, tensors):
        return False
    whole = [t for t in tensors if t.dtype in (torch.int64, torch.int32) and t.numel()]
    if any(int(t.max()) >= smaller for t in whole):
        return False
    return not _is_derivative(case) or all(t.shape.count(size) <= tensors[0].shape.count(size) for t in tensors)


def _is_grouped(case: Case, tensors: list[torch.Tensor]) -> bool:
    """Whether several heads of queries share one of keys."""
    query = 1 if _is_derivative(case) else 0
    return "attention" in case.op and tensors[query].shape[1] != tensors[query + 1].shape[1]


def _special(case: Case) -> int:
    """In how many tensors NaN has one right result.

    What a derivative makes of NaN in a saved tensor is a matter of how it compares; attention may skip what is masked,
    and interpolation what has no weight, or multiply it by zero.
    """
    interpolation = ("grid_sampler", "linear1d", "linear2d", "linear3d", "cubic2d")  # upsample_bilinear2d, ...
    if any(word in case.op for word in ("attention", "linalg", "_fft_", *interpolation)):
        return 0
    return min(1 if _is_derivative(case) else 2, len(_floating(case)))


def _is_derivative(case: Case) -> bool:
    """Whether the first tensor is a gradient and later ones may be what the forward call saved.

    Saved values have their range: gates of an LSTM are below 1, and where they are not, derivatives cancel.
    """
    return "backward" in case.op


def changed_data(case: Case) -> Case | None:
    """Return the case with other values in every floating-point tensor; None where none can change."""
    if not _floating(case) or writes(case.function) or case.written:
        return None
    return _scaled(case, _CHANGE)


def _floating(case: Case) -> list[torch.Tensor]:
    """The tensors whose values can be changed. Of log_sigmoid's derivative others are redundant, and must agree."""
    seen: dict[int, torch.Tensor] = {}
    args = case.args[:1] if case.op == "aten::log_sigmoid_backward" else case.args
    for tensor in tensors_of((args, case.kwargs)):
        if tensor.is_floating_point() and tensor.numel() and tensor.itemsize > 1:  # float8 has no arithmetic
            seen[id(tensor)] = tensor
    return list(seen.values())


def _changed(case: Case, change: Any) -> Case:
    args, kwargs = map_tensors((case.args, case.kwargs), change)
    return replace(case, args=args, kwargs=kwargs)


def _scaled(case: Case, factor: float, first: int | None = None) -> Case:
    """Scale the first few floating-point tensors, or all."""
    targets = {id(t) for t in _floating(case)[:first]}
    return _changed(case, lambda t: t * factor if id(t) in targets else t)


def _with_values(case: Case, value: float, which: int) -> Case:
    target = _floating(case)[which]

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if tensor is not target:
            return tensor
        copy = tensor.clone()
        copy[_middle(copy.shape)] = value
        return copy

    return _changed(case, change)


def _middle(shape: torch.Size) -> tuple[int, ...]:
    return tuple(extent // 2 for extent in shape)


def resized(case: Case, size: int, smaller: int) -> Case:
    """Return the case with every dimension of one size cut to another, also where lists of numbers name it."""

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        for dim, extent in enumerate(tensor.shape):
            if extent == size:
                tensor = tensor.narrow(dim, 0, smaller)
        return tensor.contiguous()

    def rename(value: Any) -> Any:
        if isinstance(value, list | tuple) and value and all(type(item) is int for item in value):
            return type(value)(smaller if item == size else item for item in value)
        return value

    args, kwargs = map_tensors((case.args, case.kwargs), cut)
    return replace(case, args=tuple(map(rename, args)), kwargs={key: rename(item) for key, item in kwargs.items()})
