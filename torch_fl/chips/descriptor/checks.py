# SPDX-License-Identifier: Apache-2.0
"""Constraints as checks: a program that must hold, one that gives what was found, and a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch_fl.chips.descriptor.codes import DTYPE_CODES, TRACED, Code, Program, Step, dtype_mask
from torch_fl.chips.descriptor.expressions import Parameter, constant
from torch_fl.chips.descriptor.fields import ALL
from torch_fl.chips.descriptor.models import ArgumentRules, OrderSet, ShapeRules

MAX_NDIM = 63


@dataclass(frozen=True)
class Check:
    """One condition on a call. In ``expected``, {item} and {position} become the place where it does not hold."""

    holds: Program
    expected: str
    found: Program | None = None
    reads_values: bool = False

    def plain(self) -> dict[str, Any]:
        """Return what the core takes."""
        return {
            "holds": self.holds,
            "expected": self.expected,
            "found": self.found,
            "reads_values": self.reads_values,
        }


def one_of(values: Iterable[object]) -> str:
    """Return ``1, 2 or 4``."""
    words = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _signed(mask: int) -> int:
    return mask - (1 << 64) if mask >= 1 << 63 else mask


def shape_checks(rules: ShapeRules, tensor: Parameter) -> Iterator[Check]:
    """Yield what is asked of a tensor, or of every tensor of a list. One that is absent is asked nothing."""
    name = tensor.name + ("{item}" if tensor.kind == "tensors" else "")

    def check(code: Code, operand: int, expected: str, found: Program, before: Program | None = None) -> Check:
        return Check([*(before or []), (int(code), tensor.index, operand)], f"{name}{expected}", found)

    if rules.dtypes is not None:
        found: Program = [(int(Code.DTYPE), TRACED, 0)]
        yield check(Code.EVERY_DTYPE_IN, dtype_mask(rules.dtypes), f" must be {one_of(rules.dtypes)}", found)
    if rules.ndim is not None:
        found = [(int(Code.NDIM), TRACED, 0)]
        yield check(Code.EVERY_NDIM_IN, _ndim_mask(rules.ndim), f" must have {_ndim_text(rules.ndim)}", found)
    if rules.max_elements is not None:
        found = [(int(Code.NUMEL), TRACED, 0)]
        expected = f" must have at most {rules.max_elements} elements"
        yield check(Code.EVERY_NUMEL_AT_MOST, rules.max_elements, expected, found)
    size: Program = [(int(Code.POSITION), 0, 0), (int(Code.SIZE), TRACED, 0)]
    for dim, multiple in (rules.size_multiple or {}).items():
        expected = f".size({{position}}) must be a multiple of {multiple}"
        yield check(Code.EVERY_SIZE_MULTIPLE, multiple, expected, size, [_which(dim)])
    for dim, limits in (rules.size_range or {}).items():
        expected = f".size({{position}}) must be {_range_text(limits.min, limits.max)}"
        if limits.min is not None:
            yield check(Code.EVERY_SIZE_AT_LEAST, limits.min, expected, size, [_which(dim)])
        if limits.max is not None:
            yield check(Code.EVERY_SIZE_AT_MOST, limits.max, expected, size, [_which(dim)])


def _which(dim: Any) -> Step:
    return (int(Code.BOOLEAN), 0, 0) if dim == ALL else (int(Code.INTEGER), 0, dim)


def _range_text(low: object, high: object) -> str:
    if low is None:
        return f"at most {high}"
    return f"at least {low}" if high is None else f"from {low} to {high}"


def _ndim_mask(rule: OrderSet) -> int:
    if rule.values is not None:
        allowed: Iterable[int] = rule.values
    else:
        allowed = range(rule.min or 0, (MAX_NDIM if rule.max is None else rule.max) + 1)
    return _signed(sum(1 << n for n in set(allowed) if n <= MAX_NDIM))


def _ndim_text(rule: OrderSet) -> str:
    numbers = one_of(rule.values) if rule.values is not None else _range_text(rule.min, rule.max)
    return f"{numbers} dimension{'' if numbers == '1' else 's'}"


def value_checks(rules: ArgumentRules, parameter: Parameter) -> Iterator[Check]:
    """Yield what is asked of a number, boolean, text or type, or of every element of a list."""
    index, is_list = parameter.index, parameter.kind == "values"
    name = parameter.name + ("[{position}]" if is_list else "")
    found: Program = [(int(Code.POSITION), 0, 0), (int(Code.ELEMENT), index, 0)]
    found = found if is_list else [(int(Code.VALUE), index, 0)]
    if rules.values is not None:
        values = [_constant(value, parameter) for value in rules.values]
        holds: Program = [*values, (int(Code.EVERY_IN), index, len(values))]
        yield Check(holds, f"{name} must be {one_of(rules.values)}", found, parameter.real)
    expected = f"{name} must be {_range_text(rules.min, rules.max)}"
    for code, limit in ((Code.EVERY_AT_LEAST, rules.min), (Code.EVERY_AT_MOST, rules.max)):
        if limit is not None:
            yield Check([constant(limit), (int(code), index, 0)], expected, found, parameter.real)


def _constant(value: bool | int | float | str, parameter: Parameter) -> Step:
    if parameter.of_type and isinstance(value, str):
        return (int(Code.TYPE), 0, DTYPE_CODES[value])
    return constant(value)


def combination_check(combinations: list[list[str]], tensors: list[Parameter]) -> Check:
    """Return the check that the tensors' types are one of the combinations."""
    program: Program = []
    for combination in reversed(combinations):
        pairs = zip(tensors, combination, strict=False)
        one = _all_of([(int(Code.EVERY_DTYPE_IN), t.index, dtype_mask([d])) for t, d in pairs])
        program = [*one, (int(Code.JUMP_IF_TRUE_KEEP), 0, len(program)), *program] if program else one
    names = ", ".join(tensor.name for tensor in tensors[: max(map(len, combinations))])
    texts = one_of(f"({', '.join(combination)})" for combination in combinations)
    return Check(program, f"the types of ({names}) must be {texts}")


def _all_of(steps: Program) -> Program:
    program: Program = []
    for step in reversed(steps):
        program = [step, (int(Code.JUMP_IF_FALSE_KEEP), 0, len(program)), *program] if program else [step]
    return program
