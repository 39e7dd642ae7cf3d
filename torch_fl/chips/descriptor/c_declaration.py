# SPDX-License-Identifier: Apache-2.0
"""C declarations of the functions that descriptors call: what libffi has to know of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum


class CType(IntEnum):
    """Types of parameters and results; the numbers of csrc/runtime/description.h."""

    VOID = 0
    BOOL = 1
    INT8 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    UINT8 = 6
    UINT16 = 7
    UINT32 = 8
    UINT64 = 9
    FLOAT = 10
    DOUBLE = 11
    POINTER = 12
    COMPUTE = 13  # T


class DeclarationError(ValueError):
    """A declaration that is not understood. ``position`` counts its characters from 0."""

    def __init__(self, position: int, expected: str, found: str, fix: str = ""):
        self.position, self.expected, self.found, self.fix = position, expected, found, fix
        super().__init__(f"expected {expected}, found {found} at character {position + 1}")


@dataclass(frozen=True)
class CParameter:
    """A type, the name that stands beside it, and what a pointer points to: ``float``, ``T``, ``void``."""

    type: CType
    name: str = ""
    pointee: str = ""


@dataclass(frozen=True)
class Declaration:
    """A function's name, if it is written, result and parameters."""

    result: CParameter
    name: str
    parameters: tuple[CParameter, ...]


MAX_PARAMETERS = 128
# On x86-64 Linux; sorted words, without those that change nothing.
_INTEGERS = {
    "char": CType.INT8,
    "short": CType.INT16,
    "int": CType.INT32,
    "long": CType.INT64,
    "long long": CType.INT64,
}
_NAMED = {
    **{"float": CType.FLOAT, "double": CType.DOUBLE, "bool": CType.BOOL, "_Bool": CType.BOOL, "T": CType.COMPUTE},
    **{"size_t": CType.UINT64, "ssize_t": CType.INT64, "ptrdiff_t": CType.INT64, "void": CType.VOID},
    **{"intptr_t": CType.INT64, "uintptr_t": CType.UINT64},
    **{f"int{bits}_t": CType[f"INT{bits}"] for bits in (8, 16, 32, 64)},
    **{f"uint{bits}_t": CType[f"UINT{bits}"] for bits in (8, 16, 32, 64)},
}
# What a typed pointer's tensor must hold.
POINTEE_DTYPES = {
    CType.FLOAT: "float32",
    CType.DOUBLE: "float64",
    CType.BOOL: "bool",
    CType.INT8: "int8",
    CType.INT16: "int16",
    CType.INT32: "int32",
    CType.INT64: "int64",
    CType.UINT8: "uint8",
    CType.UINT16: "uint16",
    CType.UINT32: "uint32",
    CType.UINT64: "uint64",
}
_UNSIGNED = {
    CType.INT8: CType.UINT8,
    CType.INT16: CType.UINT16,
    CType.INT32: CType.UINT32,
    CType.INT64: CType.UINT64,
}
_QUALIFIERS = ("const", "volatile", "restrict", "__restrict", "__restrict__", "register", "extern", "static")
_INTEGER_WORDS = ("char", "short", "int", "long", "signed", "unsigned")
_TOKEN = re.compile(r"\s*(?:(?P<word>[A-Za-z_]\w*)|(?P<mark>\.\.\.|[*(),;\[\]])|(?P<number>\d+))", re.ASCII)


def parse_declaration(text: str) -> Declaration:
    """Return what ``void f(int n, const T* x)`` declares; raise DeclarationError."""
    return _Parser(text).run()


