# SPDX-License-Identifier: Apache-2.0
"""Route ``override``: what a chip's descriptor says is to be done in the place of an operator."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch_fl import _load
from torch_fl._suggest import did_you_mean
from torch_fl.routing.decompositions import overload, split_arguments
from torch_fl.routing.errors import ConfigError
from torch_fl.routing.override_expressions import Expression, compile_expression

Function = TypeVar("Function", bound=Callable[..., Any])

_functions: dict[str, Callable[..., Any]] = {}


def override_function(name: str) -> Callable[[Function], Function]:
    """Register a function under a name that descriptors may give (``override: {python: <name>}``).

    The function takes the operator's arguments, tensors on the chip among them, in the schema's order and with the
    schema's names for keywords; arguments that have their defaults may be left out. It returns a tensor, or a tuple of
    them. In-place and ``out=`` forms call it, too, and copy its result over.

    Raises:
        ConfigError: the name is no identifier.
    """
    if not isinstance(name, str) or re.fullmatch(r"[A-Za-z_][\w.]*", name) is None:
        raise ConfigError(f"override_function: {name!r} is no name; letters, digits, '_' and '.' make one")

    def register(function: Function) -> Function:
        _functions[name] = function
        _load.core().clear_cache()
        return function

    return register


def refusal(python: str, expression: str, op: str) -> str:
    """Say why an override cannot be used for an operator; "": it can.

    Raises:
        ExpressionError: the expression is wrong.
    """
    if python and python not in _functions:
        guess = did_you_mean(python, _functions)
        return f"the override {python!r} is registered nowhere{guess}: use @torch_fl.override_function({python!r})"
    if expression:
        compiled(expression, op)
    return ""


def run(python: str, expression: str, op: str, values: Sequence[Any]) -> Any:
    """Run an override on all of the operator's arguments."""
    if expression:
        return compiled(expression, op).evaluate(values)
    args, kwargs = split_arguments(overload(op), values)
    return _functions[python](*args, **kwargs)


@functools.cache
def compiled(expression: str, op: str) -> Expression:
    """Return an expression, compiled once."""
    return compile_expression(expression, [argument.name for argument in overload(op)._schema.arguments])
