# SPDX-License-Identifier: Apache-2.0
"""The expressions of descriptors: what is understood, what is refused and where, and what the core makes of them."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import torch_fl._C as core
from torch_fl.chips.descriptor.codes import DTYPE_CODES, TRACED, Code, KernelFlag
from torch_fl.chips.descriptor.expressions import MAX_LENGTH, ExpressionError, Scope, compile_expression

ROOT = Path(__file__).resolve().parents[2]


def scope(op: str = "aten::convolution", overload: str = "") -> Scope:
    return Scope.of_schema(torch._C._get_schema(op, overload), op)


def tensor(*sizes: int, dtype: str = "float32", address: int = 4096, flags: int = 0) -> dict[str, Any]:
    strides = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]
    return {
        "sizes": list(sizes),
        "strides": strides,
        "dtype": DTYPE_CODES[dtype],
        "address": address,
        "flags": flags,
    }


CONVOLUTION = [tensor(2, 8, 32, 32), tensor(16, 8, 3, 3), None, [1, 2], [1, 1], [1, 1], False, [0, 0], 1]
OUTS = [tensor(2, 16, 32, 16)]


def value(text: str, args: list[Any] | None = None, outs: list[Any] | None = None, where: Scope | None = None) -> Any:
    compiled = compile_expression(text, where or scope())
    about = {"compute_dtype": DTYPE_CODES["float16"], "device": 3}
    return core.evaluate_program(
        compiled.program, CONVOLUTION if args is None else args, OUTS if outs is None else outs, about
    )


# ---- The numbers that Python and C++ share --------------------------------------------------------------------------
def enumerators(file: str, pattern: str) -> dict[str, int]:
    found = re.findall(pattern, (ROOT / file).read_text())
    return {name: int(number) for name, number in found}


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def test_codes_are_those_of_the_core() -> None:
    text = (ROOT / "csrc/runtime/expression.h").read_text()
    body = text[text.index("enum Code") : text.index("};")]
    found = {snake(name): int(number) for name, number in re.findall(r"\bk(\w+) = (\d+),", body)}
    names = {"TYPE": "TYPE"}
    assert {names.get(name, name): number for name, number in found.items()} == {c.name: c.value for c in Code}
    assert re.search(r"kTraced = INT32_MIN", text)
    assert TRACED == -(2**31)


def test_types_and_flags_are_those_of_the_abi() -> None:
    types = enumerators("include/torch_fl/fl_plugin.h", r"\bFL_([A-Z0-9_]+) = (\d+),?(?: /\* two float16 \*/)?")
    assert {name: types[name.upper()] for name in DTYPE_CODES} == DTYPE_CODES
    flags = re.findall(r"FL_KERNEL_(\w+) = 1u << (\d+)", (ROOT / "include/torch_fl/fl_plugin.h").read_text())
    shifts = {name: 1 << int(shift) for name, shift in flags}
    assert all(shifts[flag.name] == flag.value for flag in KernelFlag if flag.name)


def test_c_types_are_those_of_the_core() -> None:
    from torch_fl.chips.descriptor.c_declaration import CType

    text = (ROOT / "csrc/runtime/description.h").read_text()
    body = text[text.index("enum class CType") :]
    names = re.findall(r"^  (\w+),$", body[: body.index("};")], re.MULTILINE)
    assert [name.upper() for name in names] == [kind.name for kind in CType]


# ---- Values ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text, expected",
    [
        ("12", 12),
        ("-1.5", -1.5),
        (".5e1", 5.0),
        ("true", True),
        ("input.size(1)", 8),
        ("input.size(-1)", 32),
        ("input.size(1 + 1)", 32),
        ("weight.stride(0)", 72),
        ("input.ndim", 4),
        ("a.numel + b.numel", 2 * 8 * 32 * 32 + 16 * 8 * 9),
        ("input.itemsize", 4),
        ("input.dtype == float32", True),
        ("input.dtype in (float16, bfloat16)", False),
        ("compute_dtype == float16", True),
        ("device", 3),
        ("out.size(1)", 16),
        ("out.data", ("address", 4096)),
        ("out.data + 2 * out.itemsize", ("address", 4104)),
        ("stride[1]", 2),
        ("stride[-2]", 1),
        ("len(stride)", 2),
        ("groups", 1),
        ("transposed", False),
        ("not transposed", True),
        ("bias.present", False),
        ("bias.present or groups == 1", True),
        ("bias.size(0) if bias.present else 0", 0),
        ("stride[0] not in (2, 4)", True),
        ("stride[0] in [1]", True),
        ("1 + 2 * 3 - -4", 11),
        ("(1 + 2) * 3", 9),
        ("7 // 2 * 2 + 7 % 2", 7),
        ("7 / 2", 3.5),
        ("min(3, 1, 2) + max(3, 1.5) + abs(-4)", 8),
        ("1 if false else 2 if false else 3", 3),
        ("0 or 5", 5),
        ("0 and 1 // 0", 0),
    ],
)
def test_values(text: str, expected: Any) -> None:
    found = value(text)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        "input.size(4)",
        "stride[2]",
        "1 // 0",
        "1 / 0",
        "bias.size(0)",
        "9223372036854775807 + 1",
        "-9223372036854775807 - 2",
        "input.dtype + 1",
        "input.dtype == 1",
        "1 if bias.size(0) else 2",
        "bias.size(0) == 1 or true",
        '"a" < "b"',
        "input.data * 2",
    ],
)
def test_what_has_no_value_is_undefined(text: str) -> None:
    assert value(text) is None


def test_texts_lists_of_tensors_and_scalars() -> None:
    gelu = scope("aten::gelu")
    assert value('approximate == "tanh"', [tensor(1), "tanh"], where=gelu) is True
    assert value("approximate != 'none'", [tensor(1), "none"], where=gelu) is False
    cat = scope("aten::cat")
    args = [[tensor(2, 3), tensor(4, 3, dtype="int64")], 0]
    assert value("len(tensors)", args, where=cat) == 2
    assert value("tensors[1].size(tensors[0].ndim - 2)", args, where=cat) == 4
    assert value("tensors[1].dtype == int64", args, where=cat) is True
    assert value("tensors[2].ndim", args, where=cat) is None
    add = scope("aten::add", "Tensor")
    assert value("alpha * 2", [tensor(1), tensor(1), 1.5], where=add) == 3.0
    assert compile_expression("alpha == 1", add).reads_values
    assert not compile_expression("self.size(0) == 1", add).reads_values


def test_types_as_arguments() -> None:
    total = scope("aten::sum", "dim_IntList")
    args = [tensor(2), [0], False, {"type": DTYPE_CODES["float64"]}]
    assert value("dtype == float64", args, where=total) is True
    assert value("dtype.present", [*args[:3], None], where=total) is False


# ---- Mistakes --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text, position, expected",
    [
        ("", 0, "a value"),
        ("1 +", 3, "a value"),
        ("(1", 2, "')'"),
        ("1 2", 2, "an operator or the end"),
        ("inputs.size(0)", 0, "a name of aten::convolution"),
        ("input", 0, "input.size(0), .dtype or the like"),
        ("input.shape", 6, "one of size, stride"),
        ("stride", 0, "stride[0] or len(stride)"),
        ("groups.size(0)", 6, "an operator"),
        ("len(input)", 4, "the name of a list"),
        ("1 < 2 < 3", 6, "one comparison"),
        ("1 in 2", 5, "a list in parentheses"),
        ("a = b", 2, "a name, a number"),
        ("__import__('os')", 0, "a name of"),
        ("input.__class__", 6, "one of"),
        ("99999999999999999999", 0, "a number of 64 bits"),
        ("1e999", 0, "a number of 64 bits"),
        ("out1.size(0)", 0, "a name of"),
        ("'a\\n'", 0, "a name, a number"),
        ("(" * 40 + "1" + ")" * 40, 33, "at most 32 levels"),
        ("-" * 100 + "1", 33, "at most 32 levels"),
        ("abs(1, 2)", 0, "one value in abs()"),
        ("1" * (MAX_LENGTH + 1), MAX_LENGTH, "at most 1000 characters"),
        ("lambda: 1", 6, "a name, a number"),
    ],
)
def test_mistakes_have_a_place(text: str, position: int, expected: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text, scope())
    assert caught.value.position == position
    assert caught.value.expected.startswith(expected)


def test_the_nearest_name_is_suggested() -> None:
    with pytest.raises(ExpressionError, match="did you mean 'weight'"):
        compile_expression("wieght.size(0)", scope())


WORDS = "a b.size( ) [ 0 ] + - not in if else == , 'x' .5 // out".split()


@given(st.text(max_size=60) | st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join))
@settings(max_examples=400, deadline=None)
def test_any_text_is_compiled_or_refused(text: str) -> None:
    try:
        compiled = compile_expression(text, scope())
    except ExpressionError:
        return
    core.evaluate_program(compiled.program, CONVOLUTION, OUTS, {})


@pytest.mark.parametrize(
    "program",
    [
        [],
        [(64, 0, 0)],
        [(9999, 0, 0)],
        [(0, 0, 1), (96, 0, 5)],
        [(3, 0, 77)],
        [(0, 0, "text")],
        [(1, 0, 5)],
        [(0, 0)],
        [(0, 0, 1), (79, 0, 2)],
        [(0, 2**40, 1)],
        [(0, 0, 2**70)],
        ["text"],
        [None],
    ],
)
def test_malformed_programs_are_refused(program: list[Any]) -> None:
    with pytest.raises((ValueError, RuntimeError, TypeError)):
        core.evaluate_program(program, [], [], {})


# ---- The core against a reference -----------------------------------------------------------------------------------
class Undefined(Exception):
    pass


SMALLEST, LARGEST = -(2**63), 2**63 - 1


def bounded(number: int) -> int:
    if not SMALLEST <= number <= LARGEST:
        raise Undefined
    return number


def is_whole(v: Any) -> bool:
    return isinstance(v, int)


def arithmetic(op: str, a: Any, b: Any) -> Any:
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        raise Undefined
    if op in ("//", "%", "/") and b == 0:
        raise Undefined
    if op == "/":
        return float(a) / float(b)
    if is_whole(a) and is_whole(b):
        a, b = int(a), int(b)
        return bounded({"+": a + b, "-": a - b, "*": a * b}[op] if op in "+-*" else a // b if op == "//" else a % b)
    a, b = float(a), float(b)
    if op in ("//", "%") and not (math.isfinite(a) and math.isfinite(b)):
        raise Undefined  # not compared: infinities divide in many ways
    return {"+": a + b, "-": a - b, "*": a * b}[op] if op in "+-*" else a // b if op == "//" else a % b


def compare(op: str, a: Any, b: Any) -> bool:
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    if not numbers and (op not in ("==", "!=") or type(a) is not type(b)):
        raise Undefined
    return {
        "==": lambda: a == b,
        "!=": lambda: a != b,
        "<": lambda: a < b,
        "<=": lambda: a <= b,
        ">": lambda: a > b,
        ">=": lambda: a >= b,
    }[op]()


def truth(v: Any) -> bool:
    if not isinstance(v, int | float):
        raise Undefined
    return bool(v)


def reference(node: tuple[Any, ...]) -> Any:
    """What a tree is worth, by Python's own operators."""
    kind, *rest = node
    if kind == "leaf":
        if rest[1] is Undefined:
            raise Undefined
        return rest[1]
    if kind == "if":
        then, condition, other = rest
        return reference(then if truth(reference(condition)) else other)
    if kind in ("and", "or"):
        left = reference(rest[0])
        return left if truth(left) == (kind == "or") else reference(rest[1])
    values = [reference(child) for child in rest[-1]] if kind in ("min", "max", "in") else [reference(c) for c in rest]
    if kind == "in":
        answers = [compare("==", values[0], other) for other in values[1:]]  # each may be undefined
        return any(answers)
    if kind in ("min", "max"):
        if not all(isinstance(v, int | float) for v in values):
            raise Undefined
        return min(values) if kind == "min" else max(values)
    if kind == "not":
        return not truth(values[0])
    if kind in ("neg", "abs"):
        if not isinstance(values[0], int | float):
            raise Undefined
        number = values[0] if isinstance(values[0], float) else int(values[0])
        result = -number if kind == "neg" else abs(number)
        return result if isinstance(result, float) else bounded(result)
    if kind in ("==", "!=", "<", "<=", ">", ">="):
        return compare(kind, *values)
    return arithmetic(kind, *values)


