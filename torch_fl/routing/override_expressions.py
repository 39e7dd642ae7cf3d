# SPDX-License-Identifier: Apache-2.0
"""Expressions of operators, which descriptors give as overrides: ``self * aten::sigmoid(1.702 * self)``.

========================================  ==============================================================
form                                      value
========================================  ==============================================================
``1``, ``1.702``, ``1e-3``                numbers
``true``, ``false``, ``none``, ``"tanh"``  constants
``self``, ``weight``, ...                 an argument by its name in the operator's schema
``a + b``, ``-``, ``*``, ``/``, ``-a``    of tensors and numbers, as PyTorch does it
``aten::sigmoid(x)``                      a functional operator, by its name or ``aten::<name>.<overload>``;
                                          arguments by position, then by name
``[1, 2]``                                a list, as an argument
``(...)``                                 grouping
========================================  ==============================================================

There is nothing else: no attribute, no index, no loop and no Python.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from torch_fl._suggest import did_you_mean
from torch_fl.routing.errors import ConfigError

MAX_LENGTH = 1000
MAX_DEPTH = 32

_Node = Callable[[Mapping[str, Any]], Any]
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<operator>[A-Za-z_]\w*::\w+(?:\.\w+)?)
    | (?P<name>[A-Za-z_]\w*)
    | (?P<string>"[^"]*"|'[^']*')
    | (?P<sign>[-+*/(),=\[\]])
    )""",
    re.VERBOSE,
)
_CONSTANTS = {"true": True, "false": False, "none": None, "True": True, "False": False, "None": None}
_SUMS: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {"*": operator.mul, "/": operator.truediv}


class ExpressionError(ConfigError):
    """An expression that means nothing. Shows where."""


@dataclass(frozen=True)
class Expression:
    """A compiled expression."""

    text: str
    arguments: tuple[str, ...]
    root: _Node

    def evaluate(self, values: Sequence[Any]) -> Any:
        """Return its value for an operator's arguments, in the schema's order."""
        return self.root(dict(zip(self.arguments, values, strict=True)))


