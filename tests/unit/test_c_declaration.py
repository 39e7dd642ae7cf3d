# SPDX-License-Identifier: Apache-2.0
"""C declarations: what is understood, and what is refused with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_fl.chips.descriptor.c_declaration import CType, DeclarationError, parse_declaration


@pytest.mark.parametrize(
    "text, result, name, parameters",
    [
        ("void f(void)", "VOID", "f", []),
        ("void f()", "VOID", "f", []),
        ("void(int)", "VOID", "", ["INT32"]),
        ("int f(int n, unsigned, unsigned char c);", "INT32", "f", ["INT32", "UINT32", "UINT8"]),
        ("long f(long long a, unsigned long b, short int c)", "INT64", "f", ["INT64", "UINT64", "INT16"]),
        ("size_t f(int64_t a, uint16_t b, _Bool c, bool)", "UINT64", "f", ["INT64", "UINT16", "BOOL", "BOOL"]),
        ("T cblas_dot(int n, const T* x, T alpha)", "COMPUTE", "cblas_dot", ["INT32", "POINTER", "COMPUTE"]),
        ("void* vendor_malloc(size_t n)", "POINTER", "vendor_malloc", ["UINT64"]),
        ("const char *f(float, double d, void const* const p)", "POINTER", "f", ["FLOAT", "DOUBLE", "POINTER"]),
        ("int f(struct handle* h, enum kind* k, FILE *file)", "INT32", "f", ["POINTER", "POINTER", "POINTER"]),
        ("void f(const int x[3], float **y)", "VOID", "f", ["POINTER", "POINTER"]),
        ("void f(const float * restrict x, vendor_handle_t *h)", "VOID", "f", ["POINTER", "POINTER"]),
    ],
)
def test_declarations(text: str, result: str, name: str, parameters: list[str]) -> None:
    found = parse_declaration(text)
    assert found.result.type.name == result
    assert found.name == name
    assert [parameter.type.name for parameter in found.parameters] == parameters


def test_names_and_pointees() -> None:
    found = parse_declaration("void f(int lda, const T *a, void *b, float **c, double d[])")
    assert [parameter.name for parameter in found.parameters] == ["lda", "a", "b", "c", "d"]
    assert [parameter.pointee for parameter in found.parameters] == ["", "COMPUTE", "VOID", "void", "DOUBLE"]


@pytest.mark.parametrize(
    "text, position, expected",
    [
        ("", 0, "a C type"),
        ("void", 4, "'('"),
        ("void f(int", 10, "')'"),
        ("int printf(const char* format, ...)", 31, "a type"),
        ("void f(struct point p)", 7, "a C type with a known size"),
        ("void f(enum kind k)", 7, "a C type with a known size"),
        ("void f(cblas_order order)", 7, "a C type with a known size"),
        ("void f(unsigned float x)", 22, "')'"),
        ("void f(int a, void)", 14, "a type that has values"),
        ("void f(long long long x)", 7, "a C type with a known size"),
        ("void f(int a) { }", 14, "a C declaration"),
        ("void f(int a) g", 14, "the end"),
        ("void f(int a[", 13, "']'"),
        ("void f(" + ", ".join(["int"] * 129) + ")", 651, "at most 128 parameters"),
    ],
)
def test_what_cannot_be_called_is_refused(text: str, position: int, expected: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_declaration(text)
    assert caught.value.expected == expected
    assert caught.value.position == position


@given(st.lists(st.sampled_from("void int T const * ( ) , ; [ ] struct f ... unsigned long 3 é".split()), max_size=20))
@settings(max_examples=300, deadline=None)
def test_any_text_is_parsed_or_refused(words: list[str]) -> None:
    try:
        found = parse_declaration(" ".join(words))
    except DeclarationError:
        return
    assert all(isinstance(parameter.type, CType) for parameter in found.parameters)
