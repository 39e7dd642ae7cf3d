# SPDX-License-Identifier: Apache-2.0
"""The kinds of values that a descriptor's keys take: sizes, names, types, and short forms that are written out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator
from pydantic_core import PydanticCustomError

from torch_fl.chips.descriptor.source import shown

DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu"),
)
OTHER_DTYPE_NAMES = {
    **{"half": "float16", "float": "float32", "double": "float64", "fp16": "float16", "fp32": "float32"},
    **{"fp64": "float64", "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64", "short": "int16"},
    **{"int": "int32", "long": "int64", "i8": "int8", "i32": "int32", "i64": "int64", "u8": "uint8", "byte": "uint8"},
    **{"char": "int8", "cfloat": "complex64", "cdouble": "complex128", "chalf": "complex32"},
}
# torch.device knows these already, with a meaning of their own.
PYTORCH_DEVICE_TYPES = (
    *("cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla", "lazy"),
    *("vulkan", "mps", "meta", "hpu", "mtia", "privateuseone", "fl"),
)
ALL = "all"  # of the dimensions
MAX_NAME = 64
MAX_EXPRESSION = 1000
MAX_TEXT = 4000
MAX_DIMS = 64
MAX_BYTES = 2**62

_UNITS = {"": 1, "B": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("KMGT", 1)
    for suffix, base in (("iB", 1024), ("B", 1000))
}
_SIZE = r"(\d{1,18}(?:\.\d{1,6})?) ?([KMGT]i?B|B)?"
_OPERATOR = r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.[A-Za-z_]\w*)?"
_C_NAME = r"[A-Za-z_]\w*"
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_CHIP_NAME = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}"
_DEVICE_TYPE = r"[a-z_][a-z0-9_]*"


def mistake(
    expected: str,
    found: object = None,
    fix: str = "",
    *,
    choices: Iterable[str] = (),
    others: Mapping[str, str] | None = None,
    as_is: bool = False,
) -> PydanticCustomError:
    """Return the error of a value that is not what was expected; translate.py turns it into a Problem.

    ``choices`` (and ``others``, known wrong names of them) are what a suggestion may be taken from.
    """
    text = str(found) if as_is else shown(found)
    context = {"expected": expected, "found": text, "fix": fix, "word": found, "choices": choices, "others": others}
    return PydanticCustomError("mistake", "{expected}", context)


def _text(value: Any, expected: str) -> str:
    if isinstance(value, str):
        return value
    quote = "Put it in quotes" if isinstance(value, int | float) else ""
    raise mistake(expected, value, quote)


def _matching(pattern: str, expected: str, limit: int = 128) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        text = _text(value, expected)
        if len(text) > limit:
            raise mistake(f"{expected}, of at most {limit} characters", f"{len(text)} characters", as_is=True)
        if not re.fullmatch(pattern, text, re.ASCII):
            raise mistake(expected, text)
        return text

    return check


def _size(value: Any) -> int:
    expected = "a size in bytes, such as 4096, 64KiB or 4GiB"
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str):
        match = re.fullmatch(_SIZE, value, re.ASCII)
        if match is None:
            raise mistake(expected, value, "Units are B, KB, KiB, MB, MiB, GB, GiB, TB, TiB")
        exact = float(match[1]) if "." in match[1] else int(match[1])
        size = int(exact * _UNITS[match[2] or ""])
    else:
        raise mistake(expected, value)
    if not 1 <= size <= MAX_BYTES:
        raise mistake("a size from 1 byte to 4 EiB", value)
    return size


def _alignment(value: Any) -> int:
    size = _size(value)
    if size & (size - 1) or size > 2**30:
        raise mistake("a power of two up to 1GiB, in bytes", value)
    return size


def _choice(choices: Iterable[str], what: str, others: dict[str, str] | None = None) -> Callable[[Any], str]:
    words = tuple(choices)

    def check(value: Any) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise mistake(what, value, choices=words, others=others)

    return check


def _operator(value: Any) -> str:
    expected = "an operator such as aten::mm or aten::add.Tensor"
    text = _text(value, expected)
    if re.fullmatch(_OPERATOR, text, re.ASCII) and len(text) <= 128:
        return text
    with_library = re.sub(r"^(torch\.|at::|aten[.:])?(ops\.aten\.)?", "aten::", text)
    others = {text.lower(): with_library} if re.fullmatch(_OPERATOR, with_library, re.ASCII) else {}
    raise mistake(expected, text, others=others)


def _device_type(value: Any) -> str:
    text = _matching(_DEVICE_TYPE, "a word of small letters, digits and _, such as npu", MAX_NAME)(value)
    if text in PYTORCH_DEVICE_TYPES:
        raise mistake("a name that torch.device does not know yet", text, "Choose another name")
    return text


def _scalar(value: Any) -> Any:
    if isinstance(value, bool | int | float | str):
        return value
    raise mistake("a number, true, false or text", value)


def _number(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise mistake("a number", value)


def _dim(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and -MAX_DIMS <= value < MAX_DIMS:
        return value
    if value == ALL:
        return ALL
    raise mistake(f"a dimension from {-MAX_DIMS} to {MAX_DIMS - 1}, or {ALL}", value)


def _text_up_to(limit: int, what: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        text = _text(value, what)
        if not text.strip():
            raise mistake(what, text)
        if len(text) > limit:
            raise mistake(f"{what}, of at most {limit} characters", f"{len(text)} characters", as_is=True)
        return text

    return check


def many(value: Any) -> Any:
    """Write out ``x`` as ``[x]``."""
    return [value] if isinstance(value, bool | int | float | str) else value


def keyed_all(value: Any) -> Any:
    """Write out ``x`` as ``{all: x}``."""
    return value if isinstance(value, dict) or value is None else {ALL: value}


def as_values(value: Any) -> Any:
    """Write out ``1`` and ``[1, 2]`` as ``{values: [...]}``."""
    if isinstance(value, list):
        return {"values": value}
    return {"values": [value]} if isinstance(value, bool | int | float | str) else value


def _pattern(pattern: str) -> Any:
    return Annotated[str, Field(pattern=f"^{pattern}$")]


DType = Annotated[
    str,
    PlainValidator(
        _choice(DTYPES, "an element type, such as float32", OTHER_DTYPE_NAMES), json_schema_input_type=Literal[DTYPES]
    ),
]
PolicyWord = Literal["allow", "warn", "deny"]
Policy = Annotated[
    str,
    PlainValidator(
        _choice(("allow", "warn", "deny"), "allow, warn or deny"),
        json_schema_input_type=PolicyWord,
    ),
]
Layout = Annotated[
    str,
    PlainValidator(
        _choice(("contiguous", "channels_last", "any"), "contiguous, channels_last or any"),
        json_schema_input_type=Literal["contiguous", "channels_last", "any"],
    ),
]
Size = Annotated[
    int,
    PlainValidator(_size, json_schema_input_type=Annotated[int, Field(ge=1, le=MAX_BYTES)] | _pattern(_SIZE)),
]
Alignment = Annotated[
    int,
    PlainValidator(_alignment, json_schema_input_type=Annotated[int, Field(ge=1, le=2**30)] | _pattern(_SIZE)),
]
OperatorName = Annotated[str, PlainValidator(_operator, json_schema_input_type=_pattern(_OPERATOR))]
Symbol = Annotated[
    str,
    PlainValidator(
        _matching(_C_NAME, "the name of a C function: letters, digits and _"), json_schema_input_type=_pattern(_C_NAME)
    ),
]
Name = Annotated[
    str,
    PlainValidator(
        _matching(_NAME, "a name of letters, digits, _, . and -", MAX_NAME), json_schema_input_type=_pattern(_NAME)
    ),
]
ChipName = Annotated[
    str,
    PlainValidator(
        _matching(_CHIP_NAME, "a name of at most 63 letters, digits, _ and -"),
        json_schema_input_type=_pattern(_CHIP_NAME),
    ),
]
DeviceType = Annotated[str, PlainValidator(_device_type, json_schema_input_type=_pattern(_DEVICE_TYPE))]
Argument = Annotated[
    str,
    PlainValidator(
        _matching(_C_NAME, "the name of an argument in the operator's schema"), json_schema_input_type=_pattern(_C_NAME)
    ),
]
NonEmpty = Annotated[str, Field(min_length=1)]
Text = Annotated[str, PlainValidator(_text_up_to(200, "text"), json_schema_input_type=NonEmpty)]
FilePath = Annotated[str, PlainValidator(_text_up_to(MAX_TEXT, "a path"), json_schema_input_type=NonEmpty)]
Signature = Annotated[
    str,
    PlainValidator(
        _text_up_to(MAX_TEXT, 'a C signature, such as "void f(int n, const float* x)"'),
        json_schema_input_type=Annotated[str, Field(min_length=1, max_length=MAX_TEXT)],
    ),
]
Expression = Annotated[
    str,
    PlainValidator(
        _text_up_to(MAX_EXPRESSION, "an expression"),
        json_schema_input_type=Annotated[str, Field(min_length=1, max_length=MAX_EXPRESSION)],
    ),
]
ScalarValue = Annotated[Any, PlainValidator(_scalar, json_schema_input_type=bool | int | float | str)]
Number = Annotated[Any, PlainValidator(_number, json_schema_input_type=int | float)]
Dim = Annotated[Any, PlainValidator(_dim, json_schema_input_type=_pattern(r"(-?[0-9]{1,2}|all)"))]
Count = Annotated[int, Field(ge=1, le=MAX_BYTES)]
Order = Annotated[int, Field(ge=0, le=MAX_DIMS)]  # of a tensor: its number of dimensions
Before = BeforeValidator
