# SPDX-License-Identifier: Apache-2.0
"""Matrix products, convolution, pooling and resampling against PyTorch's CPU kernels."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from nn_host import REALS, Host, KernelFailed, call_cpu, check, close, poison, randn

INTS = [torch.int64, torch.int32, torch.uint8]


# ---- Matrix products -------------------------------------------------------------------------------------------------

SIZES = [
    (4, 4, 4),
    (1, 1, 1),
    (5, 7, 3),
    (33, 65, 17),
    (130, 70, 300),
    (1, 50, 600),
    (600, 50, 1),
    (20, 0, 3),
    (0, 3, 2),
]


def layouts(rows: int, columns: int, dtype: torch.dtype) -> Iterator[torch.Tensor]:
    yield randn(rows, columns, dtype=dtype)
    yield randn(columns, rows, dtype=dtype).t()
    yield randn(2 * rows + 1, 3 * columns + 1, dtype=dtype)[1::2, 1::3]


@pytest.mark.parametrize("dtype", REALS + INTS)
@pytest.mark.parametrize("m,k,n", SIZES)
def test_mm(host: Host, dtype: torch.dtype, m: int, k: int, n: int) -> None:
    for a, b in itertools.product(layouts(m, k, dtype), layouts(k, n, dtype)):
        check(host, "aten::mm", a, b, scale=1 + k / 64)


@pytest.mark.parametrize("m,k,n", [(513, 300, 40), (700, 600, 530), (3, 1500, 3), (64, 20000, 64)])
def test_mm_blocks(host: Host, m: int, k: int, n: int) -> None:
    check(host, "aten::mm", randn(m, k, dtype=torch.float64), randn(k, n, dtype=torch.float64))
    check(host, "aten::mm", randn(m, k), randn(n, k).t(), scale=8)


@pytest.mark.parametrize("dtype", REALS + [torch.int64])
@pytest.mark.parametrize("shape", [(6, 5), (5,), (1, 5), (6, 1), ()])
def test_addmm(host: Host, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    for beta, alpha in [(1, 1), (2, 3), (0, 1), (3, 0)]:
        check(
            host,
            "aten::addmm",
            randn(*shape, dtype=dtype),
            randn(6, 4, dtype=dtype),
            randn(4, 5, dtype=dtype),
            beta,
            alpha,
        )
        check(
            host,
            "aten::addmm",
            randn(*shape, dtype=dtype),
            randn(6, 0, dtype=dtype),
            randn(0, 5, dtype=dtype),
            beta,
            alpha,
        )


@pytest.mark.parametrize("dtype", REALS + [torch.int64])
@pytest.mark.parametrize("shape", [(6, 5), (5,), (6, 1), ()])
def test_addr(host: Host, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    for beta, alpha in [(1, 1), (2, 3), (0, 1)]:
        self, a, b = randn(*shape, dtype=dtype), randn(12, dtype=dtype)[::2], randn(5, dtype=dtype)
        check(host, "aten::addr", self, a, b, beta, alpha, scale=4)
    check(host, "aten::addr", randn(dtype=dtype), randn(0, dtype=dtype), randn(5, dtype=dtype), 1, 1)


def test_addmm_large_and_nan(host: Host) -> None:
    check(host, "aten::addmm", randn(90), randn(70, 80), randn(90, 80).t(), 0.5, 1.5)
    nan = torch.full((70, 90), float("nan"))
    check(host, "aten::addmm", nan, randn(70, 80), randn(80, 90), 0, 1)


@pytest.mark.parametrize("dtype", REALS + [torch.int32])
def test_bmm(host: Host, dtype: torch.dtype) -> None:
    for b, m, k, n in [(3, 4, 5, 6), (1, 1, 1, 1), (2, 40, 70, 30), (0, 3, 3, 3), (3, 0, 2, 4), (2, 3, 0, 4)]:
        x, y = randn(b, m, k, dtype=dtype), randn(b, k, n, dtype=dtype)
        check(host, "aten::bmm", x, y)
        check(host, "aten::bmm", x, randn(b, n, k, dtype=dtype).transpose(1, 2))
        for self in (randn(b, m, n, dtype=dtype), randn(n, dtype=dtype), randn(1, m, 1, dtype=dtype)):
            check(host, "aten::baddbmm", self, x, y, 2, 3)


@pytest.mark.parametrize("dtype", REALS + [torch.int64])
def test_vectors(host: Host, dtype: torch.dtype) -> None:
    for m, k in [(3, 4), (70, 200), (1, 1), (5, 0), (0, 4)]:
        a, x = randn(m, k, dtype=dtype), randn(k, dtype=dtype)
        check(host, "aten::mv", a, x, scale=2)
        check(host, "aten::mv", randn(k, m, dtype=dtype).t(), randn(3 * k + 1, dtype=dtype)[1::3], scale=2)
        check(host, "aten::addmv", randn(m, dtype=dtype), a, x, 2, 3, scale=4)
        check(host, "aten::addmv", randn(dtype=dtype), a, x, 0, 1, scale=2)
        check(host, "aten::dot", x, randn(2 * k + 1, dtype=dtype)[1::2], scale=2)


# ---- Convolution -----------------------------------------------------------------------------------------------------

CONVOLUTIONS = [
    # input, weight, stride, padding, dilation, groups
    ((2, 3, 8, 8), (4, 3, 3, 3), 1, 1, 1, 1),
    ((2, 4, 9, 7), (6, 4, 3, 2), 2, 1, 1, 1),
    ((2, 4, 9, 7), (6, 2, 3, 3), 1, 2, 2, 2),
    ((2, 6, 8, 8), (6, 1, 3, 3), 1, 1, 1, 6),
    ((3, 5, 6, 6), (7, 5, 1, 1), 1, 0, 1, 1),
    ((3, 5, 6, 6), (7, 5, 1, 1), 2, 0, 1, 1),
    ((1, 2, 11, 5), (3, 2, 5, 1), 3, 2, 1, 1),
    ((2, 3, 12), (4, 3, 5), 2, 2, 1, 1),
    ((2, 2, 5, 6, 7), (4, 2, 3, 2, 3), 1, 1, 1, 1),
    ((2, 2, 5, 6, 7), (4, 1, 2, 2, 2), 2, 0, 2, 2),
    ((0, 3, 8, 8), (4, 3, 3, 3), 1, 1, 1, 1),
    ((5, 20, 13, 13), (40, 20, 3, 3), 1, 1, 1, 1),
    ((70, 9, 4, 4), (9, 9, 3, 3), 1, 1, 1, 1),
]


def convolution_case(case: Any, dtype: torch.dtype, transposed: bool) -> tuple[list[Any], torch.Tensor]:
    shape, weight_shape, stride, padding, dilation, groups = case
    dims = len(shape) - 2
    image, weight = randn(*shape, dtype=dtype), randn(*weight_shape, dtype=dtype)
    if transposed:
        image = randn(shape[0], weight_shape[0], *shape[2:], dtype=dtype)
    extra = stride - 1 if transposed else 0
    args = [[stride] * dims, [padding] * dims, [dilation] * dims, transposed, [extra] * dims, groups]
    out_channels = weight_shape[1] * groups if transposed else weight_shape[0]
    return [image, weight, args], randn(out_channels, dtype=dtype)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(host: Host, case: Any, dtype: torch.dtype, transposed: bool) -> None:
    """Against the sum in float64: in 16 bits the CPU's own depends on the processor."""
    (image, weight, args), bias = convolution_case(case, dtype, transposed)
    for b in (bias, None):
        exact = call_cpu("aten::convolution", [image.double(), weight.double(), b if b is None else b.double(), *args])[
            0
        ]
        out = poison(exact.to(dtype))
        host.run("aten::convolution", [image, weight, b, *args], [out])
        close(out, exact.to(dtype), "convolution", scale=4)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution_backward(host: Host, case: Any, dtype: torch.dtype, transposed: bool) -> None:
    (image, weight, args), bias = convolution_case(case, torch.float64, transposed)
    out = call_cpu("aten::convolution", [image, weight, bias, *args])[0]
    sizes = [bias.numel()]
    gradient = torch.randn(out.shape, dtype=torch.float64)
    rounded = [t.to(dtype) for t in (gradient, image, weight)]
    exact = call_cpu("aten::convolution_backward", [*(t.double() for t in rounded), sizes, *args, [True] * 3])
    for mask in ([True, True, True], [True, False, False], [False, True, False], [False, False, True]):
        wanted = [e if m else None for e, m in zip(exact, mask)]
        outs = [poison(w.to(dtype)) if w is not None else None for w in wanted]
        host.run("aten::convolution_backward", [*rounded, sizes, *args, mask], outs)
        for i, (got, want) in enumerate(zip(outs, wanted)):
            if got is not None and want is not None:
                close(got, want.to(dtype), f"gradient {i}", scale=20)


