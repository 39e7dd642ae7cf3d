# SPDX-License-Identifier: Apache-2.0
"""What a call should have returned, and how far off arithmetic alone may be.

The reference is the same call on the CPU in float64. How much rounding may add is measured, not guessed: inputs are
moved by a unit of roundoff and the call is made again (its condition), sums get the rounding of as many additions as
they have terms, and the CPU's own error counts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from torch_fl.conformance.bounds import real_type, unit_roundoff
from torch_fl.conformance.case import Case, map_tensors, tensors_of
from torch_fl.conformance.execute import Answer, dense, on_cpu, on_cpu_strided, widened
from torch_fl.conformance.forms import written_arguments

_PRODUCTS = frozenset("mm bmm addmm baddbmm mv addmv dot convolution linear".split())
_SUMS = frozenset(
    """sum mean cumsum index_add scatter_add embedding_dense_backward convolution_backward avg_pool2d avg_pool1d
    _adaptive_avg_pool2d avg_pool2d_backward _adaptive_avg_pool2d_backward native_dropout_backward""".split()
)
_STATISTICS = frozenset(
    """native_batch_norm native_batch_norm_backward native_layer_norm native_layer_norm_backward native_group_norm
    native_group_norm_backward _native_batch_norm_legit var std var_mean std_mean _softmax _log_softmax
    _softmax_backward_data _log_softmax_backward_data logsumexp mse_loss nll_loss_forward nll_loss2d_forward
    binary_cross_entropy smooth_l1_loss linalg_vector_norm norm prod _fused_rms_norm _fused_rms_norm_backward""".split()
)
_COPIES = frozenset(
    """_to_copy clone copy stack cat zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full
    neg threshold_backward masked_fill slice_backward select_backward constant_pad_nd fill zero unfold where relu
    embedding index_select gather index tril triu flip roll repeat max_pool2d_with_indices lift_fresh_copy""".split()
)
# Any index of equal elements is right. Where these have their argument dim:
_OF_EQUALS = {
    "aten::sort": 1,
    "aten::topk": 2,
    "aten::kthvalue": 2,
    "aten::mode": 1,
    "aten::median.dim": 1,
    "aten::nanmedian.dim": 1,
}
_SORTED = 4  # topk's argument
_ADDED = frozenset("addmm baddbmm addmv convolution".split())  # the sum is rounded once more


@dataclass
class Reference:
    """The results that a call should have, by name, with what is known of their precision."""

    expected: dict[str, torch.Tensor]  # the CPU's, in the call's own types
    wide: dict[str, torch.Tensor] = field(default_factory=dict)  # the CPU's in float64
    spread: dict[str, torch.Tensor] = field(default_factory=dict)  # what a unit of roundoff in the inputs does
    size: dict[str, torch.Tensor] = field(default_factory=dict)  # sums of the terms' magnitudes
    terms: float = 1.0
    exact: bool = False
    linear: bool = False  # a sum of products: nothing but its terms and their order decides its rounding
    added: bool = False  # a sum to which something is added: rounded twice
    statistic: bool = False
    roundings: float = 4.0
    undefined: torch.Tensor | None = None  # where C leaves open what a cast to whole numbers gives
    merged: bool = False  # NaN and infinity are one: which of them comes out depends on the order of sums


def base_name(op: str) -> str:
    """Return ``add`` for ``aten::add_.Tensor``: the name without overload and the mark of in-place operators."""
    name = op.partition("::")[2].partition(".")[0]
    return name[:-1] if name.endswith("_") and not name.startswith("__") else name


def is_copy(op: str, args: Any) -> bool:
    """Whether a call passes on values, so that it rounds nothing, and gives the CPU's result to the bit."""
    base = base_name(op)
    if base == "abs":
        return not args[0].is_complex()
    if base == "arange":  # steps may be added or multiplied
        return not any(isinstance(value, float) and not value.is_integer() for value in args)
    return base in _COPIES


def results_of(case: Case, answer: Answer) -> dict[str, torch.Tensor]:
    """Return what a call gave: its outputs, and the arguments that it writes."""
    found: dict[str, torch.Tensor] = {}
    for i, value in enumerate(_settled(case, answer)):
        if i not in case.ignore:
            tensors = list(tensors_of(value))
            found.update((f"output {i}" if len(tensors) == 1 else f"output {i}.{k}", t) for k, t in enumerate(tensors))
    written = written_arguments(case.function) | case.written
    returned = {id(tensor) for tensor in found.values()}
    for i, argument in enumerate(case.function._schema.arguments):
        if argument.name in written:
            value = answer.args[i] if i < len(answer.args) else answer.kwargs.get(argument.name)
            tensors = [t for t in tensors_of(value) if id(t) not in returned]
            found.update((f"{argument.name} afterwards", t) for t in tensors)
    return found


