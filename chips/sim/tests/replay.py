# SPDX-License-Identifier: Apache-2.0
"""Replays the operator calls of PyTorch's own samples on the chip's kernels and compares every output with the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from harness import (
    BROADCAST,
    CONTIGUOUS_INPUTS,
    CONTIGUOUS_OUTPUTS,
    DTYPES,
    PROMOTE,
    RANDOM,
    UNSUPPORTED,
    Chip,
    PluginError,
)
from nn_host import call_cpu
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

PREDICATES = {
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf",
    "isposinf", "isneginf", "signbit",
}  # fmt: skip
PROMOTING_SCALARS = {"other", "exponent", "self", "min", "max"}
UNPROMOTED = {"condition", "mask"}


class Recorder(TorchDispatchMode):
    """Hands every functional call that the chip has a row for to `check`, with the CPU's result."""

    def __init__(self, chip: Chip, check: Callable[..., None]) -> None:
        super().__init__()
        self.chip, self.check = chip, check

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func).replace("aten.", "aten::").removesuffix(".default")
        if name not in self.chip.kernels:
            return func(*args, **kwargs)
        given = positional(func._schema, args, kwargs)
        mutated = [i for i, a in enumerate(func._schema.arguments) if a.alias_info and a.alias_info.is_write]
        before = [tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, given[i]) for i in mutated]
        result = func(*args, **kwargs)
        self.check(func, name, given, mutated, before, result)
        return result