# ---- Pooling ---------------------------------------------------------------------------------------------------------

POOLS = [
    ((2, 3, 8, 9), [2, 2], [], [0, 0], False),
    ((2, 3, 9, 11), [3, 2], [2, 1], [1, 1], False),
    ((3, 9, 11), [3, 3], [2, 2], [1, 0], True),
    ((2, 2, 7, 7), [3], [2], [1], True),
    ((0, 3, 8, 8), [2, 2], [2, 2], [0, 0], False),
]
POOLS_3D = [((2, 3, 6, 7, 8), [2, 3, 2], [2, 1, 2], [1, 1, 0], True), ((3, 6, 7, 8), [2, 2, 2], [], [0, 0, 0], False)]


@pytest.mark.parametrize("dtype", [*REALS, torch.int64])
@pytest.mark.parametrize("case", POOLS + POOLS_3D)
def test_max_pool(host: Host, case: Any, dtype: torch.dtype) -> None:
    shape, kernel, stride, padding, ceil = case
    dims = 3 if case in POOLS_3D else 2
    op = f"aten::max_pool{dims}d_with_indices"
    x = randn(*shape, dtype=dtype)
    if dtype.is_floating_point and x.numel():
        x.view(-1)[::17] = float("nan")
    for dilation in ([1] * dims, [2] * dims):
        values, indices = check(host, op, x, kernel, stride, padding, dilation, ceil)
        if dtype.is_floating_point and x.numel():
            gradient = randn(*values.shape, dtype=dtype)
            backward = [gradient, x, kernel, stride or kernel, padding, dilation, ceil, indices]
            check(host, f"{op}_backward", *backward)


