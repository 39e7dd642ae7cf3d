# SPDX-License-Identifier: Apache-2.0
"""A case: one call of one operator overload, with arguments on the CPU, that can print itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

# From the arguments and outputs of a call to what is compared: undoes the freedom that an operator's definition leaves.
Settle = Callable[[tuple[Any, ...], list[Any]], list[Any]]


@dataclass(frozen=True)
class Case:
    """One call. ``str(case)`` is its arguments as a person would write them."""

    op: str  # the functional overload that a kernel registers for: "aten::add.Tensor"
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    terms: int = 1  # how many rounded terms one element of the result sums up
    roundings: float = 4.0  # units of roundoff that one term may be off
    exact: bool = False  # equal to the bit, whatever the type
    draws: bool = False  # random numbers: not the CPU's, but of the same distribution
    ignore: frozenset[int] = frozenset()  # outputs that the operator's definition leaves open
    settle: Settle | None = None
    written: frozenset[str] = frozenset()  # arguments that are changed although the schema does not say so
    oracle: Callable[..., Any] | None = None  # what the CPU calls, where it lacks the overload
    form: str = "forward"  # or "strided", "transposed", "in-place", "out=", "grad"
    target: str = ""  # the overload to call, where it is not `op`: its in-place or out= sibling
    flops: float = 0.0  # for mode perf

    def __str__(self) -> str:
        name = overload_name(self.called)
        words = [describe(value) for value in self.args]
        words += [f"{key}={describe(value)}" for key, value in self.kwargs.items()]
        text = f"{name}({', '.join(words)})"
        return text if self.form == "forward" else f"{text} [{self.form}]"

    @property
    def function(self) -> Any:
        """The overload in ``torch.ops``."""
        return overload(self.called)

    @property
    def called(self) -> str:
        """The name of the overload that is called."""
        return self.target or self.op

    def as_form(self, form: str, tree: Any = None) -> Case:
        """Return the case in another form, with other arguments where a tree (args, kwargs) of them is given."""
        if tree is None:
            return replace(self, form=form)
        return replace(self, form=form, args=tree[0], kwargs=tree[1])

    def bytes_moved(self, outputs: Any) -> int:
        """Return the bytes of all tensors that go in and come out, each once."""
        return sum(t.numel() * t.element_size() for t in tensors_of((self.args, self.kwargs, outputs)))


def overload_name(op: str) -> str:
    """Return ``add.Tensor`` for ``aten::add.Tensor``."""
    return op.removeprefix("aten::")


def overload(op: str) -> Any:
    """Return the callable of ``torch.ops`` for ``aten::add.Tensor``; AttributeError if this torch has none."""
    namespace, _, rest = op.partition("::")
    name, _, suffix = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), suffix or "default")


def dtype_name(dtype: torch.dtype) -> str:
    """Return ``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def describe(value: Any) -> str:
    """Write an argument: tensors by type, sizes and, where they are not the usual ones, strides."""
    if isinstance(value, torch.Tensor):
        text = f"{dtype_name(value.dtype)}{list(value.shape)}"
        if value.is_contiguous():
            return text
        return f"{text} strides {list(value.stride())}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(describe, value)) + "]"
    return dtype_name(value) if isinstance(value, torch.dtype) else repr(value)


def tensors_of(tree: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in lists, tuples and dicts, in order."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from tensors_of(item)
    elif isinstance(tree, dict):
        yield from tensors_of(list(tree.values()))


def map_tensors(tree: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return the tree with a function applied to each tensor; one tensor that occurs twice stays one."""
    done: dict[int, torch.Tensor] = {}

    def walk(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in done:
                done[id(value)] = function(value)
            return done[id(value)]
        if isinstance(value, torch.nn.utils.rnn.PackedSequence):  # its sizes stay on the host
            return type(value)(walk(value[0]), value[1], *map(walk, value[2:]))
        if isinstance(value, tuple) and hasattr(value, "_make"):  # named
            return value._make(map(walk, value))
        if isinstance(value, list | tuple):
            return type(value)(walk(item) for item in value)
        if isinstance(value, dict):
            return {key: walk(item) for key, item in value.items()}
        return value

    return walk(tree)