def _settled(case: Case, answer: Answer) -> Sequence[Any]:
    """The outputs; of one right answer among several, what all of them have in common, worked out on the CPU."""
    if case.settle is None:
        return answer.outputs
    args, outputs = map_tensors((answer.args, list(answer.outputs)), torch.Tensor.cpu)
    try:
        return case.settle(args, outputs)
    except (RuntimeError, IndexError):  # outputs that are no answer at all
        return answer.outputs


def reference_of(case: Case, plain: Case | None = None) -> Reference | None:
    """Return the reference of a call; None where the CPU refuses it. ``plain``: the case with dense arguments."""
    expected = on_cpu(case)
    if expected is not None and plain is not None:
        answer = on_cpu(plain)
        expected = on_cpu_strided(case, answer) if answer is not None else expected
    if expected is None:
        return None
    base, outputs = base_name(case.op), results_of(case, expected)
    reference = Reference(outputs, exact=case.exact, roundings=case.roundings, undefined=_undefined(case, outputs))
    if case.exact or not any(t.is_floating_point() or t.is_complex() for t in outputs.values()):
        return reference
    reference.linear, reference.statistic = base in _PRODUCTS or base in _SUMS, base in _STATISTICS
    reference.added = base in _ADDED
    reference.terms = _terms(case, expected)
    _add_wide(case, expected, reference)
    return reference


def _undefined(case: Case, outputs: dict[str, torch.Tensor]) -> torch.Tensor | None:
    """Where a cast to whole numbers has no right result: of NaN, and of what the type cannot hold."""
    base = base_name(case.op)
    if base not in ("_to_copy", "copy") or not outputs:
        return None
    source, kind = case.args[1 if base == "copy" else 0], next(iter(outputs.values())).dtype
    if not source.is_floating_point() or kind.is_floating_point or kind.is_complex or kind is torch.bool:
        return None
    whole, info = source.double().trunc(), torch.iinfo(kind)
    inside: torch.Tensor = (whole >= float(info.min)) & (whole < float(info.max) + 1.0)
    return ~inside


def _add_wide(case: Case, expected: Answer, reference: Reference) -> None:
    wider = widened(dense(case))
    if not list(tensors_of((case.args, case.kwargs))):  # linspace() and the like, whose type may be the default
        wider = replace(wider, kwargs={**wider.kwargs, "dtype": torch.float64})
    answer = on_cpu(wider)
    if answer is None or len(answer.outputs) != len(expected.outputs):
        return
    middle = results_of(case, answer)
    if not _same_shapes(middle, reference.expected):
        return
    if not _is_widest(case, reference.expected):
        reference.wide = middle
    unit = sum_unit(case)
    for seed in range(2):
        moved = on_cpu(_moved(wider, unit, seed))
        if moved is None or not _same_shapes(results_of(case, moved), middle):
            return
        for name, tensor in results_of(case, moved).items():
            if not (tensor.is_floating_point() or tensor.is_complex()):
                continue
            change = _finite((tensor - middle[name]).abs())
            before = reference.spread.get(name)
            reference.spread[name] = change if before is None else torch.maximum(before, change)
    if reference.linear:
        _add_size(case, wider, reference)


