# SPDX-License-Identifier: Apache-2.0
"""From a descriptor's text to what the core evaluates, and the mistakes that only the operators' schemas show."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import torch_fl._C as core
from torch_fl.chips import descriptor
from torch_fl.chips.descriptor import DescriptorError
from torch_fl.chips.descriptor.codes import DTYPE_CODES, KernelFlag
from torch_fl.chips.descriptor.lower import lower, overloads

DENSE = int(KernelFlag.CONTIGUOUS_INPUTS | KernelFlag.CONTIGUOUS_OUTPUTS)


def lowered(tmp_path: Path, text: str) -> dict[str, Any]:
    file = tmp_path / "chip.yaml"
    file.write_text("runtime_so: libchip.so\n" + text)
    return lower(descriptor.load(file))


def op(text: str) -> str:
    """One operator without a function, indented by four."""
    return "supported_ops:\n  - name: aten::convolution\n    constraints:\n" + "".join(
        f"      {line}\n" for line in text.splitlines()
    )


def tensor(*sizes: int, dtype: str = "float32") -> dict[str, Any]:
    strides = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]
    return {"sizes": list(sizes), "strides": strides, "dtype": DTYPE_CODES[dtype]}


def reason(tmp_path: Path, constraints: str, **changes: Any) -> str:
    """What keeps a convolution from the chip; empty: nothing."""
    rules = dict(lowered(tmp_path, op(constraints))["rules"])["aten::convolution"]
    call = {
        "input": tensor(2, 8, 32, 32),
        "weight": tensor(16, 8, 3, 3),
        "bias": None,
        "stride": [1, 1],
        "padding": [0, 0],
        "dilation": [1, 1],
        "transposed": False,
        "output_padding": [0, 0],
        "groups": 1,
    }
    found, _ = core.check_rules(rules, list((call | changes).values()), [tensor(2, 16, 30, 30)], {}, 1)
    return found


@pytest.mark.parametrize(
    "constraints, changes, expected",
    [
        ("dtypes: [float32]", {}, ""),
        ("dtypes: [float16, float64]", {}, "input must be float16 or float64, found float32"),
        ("dtypes: [float32]", {"bias": tensor(16, dtype="int8")}, "bias must be float32, found int8"),
        ("ndim: 4", {}, ""),
        ("ndim: 4", {"bias": tensor(16)}, "bias must have 4 dimensions, found 1"),
        ("ndim: {min: 5}", {}, "input must have at least 5 dimensions, found 4"),
        ("arguments: {input: {ndim: [3, 5]}}", {}, "input must have 3 or 5 dimensions, found 4"),
        ("max_elements: 100", {}, "input must have at most 100 elements, found 16384"),
        ("arguments: {input: {size_multiple: {1: 16}}}", {}, "input.size(1) must be a multiple of 16, found 8"),
        ("arguments: {input: {size_multiple: 8}}", {}, "input.size(0) must be a multiple of 8, found 2"),
        ("arguments: {input: {size_range: {-1: [64, 128]}}}", {}, "input.size(-1) must be from 64 to 128, found 32"),
        ("arguments: {stride: [1, 2, 4]}", {"stride": [2, 3]}, "stride[1] must be 1, 2 or 4, found 3"),
        ("arguments: {groups: [1, 2], transposed: false, stride: [1], dilation: {max: 1}}", {}, ""),
        ("arguments: {groups: {min: 2}}", {}, "groups must be at least 2, found 1"),
        ("arguments: {groups: 1}", {"groups": 8}, "groups must be 1, found 8"),
        ("arguments: {transposed: false}", {"transposed": True}, "transposed must be false, found true"),
        ("arguments: {padding: {min: 0, max: 3}}", {"padding": [4, 0]}, "padding[0] must be from 0 to 3, found 4"),
        ("arguments: {bias: {ndim: 1}}", {}, ""),
        ("arguments: {a: {ndim: 3}}", {}, "input must have 3 dimensions, found 4"),
        ("arguments: {out: {dtypes: [int8]}}", {}, "out must be int8, found float32"),
        ("dtype_combinations: [[float16, float16], [float32, float32]]", {}, ""),
        (
            "dtype_combinations: [[float16, float16], [float32, float32]]",
            {"weight": tensor(16, 8, 3, 3, dtype="float16")},
            "the types of (input, weight) must be (float16, float16) or (float32, float32)",
        ),
        ('require: ["input.size(1) == weight.size(1)"]', {}, ""),
        (
            'require: ["input.size(1) > weight.size(1)"]',
            {},
            "it is required that input.size(1) > weight.size(1), found 8",
        ),
        ('require: ["bias.size(0) == 16"]', {}, "it is required that bias.size(0) == 16, found nothing"),
    ],
)
def test_constraints(tmp_path: Path, constraints: str, changes: dict[str, Any], expected: str) -> None:
    assert reason(tmp_path, constraints, **changes) == expected


def test_lists_of_tensors(tmp_path: Path) -> None:
    text = "supported_ops:\n  - name: aten::cat\n    constraints: {dtypes: [float32]}\n"
    rules = dict(lowered(tmp_path, text)["rules"])["aten::cat"]
    call = [[tensor(1), tensor(1, dtype="int64")], 0]
    assert core.check_rules(rules, call, [], {}, 1)[0] == "tensors[1] must be float32, found int64"


def test_what_the_host_can_satisfy_becomes_flags(tmp_path: Path) -> None:
    def rules(constraints: str) -> dict[str, Any]:
        return dict(lowered(tmp_path, op(constraints))["rules"])["aten::convolution"]

    assert rules("layout: channels_last")["flags"] == KernelFlag.CHANNELS_LAST_ONLY
    assert rules("layout: contiguous")["flags"] == DENSE
    assert rules("layout: any")["flags"] == 0
    assert rules("in_place: false")["cleared"] == KernelFlag.IN_PLACE_SAFE
    assert rules("alignment: 64KiB")["alignment"] == 65536
    assert rules("cast: {bfloat16: float32}")["casts"] == [(DTYPE_CODES["bfloat16"], DTYPE_CODES["float32"])]


def test_kernels_of_plain_libraries(tmp_path: Path) -> None:
    text = """