def positional(schema: Any, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    values = list(args)
    for a in schema.arguments[len(values) :]:
        values.append(kwargs.get(a.name, a.default_value if a.has_default_value() else None))
    return values


def tensors_in(values: Iterable[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for v in values:
        items = v if isinstance(v, (list, tuple)) else [v]
        found += [x for x in items if isinstance(x, torch.Tensor)]
    return found


def compute_dtype(row: Any, base: str, schema: Any, given: list[Any], result: torch.Tensor | None) -> torch.dtype:
    """As the host chooses it: the promoted type, or the output's where integers give floats."""
    inputs = [(a, v) for a, v in zip(schema.arguments, given, strict=True) if a.name not in UNPROMOTED]
    tensors = tensors_in(v for _, v in inputs)
    if not row.flags & PROMOTE:
        return tensors[0].dtype if tensors else result.dtype if result is not None else torch.float32
    parts: list[Any] = list(tensors)
    for a, v in inputs:
        tensor_place = "Tensor" in str(a.type) or a.name in PROMOTING_SCALARS
        if isinstance(v, (bool, int, float, complex)) and tensor_place:
            parts.append(v)
    dtype = promote(parts)
    if base in PREDICATES or result is None or is_inexact(dtype):
        return dtype
    return result.dtype if is_inexact(result.dtype) else dtype


def is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def promote(parts: list[Any]) -> torch.dtype:
    """PyTorch's result type of tensors and numbers: dimensioned tensors rank above 0-dim ones, those above numbers."""
    ranks: list[torch.dtype | None] = [None, None, None]
    for p in parts:
        rank = 2 if not isinstance(p, torch.Tensor) else 0 if p.dim() else 1
        dtype = p.dtype if isinstance(p, torch.Tensor) else torch.tensor(p).dtype
        have = ranks[rank]
        ranks[rank] = dtype if have is None else torch.promote_types(have, dtype)
    result = combine(ranks[0], combine(ranks[1], ranks[2]))
    assert result is not None
    return result


def combine(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    if higher is None or lower is None:
        return higher or lower
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return torch.promote_types(higher, torch.complex32) if lower.is_complex else higher
    if higher == torch.bool or lower.is_floating_point or lower.is_complex:
        return torch.promote_types(higher, lower)
    return higher


def empty_like_strided(t: torch.Tensor, dense: bool) -> torch.Tensor:
    """Memory for an output: dense, or with its dimensions in reverse order and a gap after each element."""
    if dense or t.dim() < 1:
        return torch.empty(t.size(), dtype=t.dtype)
    sizes = list(t.size())[::-1]
    sizes[-1:] = [sizes[-1] * 2]
    return torch.empty(sizes, dtype=t.dtype)[..., ::2].permute(*range(t.dim() - 1, -1, -1))


def plain(x: Any) -> Any:
    return x.resolve_conj().resolve_neg() if isinstance(x, torch.Tensor) else x


def adapt(row: Any, schema: Any, given: list[Any], compute: torch.dtype, sizes: torch.Size | None) -> list[Any]:
    """Applies the contract flags to the arguments."""

    def one(name: str, t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        t = plain(t.detach())
        if row.flags & PROMOTE and name not in UNPROMOTED:
            t = t.to(compute)
        if row.flags & BROADCAST and sizes is not None:
            t = t.expand(sizes)
        return t.contiguous() if row.flags & CONTIGUOUS_INPUTS else t

    adapted = []
    for a, v in zip(schema.arguments, given, strict=True):
        value = [one(a.name, x) for x in v] if isinstance(v, (list, tuple)) else one(a.name, v)
        adapted.append(number_for(a, value))
    return adapted


def number_for(argument: Any, v: Any) -> Any:
    """The dispatcher's kinds: a `float` argument is real even when Python gave an int."""
    real = str(argument.type) in ("float", "Optional[float]")
    return float(v) if real and isinstance(v, int) and not isinstance(v, bool) else v


# Sums that the CPU rounds differently on other processors, and the types that the chip forms in float32.
SUMS = {"aten::convolution", "aten::convolution_backward", "aten::addr"}
SINGLES = (torch.float32, torch.float16, torch.bfloat16)


def summed(name: str, given: list[Any], outs: list[Any]) -> list[Any]:
    """The sums in float64, moved towards `outs` by no more than float32's epsilon of the sum of all magnitudes."""
    wide = tree_map(lambda v: v.detach().double() if isinstance(v, torch.Tensor) else v, given)
    sizes = call_cpu(name, tree_map(lambda v: v.abs() if isinstance(v, torch.Tensor) else v, wide))
    moved = []
    for out, exact, size in zip(outs, call_cpu(name, wide), sizes, strict=True):
        if out is None:
            moved.append(None)
            continue
        bound = (size.abs() * torch.finfo(torch.float32).eps).nan_to_num(0)
        off = (out.double() - exact).nan_to_num(0)  # a number that is none is not moved to
        moved.append((exact + off.clamp(-bound, bound)).to(out.dtype))
    return moved


def check_call(
    chip: Chip, func: Any, name: str, given: list[Any], mutated: list[int], before: list[Any], result: Any,
    dense: bool, tally: dict[str, int], tolerance: Callable[..., dict[str, float]],
) -> None:  # fmt: skip
    row, schema = chip.kernels[name], func._schema
    if row.flags & RANDOM:
        return
    base = name.removeprefix("aten::").split(".")[0]
    results = list(result) if isinstance(result, (list, tuple)) else [result]
    if mutated:
        results = [given[i] for i in mutated]
        given = list(given)
        for i, old in zip(mutated, before, strict=True):
            given[i] = old
    if any(not isinstance(r, torch.Tensor) and r is not None for r in results):
        return
    if any(t.layout != torch.strided or t.dtype not in DTYPES for t in tensors_in(given)):
        return
    first = next((r for r in results if r is not None), None)
    compute = compute_dtype(row, base, schema, given, first)
    if row.dtypes and not row.dtypes >> DTYPES[compute] & 1:
        tally["dtype"] = tally.get("dtype", 0) + 1
        return
    args = adapt(row, schema, given, compute, first.size() if first is not None else None)
    force_dense = dense or bool(row.flags & CONTIGUOUS_OUTPUTS)
    outs = [None if r is None else empty_like_strided(r, force_dense) for r in results]
    for i, o in zip(mutated, outs, strict=False):
        if o is not None:
            o.copy_(given[i])
    try:
        chip.run(name, args, outs, compute)
    except PluginError as error:
        if error.status == UNSUPPORTED:
            tally["unsupported"] = tally.get("unsupported", 0) + 1
            return
        raise AssertionError(f"{name}: {error} for {describe(args)}") from error
    tally["ok"] = tally.get("ok", 0) + 1
    if name in SUMS and compute in SINGLES:
        results = summed(name, given, outs)
    for k, (mine, theirs) in enumerate(zip(outs, results, strict=True)):
        if theirs is not None:
            torch.testing.assert_close(
                mine, plain(theirs.detach()), equal_nan=True, check_stride=False, **tolerance(name, theirs.dtype),
                msg=lambda text, k=k: f"{name} output {k} of {describe(args)} compute {compute}\n{text}",
            )  # fmt: skip


def describe(args: list[Any]) -> str:
    def one(a: Any) -> str:
        if isinstance(a, torch.Tensor):
            data = f" = {a.flatten()[:8].tolist()}" if a.dtype not in (torch.float8_e8m0fnu,) else ""
            return f"{a.dtype}{tuple(a.size())}/{a.stride()}{data}"
        return "[" + ", ".join(one(x) for x in a) + "]" if isinstance(a, (list, tuple)) else repr(a)

    return "(" + ", ".join(one(a) for a in args) + ")"