def written(node: tuple[Any, ...]) -> str:
    kind, *rest = node
    if kind == "leaf":
        return rest[0]
    if kind == "if":
        return f"({written(rest[0])} if {written(rest[1])} else {written(rest[2])})"
    if kind in ("min", "max"):
        return f"{kind}({', '.join(written(child) for child in rest[0])})"
    if kind == "in":
        first, *others = (written(child) for child in rest[0])
        return f"({first} in ({', '.join(others)}))"
    if kind in ("not", "neg", "abs"):
        return {"not": "(not {})", "neg": "(-{})", "abs": "abs({})"}[kind].format(written(rest[0]))
    return f"({written(rest[0])} {kind} {written(rest[1])})"


whole_numbers = st.integers(0, 12) | st.sampled_from([2**31, 2**53, 2**53 + 1, LARGEST])
LEAVES = st.one_of(
    whole_numbers.map(lambda n: ("leaf", str(n), n)),
    st.sampled_from([0.0, 0.5, 1.0, 2.5, 1e-3, 2.0**53, 1e300]).map(lambda d: ("leaf", repr(d), d)),
    st.sampled_from(
        [
            ("leaf", "true", True),
            ("leaf", "false", False),
            ("leaf", '"mean"', "mean"),
            ("leaf", "input.size(1)", 8),
            ("leaf", "stride[1]", 2),
            ("leaf", "weight.stride(0)", 72),
            ("leaf", "bias.present", False),
            ("leaf", "bias.size(0)", Undefined),
            ("leaf", "stride[5]", Undefined),
            ("leaf", "groups", 1),
        ]
    ),
)


def trees(children: Any) -> Any:
    operators = st.sampled_from(["+", "-", "*", "//", "%", "/", "==", "!=", "<", "<=", ">", ">=", "and", "or"])
    several = st.lists(children, min_size=2, max_size=4)
    return st.one_of(
        st.tuples(operators, children, children),
        st.tuples(st.sampled_from(["not", "neg", "abs"]), children),
        st.tuples(st.just("if"), children, children, children),
        st.tuples(st.sampled_from(["min", "max", "in"]), several),
    )


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return type(a) is type(b) and a == b


@given(st.recursive(LEAVES, trees, max_leaves=14))
@settings(max_examples=1500, deadline=None)
def test_the_core_computes_what_python_does(tree: tuple[Any, ...]) -> None:
    text = written(tree)
    if len(text) > MAX_LENGTH:
        return
    try:
        expected = reference(tree)
    except Undefined:
        expected = None
    except OverflowError:
        return
    if isinstance(expected, float) and not math.isfinite(expected):
        return
    try:
        found = value(text)
    except ExpressionError:  # too deep
        assume(False)
    assert same(found, expected), text