class _Parser:
    def __init__(self, text: str):
        self._tokens: list[tuple[str, int]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                rest = text[at:].lstrip()
                raise DeclarationError(len(text) - len(rest), "a C declaration", repr(rest[0]))
            kind = str(match.lastgroup)
            self._tokens.append((match[kind], match.start(kind)))
            at = match.end()
        self._tokens.append(("", end))
        self._at = 0

    @property
    def _next(self) -> str:
        return self._tokens[self._at][0]

    @property
    def _position(self) -> int:
        return self._tokens[self._at][1]

    def _take(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1][0]

    def _accept(self, text: str) -> bool:
        if self._next != text:
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise DeclarationError(self._position, repr(text), self._found())

    def _found(self) -> str:
        return repr(self._next) if self._next else "the end"

    def run(self) -> Declaration:
        result = self._type()
        name = self._take() if self._is_word() else ""
        self._expect("(")
        parameters = self._parameters()
        self._accept(";")
        if self._next:
            raise DeclarationError(self._position, "the end", self._found())
        return Declaration(result, name, tuple(parameters))

    def _is_word(self) -> bool:
        return bool(re.match(r"[A-Za-z_]", self._next))

    def _parameters(self) -> list[CParameter]:
        if self._accept(")"):
            return []
        if self._next == "void" and self._tokens[self._at + 1][0] == ")":
            self._at += 2
            return []
        parameters = [self._parameter()]
        while self._accept(","):
            parameters.append(self._parameter())
        self._expect(")")
        if len(parameters) > MAX_PARAMETERS:
            raise DeclarationError(self._position, f"at most {MAX_PARAMETERS} parameters", str(len(parameters)))
        return parameters

    def _parameter(self) -> CParameter:
        position = self._position
        if self._next == "...":
            raise DeclarationError(
                position, "a type", "'...'", "Functions with any number of arguments cannot be called"
            )
        kind = self._type()
        name = self._take() if self._is_word() else ""
        if self._accept("["):  # const int x[3] is a pointer
            while not self._accept("]"):
                if not self._next:
                    raise DeclarationError(self._position, "']'", "the end")
                self._take()
            kind = self._pointer_to(kind)
        if kind.type == CType.VOID:
            raise DeclarationError(position, "a type that has values", "'void'")
        return CParameter(kind.type, name, kind.pointee)

    @staticmethod
    def _pointer_to(kind: CParameter) -> CParameter:
        pointee = "void" if kind.type == CType.POINTER else kind.type.name
        return CParameter(CType.POINTER, "", pointee)

    def _type(self) -> CParameter:
        position, words = self._position, list[str]()
        while self._is_word():
            word = self._next
            if word in ("struct", "union", "enum"):
                words.append(self._tagged(position))
            elif word in _QUALIFIERS or (word in _INTEGER_WORDS and all(w in _INTEGER_WORDS for w in words)):
                self._take()
                words += [] if word in _QUALIFIERS else [word]
            elif not words:
                words.append(self._take())
            else:
                break  # the parameter's name
        kind = self._base(words, position)
        while self._accept("*"):
            kind = self._pointer_to(kind) if kind is not None else CParameter(CType.POINTER, "", "void")
            while self._next in _QUALIFIERS:
                self._take()
        if kind is None:
            fix = "Write int for an enum; structs by value cannot be passed, pointers to them can"
            raise DeclarationError(position, "a C type with a known size", repr(" ".join(words)), fix)
        return kind

    def _tagged(self, position: int) -> str:
        word = self._take()
        if not self._is_word():
            raise DeclarationError(position, f"a name behind {word}", self._found())
        return f"{word} {self._take()}"

    def _base(self, words: list[str], position: int) -> CParameter | None:
        """Return the type of the words; None for one that only a pointer may point to."""
        if not words:
            raise DeclarationError(position, "a C type", self._found())
        if len(words) == 1 and words[0] in _NAMED:
            return CParameter(_NAMED[words[0]])
        if not all(word in _INTEGER_WORDS for word in words):
            return None
        signs = [word for word in words if word in ("signed", "unsigned")]
        sizes = [word for word in words if word not in signs]
        if len(sizes) > 1 and "int" in sizes:
            sizes.remove("int")
        name = " ".join(sizes) or "int"
        if len(signs) > 1 or name not in _INTEGERS:
            return None
        kind = _INTEGERS[name]
        return CParameter(_UNSIGNED[kind] if signs == ["unsigned"] else kind)