def test_max_pool_backward_refuses_bad_indices(host: Host) -> None:
    args = [torch.ones(1, 1, 1), torch.ones(1, 2, 2), [2, 2], [2, 2], [0, 0], [1, 1], False, torch.full((1, 1, 1), 4)]
    with pytest.raises(KernelFailed, match="index 4 is out of bounds"):
        host.run("aten::max_pool2d_with_indices_backward", args, [torch.empty(1, 2, 2)])


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("case", POOLS + POOLS_3D)
def test_avg_pool(host: Host, case: Any, dtype: torch.dtype) -> None:
    shape, kernel, stride, padding, ceil = case
    dims = 3 if case in POOLS_3D else 2
    if dims == 3 and dtype.itemsize == 2:
        pytest.skip("the CPU has no kernel to compare with")
    x = randn(*shape, dtype=dtype)
    for include, divisor in itertools.product([True, False], [None, 3]):
        options = [kernel, stride, padding, ceil, include, divisor]
        (out,) = check(host, f"aten::avg_pool{dims}d", x, *options)
        options[1] = stride or kernel
        check(host, f"aten::avg_pool{dims}d_backward", randn(*out.shape, dtype=dtype), x, *options, scale=2)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize(
    "shape,size", [((2, 3, 8, 9), (3, 4)), ((3, 5, 5), (1, 1)), ((2, 3, 4, 4), (7, 5)), ((2, 3, 5, 6, 7), (2, 3, 4))]
)
def test_adaptive_avg_pool(host: Host, shape: Any, size: Any, dtype: torch.dtype) -> None:
    if len(size) == 3 and dtype.itemsize == 2:
        pytest.skip("the CPU's sums are in the 16-bit type")
    x = randn(*shape, dtype=dtype)
    op = f"aten::_adaptive_avg_pool{len(size)}d"
    (out,) = check(host, op, x, list(size))
    check(host, f"{op}_backward", randn(*out.shape, dtype=dtype), x, scale=2)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("shape,size", [((2, 3, 8, 9), (3, 4)), ((3, 5, 5), (1, 1)), ((2, 3, 5, 6, 7), (2, 3, 4))])
def test_adaptive_max_pool(host: Host, shape: Any, size: Any, dtype: torch.dtype) -> None:
    x = randn(*shape, dtype=dtype)
    op = f"aten::adaptive_max_pool{len(size)}d"
    out, indices = check(host, op, x, list(size))
    check(host, f"{op}_backward", randn(*out.shape, dtype=dtype), x, indices, scale=2)