def _same_shapes(some: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> bool:
    """Not of unique() and the like, where a last bit more makes two elements of one."""
    return {name: t.shape for name, t in some.items()} == {name: t.shape for name, t in others.items()}


def _add_size(case: Case, wider: Case, reference: Reference) -> None:
    args, kwargs = map_tensors((wider.args, wider.kwargs), lambda t: t.abs() if t.is_floating_point() else t)
    answer = on_cpu(replace(wider, args=args, kwargs=kwargs))
    if answer is not None:
        sizes = results_of(case, answer).items()
        reference.size = {name: _finite(tensor.abs()) for name, tensor in sizes if tensor.is_floating_point()}


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.nan_to_num(0.0, 0.0, 0.0)


def _is_widest(case: Case, expected: dict[str, torch.Tensor]) -> bool:
    tensors = _floating(case) or expected.values()
    return all(t.dtype in (torch.float64, torch.complex128) for t in tensors)


def _floating(case: Case) -> list[torch.Tensor]:
    return [t for t in tensors_of((case.args, case.kwargs)) if t.is_floating_point() or t.is_complex()]


def sum_unit(case: Case) -> float:
    """Return the roundoff of a call's sums: narrow types are summed in float32."""
    kinds = [real_type(t.dtype) for t in _floating(case)]
    return min([unit_roundoff(torch.float32), *(unit_roundoff(kind) for kind in kinds)])


def _moved(case: Case, unit: float, seed: int) -> Case:
    generator = torch.Generator().manual_seed(seed)

    def move(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        signs = torch.randint(0, 2, tensor.shape, generator=generator).to(tensor.dtype) * 2 - 1
        return tensor * (1 + unit * signs)

    args, kwargs = map_tensors((case.args, case.kwargs), move)
    return replace(case, args=args, kwargs=kwargs)


def _terms(case: Case, answer: Answer) -> float:
    """About how many terms one element of the result sums up."""
    inputs = [t for t in tensors_of(case.args) if t.is_floating_point()]
    base = base_name(case.op)
    if not inputs:
        return 1.0
    if base in _ADDED and base != "convolution" and len(inputs) > 1:
        return float(inputs[1].shape[-1])
    if base == "convolution":
        return inputs[1].numel() / max(1, inputs[1].shape[0])
    if base in _PRODUCTS:
        return float(inputs[0].shape[-1])
    largest = max(t.numel() for t in inputs)
    smallest = min([t.numel() for t in tensors_of(answer.outputs) if t.numel()] or [1])
    if base.startswith("_softmax") or base.startswith("_log_softmax"):
        return float(max(inputs[0].shape, default=1))
    return max(1.0, largest / smallest)


def tolerance(reference: Reference, name: str, unit_of_sums: float) -> torch.Tensor:
    """Return how far each element of a result may be from the reference for rounding and order of sums alone."""
    expected = reference.expected[name].double()
    exact = reference.wide.get(name, expected).double()
    unit = unit_roundoff(reference.expected[name].dtype)
    size, own = _finite(exact.abs()), _finite((expected - exact).abs())
    spread = reference.spread.get(name, torch.zeros_like(size))
    spread = spread + root_mean_square(spread)
    info = torch.finfo(reference.expected[name].dtype)
    noise = reference.roundings * spread + info.tiny * info.eps * 4
    order = unit_of_sums * math.sqrt(reference.terms)
    if reference.linear:
        rounded = size + (root_mean_square(size) if reference.added else 0.0)
        return noise + 1.01 * unit * rounded + 2 * own + 4 * order * reference.size.get(name, size)
    if reference.statistic:
        noise = noise + 4 * order * (size + root_mean_square(size))
    worst = own.max() if own.numel() else 0.0
    return noise + reference.roundings * unit * size + 4 * worst


def root_mean_square(tensor: torch.Tensor) -> float:
    """Return the typical magnitude of the elements of a real tensor; 0 of an empty one."""
    return float(tensor.square().mean().sqrt()) if tensor.numel() else 0.0


def unit_of_sums(reference: Reference) -> float:
    """Return the roundoff in which the results of a reference are summed."""
    kinds = [real_type(t.dtype) for t in reference.expected.values() if t.is_floating_point()]
    return min([unit_roundoff(torch.float32), *(unit_roundoff(kind) for kind in kinds)])


def rules_for(op: str, operators: dict[str, Any]) -> dict[str, Any]:
    """Return what the conformance kit knows about an operator or its functional sibling; and which of equals is right.

    The kit avoids equal elements; a model has them.
    """
    base, _, overload = op.partition(".")
    plain = base[:-1] if base.endswith("_") else base
    known = next((name for name in (op, plain + (f".{overload}" if overload else "")) if name in operators), "")
    rules = {key: value for key, value in operators[known].rules.items() if key != "terms"} if known else {}
    if op in _OF_EQUALS:
        rules["settle"] = functools.partial(_what_is_there, op, _OF_EQUALS[op])
    return rules


def _what_is_there(op: str, place: int, args: Any, outputs: Any) -> list[torch.Tensor]:
    """Of values and their indices: what is at the indices, and whether each is another."""
    values, indices = outputs
    source, dim = args[0], args[place] if place < len(args) else -1
    if op == "aten::topk" and len(args) > _SORTED and not args[_SORTED]:  # in any order
        values, order = values.sort(dim)
        indices = indices.gather(dim, order)
    if indices.dim() < source.dim():
        indices = indices.unsqueeze(dim)
    found = source.gather(dim, indices).reshape(values.shape)
    return [values, found, (indices.sort(dim).values.diff(dim=dim) > 0).all()] if indices.dim() else [values, found]
