# SPDX-License-Identifier: Apache-2.0
"""What can be said of a descriptor with the installed torch at hand, and without the chip's library."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from torch_fl._suggest import nearest
from torch_fl.chips.descriptor.errors import DescriptorError, Problem
from torch_fl.chips.descriptor.fields import DTYPES
from torch_fl.chips.descriptor.loader import load
from torch_fl.chips.descriptor.lower import lower
from torch_fl.chips.descriptor.models import ArgumentRules, Descriptor, Op
from torch_fl.chips.descriptor.source import Key, shown
from torch_fl.routing import operators
from torch_fl.routing.errors import ConfigError
from torch_fl.routing.override_expressions import compile_expression

Place = tuple[Key, ...]


def validate(path: str | os.PathLike[str]) -> list[Problem]:
    """Return every mistake in a descriptor, and what else is worth a look (``severity``); nothing: it is good."""
    try:
        descriptor = load(path)
    except DescriptorError as error:
        return error.problems
    found = [*_library(descriptor), *_operators(descriptor), *_types(descriptor), *_arguments(descriptor)]
    found += [*_overrides(descriptor), *_name(descriptor), *_casts(descriptor)]
    places = {(problem.file, problem.line, problem.column) for problem in found}
    found += [p for p in _lowering(descriptor) if (p.file, p.line, p.column) not in places]  # said already
    return sorted(dict.fromkeys(found), key=lambda problem: (problem.file, problem.line, problem.column))


def _library(descriptor: Descriptor) -> Iterator[Problem]:
    path = descriptor.runtime_so
    if os.path.isabs(path) and not os.path.exists(path):
        fix = "Before the chip can be used, the library must be there"
        yield descriptor.problem(
            ("runtime_so",), "a library on this machine", f"no file {path}", fix=fix, severity="warning"
        )


def _name(descriptor: Descriptor) -> Iterator[Problem]:
    """Tell of a name for the chip's devices that will not work."""
    from torch_fl.device import names

    name = descriptor.device_type
    if name and name not in names.in_use() and names.refusal(name) is not None:
        fix = "The devices would be called fl:0, ... only"
        yield descriptor.problem(
            ("device_type",), "a name that PyTorch has no use of its own for", shown(name), fix=fix, severity="warning"
        )


def _casts(descriptor: Descriptor) -> Iterator[Problem]:
    """Refuse to compute floating-point numbers in integers and the like: the result would be another one."""
    for i, op in enumerate(descriptor.supported_ops):
        for start, end in (op.constraints.cast or {}).items() if op.constraints else ():
            if _category(start) != _category(end):
                place = ("supported_ops", i, "constraints", "cast", start)
                yield descriptor.problem(place, f"a {_category(start)} type", shown(end))


def _category(dtype: str) -> str:
    for start, kind in (("float", "float"), ("bfloat", "float"), ("complex", "complex"), ("bool", "bool")):
        if dtype.startswith(start):
            return kind
    return "integer"


def _lowering(descriptor: Descriptor) -> list[Problem]:
    """Return what is wrong with expressions and signatures: found out by compiling them."""
    try:
        lower(descriptor)
    except DescriptorError as error:
        return error.problems
    return []


def _operators(descriptor: Descriptor) -> Iterator[Problem]:
    for i, op in enumerate(descriptor.supported_ops):
        yield from _operator(descriptor, op.name, ("supported_ops", i, "name"), one=op.impl is not None)
    for name in descriptor.fallback_policy.op_specific or ():
        yield from _operator(descriptor, name, ("fallback_policy", "op_specific", name), one=False)


def _operator(descriptor: Descriptor, name: str, place: Place, *, one: bool) -> Iterator[Problem]:
    """Check that an operator exists; ``one``: the name stands for one overload, not for all of them."""
    name_is_key = place[0] == "fallback_policy"
    base, dot, overload = name.partition(".")
    known = operators.overloads(base)
    if not known:
        library, _, _ = base.partition("::")
        yield descriptor.problem(
            place,
            "an operator of the installed torch",
            shown(name),
            suggestion=nearest(base, operators.known_operators()),
            fix="" if library == "aten" else f"The library that defines {library}:: must be imported first",
            at_key=name_is_key,
            severity="error" if library == "aten" else "warning",
        )
    elif overload not in known and (dot or one):
        names = [f"{base}.{item}" if item else base for item in known]
        close = nearest(name, names) or names[0]
        yield descriptor.problem(
            place, f"one of {', '.join(names[:8])}", shown(name), suggestion=close, at_key=name_is_key
        )