# ---- Resampling and patches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("size,scale", [(7, None), (3, None), (10, 2.0), (5, 1.0), (9, 1.9)])
def test_upsample(host: Host, dims: int, size: int, scale: float | None, dtype: torch.dtype) -> None:
    x, sizes, scales = randn(2, 3, *[5] * dims, dtype=dtype), [size] * dims, [scale] * dims
    linear = {1: "upsample_linear1d", 2: "upsample_bilinear2d", 3: "upsample_trilinear3d"}[dims]
    cases = [
        (f"upsample_nearest{dims}d", []),
        (f"_upsample_nearest_exact{dims}d", []),
        (linear, [False]),
        (linear, [True]),
    ]
    for op, align in cases[: 2 if dtype.itemsize == 2 else 4]:
        (out,) = check(host, f"aten::{op}", x, sizes, *align, *scales)
        gradient = randn(*out.shape, dtype=dtype)
        check(host, f"aten::{op}_backward", gradient, sizes, list(x.shape), *align, *scales, scale=4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("kind", ["reflection", "replication"])
@pytest.mark.parametrize("batched", [True, False])
def test_padding(host: Host, kind: str, dims: int, batched: bool, dtype: torch.dtype) -> None:
    x = randn(*([2] * batched), 3, *[5] * dims, dtype=dtype)
    for amounts in ([1, 2] * dims, [0, 3] * dims, [2, -1] * dims):
        op = f"aten::{kind}_pad{dims}d"
        (out,) = check(host, op, x, amounts)
        check(host, f"{op}_backward", randn(*out.shape, dtype=dtype), x, amounts, scale=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 3, 7, 8), (3, 7, 8)])
def test_patches(host: Host, shape: Any, dtype: torch.dtype) -> None:
    x = randn(*shape, dtype=dtype)
    for options in ([[3, 2], [1, 1], [0, 0], [1, 1]], [[2, 2], [2, 1], [1, 2], [2, 3]]):
        (columns,) = check(host, "aten::im2col", x, *options)
        check(host, "aten::col2im", randn(*columns.shape, dtype=dtype), [7, 8], *options, scale=2)


# ---- A chip with narrower abilities ----------------------------------------------------------------------------------

CHANNELS_LAST_PROGRAM = """
import torch
from nn_host import Host, KernelFailed, Unsupported
host, last = Host(), torch.channels_last
x, w, b = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)
args = [[1, 1], [1, 1], [1, 1], False, [0, 0], 1]
want = torch.ops.aten.convolution(x, w, b, *args)
out = torch.empty_like(want, memory_format=last)
host.run("aten::convolution", [x, w, b, *args], [out])
torch.testing.assert_close(out, want, rtol=1e-4, atol=1e-4)
g = torch.randn_like(want)
wants = torch.ops.aten.convolution_backward(g, x, w, [4], *args, [True] * 3)
outs = [torch.empty_like(t, memory_format=last) if t.dim() == 4 else torch.empty_like(t) for t in wants]
host.run("aten::convolution_backward", [g, x, w, [4], *args, [True] * 3], outs)
for a, e in zip(outs, wants):
    torch.testing.assert_close(a, e, rtol=1e-3, atol=1e-3)
try:
    host.run("aten::convolution", [x[..., 0], w[..., 0], b, [1], [1], [1], False, [0], 1], [want[..., 0].contiguous()])
except Unsupported as error:
    assert "channels-last" in str(error)
else:
    raise AssertionError("a one-dimensional convolution was accepted")
host.chip.kernels["aten::convolution"].flags = 0  # a host that does not keep the contract
try:
    host.run("aten::convolution", [x, w, b, *args], [out])
except KernelFailed as error:
    assert "another layout" in str(error)
else:
    raise AssertionError("a row-major image was accepted")
"""

MULTIPLE_PROGRAM = """
import torch
from nn_host import Host, Unsupported
host = Host()
for m, k, n, fits in [(16, 8, 24, True), (16, 9, 24, False), (4, 8, 8, False)]:
    a, b, out = torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)
    try:
        host.run("aten::mm", [a, b], [out])
        assert fits
        torch.testing.assert_close(out, a @ b, rtol=1e-4, atol=1e-4)
        host.run("aten::addmm", [torch.randn(3 * n)[:n], a, b, 1, 1], [out])
    except Unsupported as error:
        assert not fits and "multiples of 8" in str(error), error
"""


@pytest.mark.parametrize(
    "setting,program",
    [
        (("SIMCHIP_CONV_CHANNELS_LAST", "1"), CHANNELS_LAST_PROGRAM),
        (("SIMCHIP_MATMUL_MULTIPLE", "8"), MULTIPLE_PROGRAM),
    ],
)
def test_configured_limits(setting: tuple[str, str], program: str) -> None:
    environment = {**os.environ, setting[0]: setting[1], "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