capabilities: {dtypes: [float32], alignment: 64}
supported_ops:
  - name: aten::mm
    impl: {float32: smm, float64: dmm}
    signature: int mm(int m, T alpha, const T* a, const float* b)
    args: [self.size(0), 1.5, self.data, mat2.data]
  - name: aten::relu
    impl: my_relu
    promote: true
    constraints: {layout: any, in_place: true}
"""
    spec = lowered(tmp_path, text)
    mm, relu = spec["kernels"]
    assert mm["symbols"] == [(DTYPE_CODES["float32"], "smm"), (DTYPE_CODES["float64"], "dmm")]
    assert (mm["flags"], mm["plain"], mm["parameters"], mm["result"]) == (DENSE, True, [4, 13, 12, 12], 4)
    assert (relu["flags"], relu["plain"]) == (KernelFlag.PROMOTE | KernelFlag.IN_PLACE_SAFE, False)
    rules = dict(spec["rules"])
    assert rules["aten::mm"]["alignment"] == 64
    call = [tensor(2, 2), tensor(2, 2, dtype="float64")]
    broken, _ = core.check_rules(rules["aten::mm"], call, [], {"compute_dtype": DTYPE_CODES["float32"]}, 1)
    assert broken == "mat2 must be float32, found float64"


def test_runtime_functions(tmp_path: Path) -> None:
    text = """
runtime:
  devices: 2
  alloc: {impl: vendor_malloc, signature: "int vendor_malloc(int, void** p, size_t n)", args: [device, result, bytes]}
  free: {impl: vendor_free, signature: "void vendor_free(void* p)", args: [address]}
  copy: {impl: vendor_copy, signature: "int vendor_copy(void*, void*, size_t, int)", args: [dst, src, bytes, kind + 1]}
  status: {ok: 0, out_of_memory: [2]}
