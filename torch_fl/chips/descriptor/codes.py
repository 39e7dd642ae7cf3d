# SPDX-License-Identifier: Apache-2.0
"""What the steps of a compiled expression are called: the numbers of csrc/runtime/expression.h, and of fl_plugin.h."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class Code(IntEnum):
    """What one step does; expression.h says more."""

    INTEGER = 0
    REAL = 1
    BOOLEAN = 2
    STRING = 3
    TYPE = 4
    COMPUTE_DTYPE = 5
    DEVICE_INDEX = 6
    STREAM = 7
    POSITION = 8

    VALUE = 16
    ADDRESS = 17
    PRESENT = 18
    LENGTH = 19
    ELEMENT = 20
    TENSOR = 21

    SIZE = 32
    STRIDE = 33
    SIZE_AT = 34
    STRIDE_AT = 35
    NDIM = 36
    NUMEL = 37
    DTYPE = 38
    ITEMSIZE = 39
    DATA = 40
    CONTIGUOUS = 41
    CHANNELS_LAST = 42

    ADD = 64
    SUBTRACT = 65
    MULTIPLY = 66
    FLOOR_DIVIDE = 67
    MODULO = 68
    DIVIDE = 69
    NEGATE = 70
    NOT = 71
    EQUAL = 72
    NOT_EQUAL = 73
    LESS = 74
    LESS_EQUAL = 75
    GREATER = 76
    GREATER_EQUAL = 77
    ABS = 78
    MIN = 79
    MAX = 80
    IN = 81

    JUMP = 96
    JUMP_IF_FALSE = 97
    JUMP_IF_FALSE_KEEP = 98
    JUMP_IF_TRUE_KEEP = 99

    EVERY_IN = 112
    EVERY_AT_LEAST = 113
    EVERY_AT_MOST = 114
    EVERY_DTYPE_IN = 115
    EVERY_NDIM_IN = 116
    EVERY_NUMEL_AT_MOST = 117
    EVERY_SIZE_MULTIPLE = 118
    EVERY_SIZE_AT_LEAST = 119
    EVERY_SIZE_AT_MOST = 120


TRACED = -(2**31)  # as an index: the tensor of a list at which a check failed
DTYPE_CODES = {
    name: code
    for code, name in enumerate(
        (
            *("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64"),
            *("complex128", "bool", "bfloat16", "uint16", "uint32", "uint64", "float8_e5m2", "float8_e4m3fn"),
            *("float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu"),
        )
    )
}


class KernelFlag(IntFlag):
    """FL_KERNEL_* of fl_plugin.h."""

    PROMOTE = 1 << 0
    BROADCAST = 1 << 1
    CONTIGUOUS_INPUTS = 1 << 2
    CONTIGUOUS_OUTPUTS = 1 << 3
    IN_PLACE_SAFE = 1 << 4
    CHANNELS_LAST_OK = 1 << 7
    CHANNELS_LAST_ONLY = 1 << 8


Operand = int | float | str
Step = tuple[int, int, Operand]
Program = list[Step]


def dtype_mask(names: list[str] | tuple[str, ...]) -> int:
    """Return the FL_DTYPE_BITs of types."""
    return sum(1 << DTYPE_CODES[name] for name in set(names))