def compile_expression(text: str, arguments: Sequence[str]) -> Expression:
    """Compile an expression over an operator's arguments.

    Raises:
        ExpressionError: it is none; the message has a line that points at the place.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"an override's expression may have {MAX_LENGTH} characters, found {len(text)}")
    return Expression(text, tuple(arguments), _Parser(text, tuple(arguments)).parse())


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


class _Parser:
    """Recursive descent: sums of products of signed atoms."""

    def __init__(self, text: str, arguments: tuple[str, ...]) -> None:
        self.text = text
        self.arguments = arguments
        self.tokens = self._split()
        self.next = 0
        self.depth = 0

    def parse(self) -> _Node:
        node = self._sum()
        if self._token.kind != "end":
            self._fail(f"unexpected {self._token.text!r}")
        return node

    def _fail(self, what: str, at: int | None = None) -> NoReturn:
        at = self._token.at if at is None else at
        raise ExpressionError(f"{what}, in an override's expression:\n  {self.text}\n  {' ' * at}^")

    def _split(self) -> list[_Token]:
        tokens, at, end = [], 0, len(self.text.rstrip())
        while at < end:
            match = _TOKEN.match(self.text, at)
            if match is None:
                at += len(self.text[at:]) - len(self.text[at:].lstrip())
                self._fail(f"unexpected {self.text[at]!r}", at)
            assert match.lastgroup is not None
            tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            at = match.end()
        return [*tokens, _Token("end", "the end", end)]

    @property
    def _token(self) -> _Token:
        return self.tokens[self.next]

    def _take(self, *texts: str) -> _Token | None:
        token = self._token
        if token.kind != "sign" or token.text not in texts:
            return None
        self.next += 1
        return token

    def _expect(self, text: str) -> None:
        if self._take(text) is None:
            self._fail(f"expected {text!r}, found {self._token.text!r}")

    def _sum(self) -> _Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self._fail(f"more than {MAX_DEPTH} levels")
        node = self._chain(self._product, _SUMS)
        self.depth -= 1
        return node

    def _product(self) -> _Node:
        return self._chain(self._signed, _PRODUCTS)

    def _chain(self, part: Callable[[], _Node], functions: Mapping[str, Callable[[Any, Any], Any]]) -> _Node:
        node = part()
        while (sign := self._take(*functions)) is not None:
            node = _binary(functions[sign.text], node, part())
        return node

    def _signed(self) -> _Node:
        negative = False
        while (sign := self._take("-", "+")) is not None:
            negative ^= sign.text == "-"
        node = self._atom()
        return (lambda scope: -node(scope)) if negative else node

    def _atom(self) -> _Node:
        token = self._token
        if self._take("(") is not None:
            node = self._sum()
            self._expect(")")
            return node
        if self._take("[") is not None:
            return self._list()
        if token.kind in ("sign", "end"):
            self._fail(f"expected a value, found {token.text!r}")
        self.next += 1
        if token.kind == "operator":
            return self._call(token)
        if token.kind == "name":
            return self._name(token)
        value = token.text[1:-1] if token.kind == "string" else _number(token.text)
        return lambda scope: value

    def _name(self, token: _Token) -> _Node:
        name = token.text
        if name in self.arguments:
            return lambda scope: scope[name]
        if name in _CONSTANTS:
            return lambda scope: _CONSTANTS[name]
        guess = did_you_mean(name, self.arguments)
        if self._token.text == "(":
            self._fail(f"no function {name!r}; an operator is written aten::{name}(...)", token.at)
        self._fail(f"no argument {name!r}{guess} (arguments: {', '.join(self.arguments)})", token.at)

    def _list(self) -> _Node:
        items: list[_Node] = []
        while self._take("]") is None:
            if items:
                self._expect(",")
            items.append(self._sum())
        return lambda scope: [item(scope) for item in items]

    def _call(self, token: _Token) -> _Node:
        function, names = self._operator(token)
        self._expect("(")
        args: list[_Node] = []
        kwargs: dict[str, _Node] = {}
        while self._take(")") is None:
            if args or kwargs:
                self._expect(",")
            self._argument(args, kwargs, names)
        return lambda scope: function(
            *(arg(scope) for arg in args), **{name: value(scope) for name, value in kwargs.items()}
        )

    def _argument(self, args: list[_Node], kwargs: dict[str, _Node], names: Sequence[str]) -> None:
        token, after = self._token, self.tokens[min(self.next + 1, len(self.tokens) - 1)]
        if token.kind == "name" and after.text == "=" and after.kind == "sign":
            self.next += 2
            if token.text not in names:
                guess = did_you_mean(token.text, names)
                self._fail(f"the operator has no argument {token.text!r}{guess}", token.at)
            if token.text in kwargs:
                self._fail(f"argument {token.text!r} is given twice", token.at)
            kwargs[token.text] = self._sum()
        elif kwargs:
            self._fail("arguments by position come before those by name")
        else:
            args.append(self._sum())

    def _operator(self, token: _Token) -> tuple[Callable[..., Any], list[str]]:
        """Return a functional operator that gives no view, and its arguments: an expression changes nothing."""
        import torch

        namespace, _, name = token.text.partition("::")
        base, _, which = name.partition(".")
        if namespace != "aten":
            self._fail(f"operators are of the namespace aten, found {namespace!r}", token.at)
        packet = getattr(torch.ops.aten, base, None) if base.isidentifier() else None
        if not isinstance(packet, torch._ops.OpOverloadPacket):
            self._fail(f"no operator {token.text!r}", token.at)
        known = list(packet.overloads())  # type: ignore[no-untyped-call]
        if which and which not in known:
            self._fail(f"operator aten::{base} has no overload {which!r}", token.at)
        overloads = [getattr(packet, item) for item in ([which] if which else known)]
        functional = [item for item in overloads if _is_functional(item)]
        if not functional:
            self._fail(f"{token.text} writes to its arguments or returns a view of one", token.at)
        names = dict.fromkeys(argument.name for item in functional for argument in item._schema.arguments)
        return (overloads[0] if which else packet), list(names)


def _is_functional(op: Any) -> bool:
    schema = op._schema
    return not schema.is_mutable and not any(item.alias_info is not None for item in schema.returns)


def _number(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)


def _binary(function: Callable[[Any, Any], Any], left: _Node, right: _Node) -> _Node:
    return lambda scope: function(left(scope), right(scope))
