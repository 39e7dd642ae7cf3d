# SPDX-License-Identifier: Apache-2.0
"""Other forms of a case: strided and transposed arguments, in place, and with ``out=``."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import torch

from torch_fl.conformance.case import Case, map_tensors, overload


def forms_of(case: Case, outputs: list[Any]) -> Iterator[Case]:
    """Yield the other forms that a case has; ``outputs`` are the CPU's."""
    if not writes(case.function):
        for form, change in (("strided", _strided), ("transposed", _transposed)):
            tree = map_tensors((case.args, case.kwargs), change)
            yield case.as_form(form, tree)
        yield from _in_place(case)
        yield from _out(case, outputs)


def writes(function: Any) -> bool:
    """Tell whether an overload changes arguments."""
    return any(arg.alias_info is not None and arg.alias_info.is_write for arg in function._schema.arguments)


def written_arguments(function: Any) -> set[str]:
    """Return the names of the arguments that an overload changes."""
    arguments = function._schema.arguments
    return {arg.name for arg in arguments if arg.alias_info is not None and arg.alias_info.is_write}


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """Every second element of the last dimension of a wider tensor."""
    if tensor.dim() == 0 or not tensor.numel():
        return tensor
    wider = torch.zeros(*tensor.shape[:-1], 2 * tensor.shape[-1], dtype=tensor.dtype)
    view = wider[..., ::2]
    return view.copy_(tensor)


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The last two dimensions the other way round in memory."""
    return tensor if tensor.dim() < 2 else tensor.mT.contiguous().mT


def _in_place(case: Case) -> Iterator[Case]:
    base, _, suffix = case.op.partition(".")
    name = f"{base}_" + (f".{suffix}" if suffix else "")
    try:
        sibling = overload(name)
    except AttributeError:
        return
    if _names(sibling) == _names(case.function):
        yield dataclasses.replace(case, form="in-place", target=name)


def _out(case: Case, outputs: list[Any]) -> Iterator[Case]:
    for name in out_siblings(case.op)[:1]:
        sibling = overload(name)
        outs = [arg.name for arg in sibling._schema.arguments if arg.is_out]
        if len(outs) != len(outputs) or not all(isinstance(value, torch.Tensor) for value in outputs):
            continue
        kwargs = {key: value for key, value in case.kwargs.items() if key in _names(sibling)}
        # Of an output that is ignored the shape may be another, too: one without elements may be resized.
        empty = [value.new_empty(0) if i in case.ignore else torch.zeros_like(value) for i, value in enumerate(outputs)]
        kwargs.update(zip(outs, empty, strict=True))
        yield dataclasses.replace(case, form="out=", target=name, kwargs=kwargs)


@functools.cache
def out_siblings(op: str) -> tuple[str, ...]:
    """Return the overloads that do the same and write to ``out=``."""
    base = op.partition(".")[0]
    packet = getattr(getattr(torch.ops, base.partition("::")[0]), base.partition("::")[2])
    function = overload(op)
    siblings = [(suffix, getattr(packet, suffix)) for suffix in packet.overloads()]
    return tuple(
        f"{base}.{suffix}"
        for suffix, sibling in siblings
        if any(arg.is_out for arg in sibling._schema.arguments) and _extends(sibling, function)
    )


def _names(function: Any) -> list[str]:
    return [arg.name for arg in function._schema.arguments]


def _extends(sibling: Any, function: Any) -> bool:
    mine = [(arg.name, str(arg.type)) for arg in sibling._schema.arguments if not arg.is_out]
    theirs = [(arg.name, str(arg.type)) for arg in function._schema.arguments]
    factory = {"dtype", "layout", "device", "pin_memory"}
    return mine == theirs or mine == [item for item in theirs if item[0] not in factory]
