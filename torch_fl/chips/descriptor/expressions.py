# SPDX-License-Identifier: Apache-2.0
"""The expressions of descriptors: from text to a postfix program that the core evaluates on a call.

The language is total and runs nothing: docs/design/descriptors.md lists its forms. Names are those of the operator's
schema, and are resolved here, so that a mistake has a place in the text and a call costs no look-up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch_fl._suggest import nearest
from torch_fl.chips.descriptor.codes import DTYPE_CODES, TRACED, Code, Program, Step

MAX_LENGTH = 1000
MAX_DEPTH = 32  # of parentheses, and of operators that stand before what they are of
MAX_ITEMS = 256  # of `in (...)`, min and max

_TENSOR_FACTS = {
    "ndim": Code.NDIM,
    "numel": Code.NUMEL,
    "dtype": Code.DTYPE,
    "itemsize": Code.ITEMSIZE,
    "data": Code.DATA,
    "contiguous": Code.CONTIGUOUS,
    "channels_last": Code.CHANNELS_LAST,
}
_TENSOR_METHODS = {"size": (Code.SIZE, Code.SIZE_AT), "stride": (Code.STRIDE, Code.STRIDE_AT)}
_OF_CALL = {"compute_dtype": Code.COMPUTE_DTYPE, "device": Code.DEVICE_INDEX, "stream": Code.STREAM}
_COMPARISONS = {
    "==": Code.EQUAL,
    "!=": Code.NOT_EQUAL,
    "<": Code.LESS,
    "<=": Code.LESS_EQUAL,
    ">": Code.GREATER,
    ">=": Code.GREATER_EQUAL,
}
_SUMS = {"+": Code.ADD, "-": Code.SUBTRACT}
_PRODUCTS = {"*": Code.MULTIPLY, "//": Code.FLOOR_DIVIDE, "%": Code.MODULO, "/": Code.DIVIDE}
_FUNCTIONS = {"min": Code.MIN, "max": Code.MAX, "abs": Code.ABS}
_WORDS = ("and", "or", "not", "in", "if", "else", "true", "false", "len", *_FUNCTIONS)


class ExpressionError(ValueError):
    """An expression that cannot be compiled. ``position`` counts its characters from 0."""

    def __init__(self, position: int, expected: str, found: str = "", suggestion: str = "", fix: str = ""):
        self.position, self.expected, self.found = position, expected, found
        self.suggestion, self.fix = suggestion, fix
        text = f"expected {expected}" + (f", found {found}" if found else "") + f" at character {position + 1}"
        super().__init__(text + (f"; did you mean {suggestion!r}?" if suggestion else ""))


@dataclass(frozen=True)
class Parameter:
    """One argument that expressions may name."""

    name: str
    index: int
    kind: str  # tensor, tensors, value, values, address, opaque
    real: bool = False  # a Scalar or floating-point number: its value is no part of a call's signature
    optional: bool = False
    of_type: bool = False  # an element type


@dataclass(frozen=True)
class Scope:
    """The names that an expression may use."""

    parameters: Mapping[str, Parameter]
    outputs: int = 0
    what: str = "the call"  # for messages

    @property
    def tensors(self) -> list[Parameter]:
        """The tensor arguments and lists of them, in order; aliases left out."""
        return [p for n, p in self.parameters.items() if n == p.name and p.kind in ("tensor", "tensors")]

    @classmethod
    def of_schema(cls, schema: Any, operator: str) -> Scope:
        """Return the names of an operator's functional (or only mutating) overload."""
        parameters = {
            argument.name: _parameter(argument.name, index, str(argument.real_type))
            for index, argument in enumerate(schema.arguments)
        }
        tensors = [parameter for parameter in parameters.values() if parameter.kind == "tensor"]
        for letter, tensor in zip("abcd", tensors, strict=False):
            parameters.setdefault(letter, tensor)
        written = sum(1 for argument in schema.arguments if argument.is_write)
        return cls(parameters, written or len(schema.returns), operator)

    @classmethod
    def of_function(cls, values: Iterable[str], addresses: Iterable[str], what: str) -> Scope:
        """Return the names of a runtime function, in the order in which the core passes them."""
        names = [*((name, "value") for name in values), *((name, "address") for name in addresses)]
        return cls({name: Parameter(name, i, kind) for i, (name, kind) in enumerate(names)}, 0, what)