def _overrides(descriptor: Descriptor) -> Iterator[Problem]:
    """Compile the expressions of operators that stand for operators."""
    for name, fallback in (descriptor.fallback_policy.op_specific or {}).items():
        base, _, overload = name.partition(".")
        known = operators.overloads(base)
        schema = known.get(overload) or next(iter(known.values()), None)
        if schema is None or fallback.override is None or fallback.override.expression is None:
            continue
        try:
            compile_expression(fallback.override.expression, [argument.name for argument in schema.arguments])
        except ConfigError as error:
            place = ("fallback_policy", "op_specific", name, "override", "expression")
            said = str(error).partition(", in an override")[0].removeprefix("expected ")
            expected, _, found = said.rpartition(", found ")
            yield descriptor.problem(place, expected or "an expression of operators", found)


def _types(descriptor: Descriptor) -> Iterator[Problem]:
    """Compare the types of an operator with what its functions and the chip compute in."""
    computed = descriptor.capabilities.dtypes
    for i, op in enumerate(descriptor.supported_ops):
        for j, dtype in enumerate(op.dtype_support or ()):
            place = ("supported_ops", i, "dtype_support", j)
            if isinstance(op.impl, dict) and dtype not in op.impl:
                yield descriptor.problem(place, f"one of {', '.join(op.impl)}, which impl has", dtype)
            elif computed is not None and dtype not in computed:
                expected = f"one of capabilities.dtypes ({', '.join(computed)})"
                fix = "The operator is never called with it"
                yield descriptor.problem(place, expected, dtype, fix=fix, severity="warning")


def _arguments(descriptor: Descriptor) -> Iterator[Problem]:
    for i, op in enumerate(descriptor.supported_ops):
        if op.constraints is None or not op.constraints.arguments:
            continue
        kinds = _argument_kinds(op)
        for name, rules in op.constraints.arguments.items() if kinds else ():
            place = ("supported_ops", i, "constraints", "arguments", name)
            yield from _argument(descriptor, op.name, kinds, name, rules, place)


def _argument_kinds(op: Op) -> dict[str, str]:
    """Return what each argument of an operator is: Tensor, int, bool, ...; outputs included.

    Without ``impl``, the name of an operator stands for all of its overloads.
    """
    base, dot, overload = op.name.partition(".")
    known = operators.overloads(base)
    meant = known.values() if op.impl is None and not dot else filter(None, [known.get(overload)])
    kinds: dict[str, str] = {}
    for schema in meant:
        kinds |= {"out" + (str(i) if i else ""): "Tensor" for i in range(len(schema.returns))}
        kinds |= {argument.name: _kind(argument) for argument in schema.arguments if argument.name not in kinds}
    return kinds


def _kind(argument: Any) -> str:
    return re.sub(r"Optional|List|[\[\]]", "", str(argument.real_type))


def _argument(
    descriptor: Descriptor, op: str, kinds: dict[str, str], name: str, rules: ArgumentRules, place: Place
) -> Iterator[Problem]:
    kind = kinds.get(name)
    if kind is None:
        expected, close = f"an argument of {op} ({', '.join(kinds)})", nearest(name, kinds)
        yield descriptor.problem(place, expected, shown(name), suggestion=close, at_key=True)
    elif kind == "Tensor" and rules.of_value:
        expected = f"rules of a tensor, which {name} is"
        yield descriptor.problem(place, expected, "rules of a value", fix="See ndim, dtypes, size_multiple, size_range")
    elif kind != "Tensor" and rules.of_tensor:
        expected = f"values, min or max, since {name} is of the type {kind}"
        yield descriptor.problem(place, expected, "rules of a tensor")
    else:
        yield from _values(descriptor, kind, name, rules, place)


def _values(descriptor: Descriptor, kind: str, name: str, rules: ArgumentRules, place: Place) -> Iterator[Problem]:
    fitting = _FITTING.get(kind)
    for i, value in enumerate(rules.values or ()):
        if fitting is not None and not fitting[1](value):
            expected = f"{fitting[0]}, which {name} is"
            yield descriptor.problem((*place, "values", i), expected, shown(value))
    if (rules.min is not None or rules.max is not None) and kind not in ("int", "float", "number"):
        yield descriptor.problem(place, f"values, since {name} is of the type {kind}", "min or max")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_dtype(value: object) -> bool:
    return value in DTYPES


_FITTING: dict[str, tuple[str, Callable[[object], bool]]] = {
    "int": ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "float": ("a number", _is_number),
    "number": ("a number", _is_number),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "str": ("text", lambda value: isinstance(value, str)),
    "ScalarType": ("an element type", _is_dtype),
}