"""
    spec = lowered(tmp_path, text)
    assert spec["host_coherent"] is False
    runtime = spec["runtime"]
    assert (runtime["devices"], runtime["ok"], runtime["out_of_memory"]) == (2, [0], [2])
    assert runtime["alloc"]["parameters"] == [4, 12, 9]
    assert [len(program) for program in runtime["copy"]["arguments"]] == [1, 1, 1, 3]


def test_names_of_overloads() -> None:
    assert [name for name, _ in overloads("aten::mm")] == ["aten::mm"]
    assert [name for name, _ in overloads("aten::add.Tensor")] == ["aten::add.Tensor"]
    assert [name for name, _ in overloads("aten::add")] == ["aten::add.Scalar", "aten::add.Tensor"]
    assert overloads("aten::add.Nothing") == []
    assert overloads("aten::nothing") == []


def test_a_constraint_of_all_overloads(tmp_path: Path) -> None:
    spec = lowered(tmp_path, "supported_ops:\n  - name: aten::add\n    constraints: {dtypes: [float32]}\n")
    assert [name for name, _ in spec["rules"]] == ["aten::add.Scalar", "aten::add.Tensor"]
    assert spec["required_rules"] == ["aten::add"]


IMPL = "supported_ops:\n  - {{name: aten::mm, impl: f, {}}}\n"


@pytest.mark.parametrize(
    "text, place, expected",
    [
        (op("arguments: {inputs: {ndim: 4}}"), ":5:", "did you mean 'input'?"),
        (op("arguments: {stride: {ndim: 4}}"), ":5:", "values, min or max, since it is no tensor"),
        (op("arguments: {input: 4}"), ":5:", "since it is a tensor"),
        (op("dtype_combinations: [[int8, int8, int8, int8]]"), ":5:", "a type for each of input, weight, bias"),
        (op('require: ["input.size(1) == wieght.size(1)"]'), ":5:", "'wieght' at character 18"),
        (op('require: ["input.size(1) =="]'), ":5:", "the end at character 17"),
        ("supported_ops:\n  - {name: aten::convolutoin}\n", ":3:", "did you mean 'aten::convolution'?"),
        ("supported_ops:\n  - {name: aten::add, impl: f}\n", ":3:", "There are aten::add.Scalar, aten::add.Tensor"),
        (IMPL.format("signature: void f(int), args: []"), ":3:", "0 args for 1 parameters"),
        (IMPL.format('signature: "void f(struct s x)", args: [1]'), ":3:", "'struct s' at character 8"),
        (IMPL.format('signature: "void f(int n, ...)", args: [1, 2]'), ":3:", "any number of arguments"),
        (IMPL.format("signature: void f(int), args: [self.sise(0)]"), ":3:", "did you mean 'size'?"),
        (IMPL.format("signature: void f(T), args: [1], dtype_support: [float16]"), ":3:", "C passes by value"),
        (IMPL.format("signature: void f(T), args: [1]"), ":3:", "dtype_support, since T is passed by value"),
        (IMPL.format("signature: void f(), starts_as: slef"), ":3:", "did you mean 'self'?"),
        (
            "supported_ops:\n  - {name: aten::mm, impl: {float32: f}, signature: void f(), dtype_support: [int8]}\n",
            ":3:",
            "a type that impl has a function for: float32",
        ),
        ("name: my.chip\n", ":2:", "at most 63 letters"),
        (
            "runtime:\n  alloc: {impl: a, signature: void* a()}\n  free: {impl: f, signature: void f()}\n",
            ":",
            "copy beside alloc",
        ),
        (
            "runtime:\n  alloc: {impl: a, signature: int a()}\n  free: {impl: f, signature: void f()}\n"
            "  copy: {impl: c, signature: void c()}\n",
            ":3:",
            "a pointer as result, or result among args",
        ),
        ("runtime:\n  init: {impl: i, signature: void i(int), args: [bytes]}\n", ":3:", "'bytes' at character 1"),
        ("fallback_policy: {op_specific: {aten::nothing_at_all: deny}}\n", ":2:", "an operator of this PyTorch"),
    ],
)
def test_mistakes_are_located(tmp_path: Path, text: str, place: str, expected: str) -> None:
    with pytest.raises(DescriptorError) as caught:
        lowered(tmp_path, text)
    message = str(caught.value)
    assert f"chip.yaml{place}" in message
    assert expected in message


def test_every_mistake_is_told(tmp_path: Path) -> None:
    with pytest.raises(DescriptorError) as caught:
        lowered(tmp_path, op("arguments: {nothing: 1}\nrequire: ['x', 'y']"))
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("spec", [{}, {"name": 1}, {"name": "x", "library": "y", "kernels": [{}]}, {"name": "x"}])
def test_a_broken_spec_is_an_exception(spec: dict[str, Any]) -> None:
    with pytest.raises((KeyError, RuntimeError, ValueError, TypeError)):
        core.load_described(spec, "nowhere.yaml", "test")