def _parameter(name: str, index: int, type_name: str) -> Parameter:
    optional = type_name.startswith("Optional[")
    inner = type_name[len("Optional[") : -1] if optional else type_name
    if inner in ("List[Tensor]", "List[Optional[Tensor]]"):
        kind = "tensors"
    elif inner == "Tensor":
        kind = "tensor"
    elif inner.startswith("List["):
        kind = "values"
    elif inner in ("int", "float", "bool", "number", "str", "SymInt", "ScalarType"):
        kind = "value"
    else:
        kind = "opaque"
    real = inner.removeprefix("List[").rstrip("]") in ("number", "float", "complex")
    return Parameter(name, index, kind, real, optional, inner == "ScalarType")


@dataclass(frozen=True)
class Compiled:
    """A program, and what it looks at."""

    program: Program
    reads_values: bool = False  # of Scalars or floating-point numbers, which no signature holds
    data: frozenset[int] = field(default_factory=frozenset)  # indices of the tensors whose address it takes
    left: Program | None = None  # of a comparison, what stands left


def compile_expression(text: str, scope: Scope) -> Compiled:
    """Return the program of an expression; raise ExpressionError."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(MAX_LENGTH, f"at most {MAX_LENGTH} characters", str(len(text)))
    return _Parser(text, scope).run()


def compile_value(value: bool | int | float | str, scope: Scope) -> Compiled:
    """Return the program of what YAML gives: a number or boolean is itself, a text is an expression."""
    return compile_expression(value, scope) if isinstance(value, str) else Compiled([constant(value)])


def constant(value: bool | int | float | str) -> Step:
    """Return the step that pushes a constant."""
    if isinstance(value, bool):
        return (Code.BOOLEAN, 0, int(value))
    if isinstance(value, str):
        return (Code.STRING, 0, value)
    if isinstance(value, float):
        return (Code.REAL, 0, value)
    if -(2**63) <= value < 2**63:
        return (Code.INTEGER, 0, value)
    raise ExpressionError(0, "an integer of 64 bits", str(value))


class _Token(NamedTuple):
    kind: str  # number, text, name, operator, end
    text: str
    position: int


_TOKEN = re.compile(
    r"""\s*(?: (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
             | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
             | (?P<text>"[^"\\\n]*"|'[^'\\\n]*')
             | (?P<operator>//|==|!=|<=|>=|[-+*/%<>()\[\],.]) )""",
    re.VERBOSE,
)


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            start = at + len(text[at:]) - len(text[at:].lstrip())
            raise ExpressionError(start, "a name, a number, a text in quotes or an operator", repr(text[start]))
        kind = str(match.lastgroup)
        tokens.append(_Token(kind, match[kind], match.start(kind)))
        at = match.end()
    return [*tokens, _Token("end", "", end)]


class _Parser:
    """Recursive descent; every method returns the program of what it read."""

    def __init__(self, text: str, scope: Scope):
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self._scope = scope
        self._reads_values = False
        self._data: set[int] = set()
        self._compared: tuple[int, int, Program | None] = (-1, -1, None)  # first token, end, left side: the latest

    def run(self) -> Compiled:
        program = self._conditional()
        if self._next.kind != "end":
            raise self._unexpected("an operator or the end")
        start, end, left = self._compared
        whole = start == 0 and end == self._at
        return Compiled(program, self._reads_values, frozenset(self._data), left if whole else None)

    # ---- Tokens ----
    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _is(self, *texts: str) -> bool:
        return self._next.kind in ("operator", "name") and self._next.text in texts

    def _accept(self, text: str) -> bool:
        if not self._is(text):
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._unexpected(repr(text))

    def _unexpected(self, expected: str) -> ExpressionError:
        found = "the end" if self._next.kind == "end" else repr(self._next.text)
        return ExpressionError(self._next.position, expected, found)

    def _deeper(self, parse: Callable[[], Program]) -> Program:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(self._next.position, f"at most {MAX_DEPTH} levels", "a deeper expression")
        program = parse()
        self._depth -= 1
        return program

    # ---- Operators, loosest first ----
    def _conditional(self) -> Program:
        program = self._or()
        if not self._accept("if"):
            return program
        condition = self._or()
        self._expect("else")
        other = self._deeper(self._conditional)
        return [
            *condition,
            (Code.JUMP_IF_FALSE, 0, len(program) + 1),
            *program,
            (Code.JUMP, 0, len(other)),
            *other,
        ]

    def _or(self) -> Program:
        return self._short_circuit("or", Code.JUMP_IF_TRUE_KEEP, self._and)

    def _and(self) -> Program:
        return self._short_circuit("and", Code.JUMP_IF_FALSE_KEEP, self._not)

    def _short_circuit(self, word: str, jump: Code, operand: Callable[[], Program]) -> Program:
        operands = [operand()]
        while self._accept(word):
            operands.append(operand())
        program = operands.pop()
        while operands:
            program = [*operands.pop(), (jump, 0, len(program)), *program]
        return program

    def _not(self) -> Program:
        if self._accept("not"):
            return [*self._deeper(self._not), (Code.NOT, 0, 0)]
        return self._comparison()

    def _comparison(self) -> Program:
        start = self._at
        program = left = self._sum()
        inverted = self._is("not") and self._tokens[self._at + 1].text == "in"
        if inverted:
            self._take()
        if self._accept("in"):
            items, count = self._items()
            program = [*program, *items, (Code.IN, 0, count)]
            program = [*program, (Code.NOT, 0, 0)] if inverted else program
        elif self._is(*_COMPARISONS):
            code = _COMPARISONS[self._take().text]
            program = [*program, *self._sum(), (code, 0, 0)]
        if self._is("in", *_COMPARISONS):
            raise ExpressionError(
                self._next.position, "one comparison", "a second one", fix="Write a < b and b < c for a < b < c"
            )
        if program is not left:
            self._compared = (start, self._at, left)
        return program

    def _items(self) -> tuple[Program, int]:
        """Read the list behind ``in``."""
        close = ")" if self._is("(") else "]"
        if not self._is("(", "["):
            raise self._unexpected("a list in parentheses, such as (1, 2)")
        self._take()
        return self._until(close)

    def _until(self, close: str) -> tuple[Program, int]:
        program, count = list[Step](), 0
        while not (count and self._is(close)):
            program += self._deeper(self._conditional)
            count += 1
            if not self._accept(","):
                break
        if count > MAX_ITEMS:
            raise ExpressionError(self._next.position, f"at most {MAX_ITEMS} values", str(count))
        self._expect(close)
        return program, count

    def _sum(self) -> Program:
        return self._left_to_right(_SUMS, self._product)

    def _product(self) -> Program:
        return self._left_to_right(_PRODUCTS, self._unary)

    def _left_to_right(self, codes: Mapping[str, Code], operand: Callable[[], Program]) -> Program:
        program = operand()
        while self._next.kind == "operator" and self._is(*codes):
            code = codes[self._take().text]
            program = [*program, *operand(), (code, 0, 0)]
        return program

    def _unary(self) -> Program:
        if self._accept("-"):
            return [*self._deeper(self._unary), (Code.NEGATE, 0, 0)]
        return self._primary()

    # ---- What stands alone ----
    def _primary(self) -> Program:
        token = self._take()
        if token.kind == "number":
            return [self._number(token)]
        if token.kind == "text":
            return [constant(token.text[1:-1])]
        if token.kind == "name" and token.text not in ("and", "or", "not", "in", "if", "else"):
            return self._name(token)
        if token.text == "(":
            program = self._deeper(self._conditional)
            self._expect(")")
            return program
        self._at -= 1
        raise self._unexpected("a value")

    def _number(self, token: _Token) -> Step:
        whole = token.text.isdigit()
        value = int(token.text) if whole else float(token.text)
        if (whole and value >= 2**63) or value == float("inf"):
            raise ExpressionError(token.position, "a number of 64 bits", token.text)
        return constant(value)

    def _name(self, token: _Token) -> Program:
        name = token.text
        if name in ("true", "false"):
            return [constant(name == "true")]
        if name == "len":
            return self._length()
        if name in _FUNCTIONS:
            return self._function(token)
        parameter = self._scope.parameters.get(name)
        if name in _OF_CALL and self._scope.outputs and (parameter is None or parameter.kind == "opaque"):
            return [(_OF_CALL[name], 0, 0)]
        if parameter is not None:
            return self._argument(token, parameter)
        if name in DTYPE_CODES:
            return [(Code.TYPE, 0, DTYPE_CODES[name])]
        if re.fullmatch(r"out\d?", name) and int(name[3:] or 0) < self._scope.outputs:
            return self._tensor(token, -1 - int(name[3:] or 0))
        raise self._unknown(token)

    def _unknown(self, token: _Token) -> ExpressionError:
        own = [*self._scope.parameters, *(["out"] if self._scope.outputs else ())]
        suggestion = nearest(token.text, [*own, *_WORDS, *_OF_CALL, *DTYPE_CODES])
        return ExpressionError(
            token.position, f"a name of {self._scope.what}: {', '.join(own)}", repr(token.text), suggestion
        )

    def _length(self) -> Program:
        self._expect("(")
        token = self._take()
        parameter = self._scope.parameters.get(token.text)
        if parameter is None or parameter.kind not in ("values", "tensors"):
            raise ExpressionError(token.position, "the name of a list", repr(token.text))
        self._expect(")")
        return [(Code.LENGTH, parameter.index, 0)]

    def _function(self, token: _Token) -> Program:
        self._expect("(")
        program, count = self._until(")")
        if token.text == "abs":
            if count != 1:
                raise ExpressionError(token.position, "one value in abs()", str(count))
            return [*program, (Code.ABS, 0, 0)]
        return [*program, (_FUNCTIONS[token.text], 0, count)]

    def _argument(self, token: _Token, parameter: Parameter) -> Program:
        if self._is(".") and self._tokens[self._at + 1].text == "present":
            self._at += 2
            return [(Code.PRESENT, parameter.index, 0)]
        if parameter.kind == "tensor":
            return self._tensor(token, parameter.index)
        if parameter.kind in ("values", "tensors"):
            return self._element(token, parameter)
        if parameter.kind == "opaque":
            raise ExpressionError(token.position, "a tensor, number, boolean, text or list", f"{token.text!r}")
        if self._is(".", "["):
            raise ExpressionError(self._next.position, "an operator", f"{token.text!r} is one value, no tensor or list")
        self._reads_values |= parameter.real
        return [(Code.ADDRESS if parameter.kind == "address" else Code.VALUE, parameter.index, 0)]

    def _element(self, token: _Token, parameter: Parameter) -> Program:
        if not self._accept("["):
            usage = f"{token.text}[0]"
            usage += f" or {token.text}[0].size(0)" if parameter.kind == "tensors" else f" or len({token.text})"
            raise ExpressionError(token.position, usage, f"the list {token.text!r} as a whole")
        index = self._deeper(self._conditional)
        self._expect("]")
        if parameter.kind == "tensors":
            return self._tensor(token, TRACED, [*index, (Code.TENSOR, parameter.index, 0)])
        self._reads_values |= parameter.real
        return [*index, (Code.ELEMENT, parameter.index, 0)]

    def _tensor(self, token: _Token, index: int, select: Program | None = None) -> Program:
        """Read ``.size(0)`` and the like. ``select`` chooses the tensor from its list, after the dimension is known."""
        facts = [*_TENSOR_METHODS, *_TENSOR_FACTS, "present"]
        if not self._accept("."):
            raise ExpressionError(
                token.position, f"{token.text}.size(0), .dtype or the like", f"the tensor {token.text!r} as a whole"
            )
        fact = self._take()
        if fact.text in _TENSOR_METHODS:
            return self._method(fact.text, index, select or [])
        if fact.text in _TENSOR_FACTS:
            if fact.text == "data":
                self._data.add(index)
            return [*(select or []), (_TENSOR_FACTS[fact.text], index, 0)]
        if fact.text == "present" and select is None:
            return [(Code.PRESENT, index, 0)]
        suggestion = nearest(fact.text, facts) if fact.kind == "name" else ""
        raise ExpressionError(fact.position, f"one of {', '.join(facts)}", repr(fact.text), suggestion)

    def _method(self, name: str, index: int, select: Program) -> Program:
        self._expect("(")
        dim = self._deeper(self._conditional)
        self._expect(")")
        general, fixed = _TENSOR_METHODS[name]
        if len(dim) == 1 and dim[0][0] == Code.INTEGER:
            return [*select, (fixed, index, dim[0][2])]
        if len(dim) == 2 and dim[0][0] == Code.INTEGER and dim[1][0] == Code.NEGATE:
            return [*select, (fixed, index, -int(dim[0][2]))]
        return [*dim, *select, (general, index, 0)]
