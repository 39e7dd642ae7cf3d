# SPDX-License-Identifier: Apache-2.0
"""The plugin's matrix, neural-network and indexing kernels against PyTorch's CPU kernels, without torch_fl."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ.setdefault("SIMCHIP_CHECK", "1")
sys.path.insert(0, str(Path(__file__).parent))

from nn_host import Host, KernelFailed, Unsupported, find_plugin  # noqa: E402

REALS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.int64, torch.int32, torch.uint8]
TOLERANCE = {
    torch.float32: (1e-4, 1e-4),
    torch.float64: (1e-10, 1e-10),
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (2e-2, 2e-2),
}


@pytest.fixture(scope="module")
def host() -> Host:
    return Host(find_plugin())


def overload(op: str) -> Any:
    name, _, variant = op.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, name), variant or "default")


def call_cpu(op: str, args: Sequence[Any]) -> list[torch.Tensor]:
    function = overload(op)
    schema = function._schema.arguments
    by_name = {schema[i].name: arg for i, arg in enumerate(args) if schema[i].kwarg_only}
    positional = [arg for i, arg in enumerate(args) if not schema[i].kwarg_only]
    with torch.no_grad():
        result = function(*positional, **by_name)
    return list(result) if isinstance(result, (tuple, list)) else [result]


def poison(like: torch.Tensor) -> torch.Tensor:
    """A dense tensor of the same shape whose content no kernel would leave by accident."""
    out = torch.empty(like.shape, dtype=like.dtype)
    return out.view(torch.uint8).fill_(0x5A).view(like.dtype) if like.dim() and like.numel() else out


def close(actual: torch.Tensor, expected: torch.Tensor, what: str, scale: float = 1) -> None:
    rtol, atol = TOLERANCE.get(expected.dtype, (0, 0))
    torch.testing.assert_close(
        actual, expected, rtol=rtol * scale, atol=atol * scale, equal_nan=True, msg=lambda m: f"{what}: {m}"
    )


def check(host: Host, op: str, *args: Any, scale: float = 1) -> list[torch.Tensor]:
    """Runs one functional kernel and compares every output with the CPU's."""
    expected = call_cpu(op, args)
    outs: list[torch.Tensor | None] = [poison(e) for e in expected]
    host.run(op, list(args), outs)
    for i, (out, want) in enumerate(zip(outs, expected)):
        assert out is not None
        close(out, want, f"{op} output {i}", scale)
    return [out for out in outs if out is not None]


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    return torch.randint(0, 9, shape).to(dtype)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


# ---- Matrix products ------------------------------------------------------------------------------------------------

SIZES = [(4, 4, 4), (1, 1, 1), (5, 7, 3), (33, 65, 17), (130, 70, 300), (1, 50, 600), (600, 50, 1), (20, 0, 3), (0, 3, 2)]


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
        check(host, "aten::addmm", randn(*shape, dtype=dtype), randn(6, 4, dtype=dtype), randn(4, 5, dtype=dtype), beta, alpha)
        check(host, "aten::addmm", randn(*shape, dtype=dtype), randn(6, 0, dtype=dtype), randn(0, 5, dtype=dtype), beta, alpha)


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


# ---- Convolution ----------------------------------------------------------------------------------------------------

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
    (image, weight, args), bias = convolution_case(case, dtype, transposed)
    for b in (bias, None):
        check(host, "aten::convolution", image, weight, b, *args, scale=4)


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


# ---- Pooling --------------------------------------------------------------------------------------------------------

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
@pytest.mark.parametrize("shape,size", [((2, 3, 8, 9), (3, 4)), ((3, 5, 5), (1, 1)), ((2, 3, 4, 4), (7, 5)), ((2, 3, 5, 6, 7), (2, 3, 4))])
def test_adaptive_avg_pool(host: Host, shape: Any, size: Any, dtype: torch.dtype) -> None:
    x = randn(*shape, dtype=dtype)
    op = f"aten::_adaptive_avg_pool{len(size)}d"
    (out,) = check(host, op, x, list(size))
    check(host, f"{op}_backward", randn(*out.shape, dtype=dtype), x, scale=2)


# ---- Normalisation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(4, 3, 5, 5), (6, 3), (2, 3, 9), (8, 3, 16, 16)])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(host: Host, dtype: torch.dtype, affine: bool, shape: Any, training: bool) -> None:
    x = randn(*shape, dtype=dtype) * 2 + 3
    parameters = [randn(3, dtype=dtype) if affine else None for _ in range(2)]
    mean, var = randn(3, dtype=dtype), randn(3, dtype=dtype).abs() + 0.5
    ours, theirs = [mean.clone(), var.clone()], [mean.clone(), var.clone()]
    tail = [training, 0.1, 1e-5]
    expected = call_cpu("aten::native_batch_norm", [x, *parameters, *theirs, *tail])
    outs = [poison(e) for e in expected]
    host.run("aten::native_batch_norm", [x, *parameters, *ours, *tail], [*outs, *ours])
    for got, want in zip([*outs, *ours], [*expected, *theirs]):
        close(got, want, "batch norm", scale=3)
    saved = expected[1:] if training else [None, None]
    arguments = [randn(*shape, dtype=dtype), x, parameters[0], mean, var, *saved, training, 1e-5]
    want = call_cpu("aten::native_batch_norm_backward", [*arguments, [True] * 3])
    got = [poison(w) if w is not None else None for w in want]
    host.run("aten::native_batch_norm_backward", [*arguments, [True] * 3], got)
    for g, w in zip(got, want):
        if g is not None:
            close(g, w, "batch norm gradient", scale=8)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape,normal", [((4, 5, 6), [6]), ((4, 5, 6), [5, 6]), ((64,), [64]), ((3, 300), [300])])
def test_layer_norm(host: Host, dtype: torch.dtype, affine: bool, shape: Any, normal: list[int]) -> None:
    x = randn(*shape, dtype=dtype) + 2
    weight, bias = [randn(*normal, dtype=dtype) if affine else None for _ in range(2)]
    _, mean, rstd = check(host, "aten::native_layer_norm", x, normal, weight, bias, 1e-5, scale=2)
    arguments = [randn(*shape, dtype=dtype), x, normal, mean, rstd, weight, bias]
    if affine:
        check(host, "aten::native_layer_norm_backward", *arguments, [True] * 3, scale=4)
    want = call_cpu("aten::native_layer_norm_backward", [*arguments, [True, False, False]])[0]
    got = poison(want)
    host.run("aten::native_layer_norm_backward", [*arguments, [True, False, False]], [got, None, None])
    close(got, want, "input gradient", scale=4)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("n,c,hw,groups", [(2, 6, 10, 3), (3, 4, 1, 1), (2, 4, 9, 4), (2, 8, 64, 2)])
def test_group_norm(host: Host, dtype: torch.dtype, affine: bool, n: int, c: int, hw: int, groups: int) -> None:
    x = randn(n, c, hw, dtype=dtype) + 1
    weight, bias = [randn(c, dtype=dtype) if affine else None for _ in range(2)]
    _, mean, rstd = check(host, "aten::native_group_norm", x, weight, bias, n, c, hw, groups, 1e-3, scale=4)
    arguments = [randn(n, c, hw, dtype=dtype), x, mean, rstd, weight, n, c, hw, groups]
    if affine:
        check(host, "aten::native_group_norm_backward", *arguments, [True] * 3, scale=8)


# ---- Softmax and losses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("shape,dim", [((4, 5), 1), ((4, 5), 0), ((2, 3, 4), 1), ((7,), -1), ((), 0), ((0, 3), 1), ((3, 400), 1)])
@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_softmax(host: Host, dtype: torch.dtype, shape: Any, dim: int, name: str) -> None:
    x = randn(*shape, dtype=dtype) * 4
    if x.dim() == 2 and x.numel():
        x[0, 0] = float("-inf")
    (out,) = check(host, f"aten::{name}", x, dim, False)
    check(host, f"aten::{name}_backward_data", randn(*shape, dtype=dtype), out, dim, dtype, scale=2)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("shape", [(6, 4), (4,), (2, 4, 3, 5), (0, 4)])
def test_nll_loss(host: Host, dtype: torch.dtype, reduction: int, weighted: bool, shape: Any) -> None:
    op = "nll_loss2d" if len(shape) == 4 else "nll_loss"
    x = randn(*shape, dtype=dtype)
    weight = randn(4, dtype=dtype).abs() if weighted else None
    target = torch.randint(0, 4, (shape[:1] + shape[2:]) if len(shape) > 1 else ())
    if target.dim() and target.numel():
        target.view(-1)[0] = -100
    out, total = check(host, f"aten::{op}_forward", x, target, weight, reduction, -100, scale=2)
    gradient = randn(*out.shape, dtype=dtype)
    check(host, f"aten::{op}_backward", gradient, x, target, weight, reduction, -100, total, scale=2)


def test_nll_loss_refuses_bad_targets(host: Host) -> None:
    args = [randn(2, 3), torch.tensor([0, 3]), None, 1, -100]
    with pytest.raises(KernelFailed, match="Target 3 is out of bounds"):
        host.run("aten::nll_loss_forward", args, [torch.empty(()), torch.empty(())])


# ---- Indexing -------------------------------------------------------------------------------------------------------

MOVED = [torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64, torch.complex128]


@pytest.mark.parametrize("dtype", MOVED)
def test_embedding_and_index_select(host: Host, dtype: torch.dtype) -> None:
    weight = randn(7, 5, dtype=dtype)
    for index in (torch.randint(0, 7, (3, 4)), torch.randint(0, 7, (2,), dtype=torch.int32), torch.tensor(3), torch.empty(0, dtype=torch.int64)):
        check(host, "aten::embedding", weight, index, -1, False, False)
    x = randn(3, 4, 5, dtype=dtype)
    for dim in (0, 1, -1):
        check(host, "aten::index_select", x, dim, torch.tensor([0, 2, 2, 1]))
        check(host, "aten::index_select", x.transpose(0, 1), dim, torch.tensor([1], dtype=torch.int32))
    check(host, "aten::index_select", randn(dtype=dtype), 0, torch.tensor([0]))
    check(host, "aten::take", x, torch.tensor([[0, -1], [59, 7]]))


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("padding,scale", [(-1, False), (2, False), (-1, True)])
def test_embedding_backward(host: Host, dtype: torch.dtype, padding: int, scale: bool) -> None:
    index = torch.randint(0, 6, (4, 5))
    check(host, "aten::embedding_dense_backward", randn(4, 5, 3, dtype=dtype), index, 6, padding, scale, scale=4)


INDICES: list[tuple[tuple[int, ...], list[Any]]] = [
    ((5, 6, 7), [[0, -1, 3]]),
    ((5, 6, 7), [None, [[0], [5]]]),
    ((5, 6, 7), [[0, 1], [2, 3]]),
    ((5, 6, 7), [[[0], [1]], None, [2, 3, -7]]),
    ((5, 6, 7), [None, [1, 2], [3, 4]]),
    ((5, 6, 7), [[4], [5], [6]]),
    ((5, 6, 7), [3]),
    ((5,), [[[1, 2], [3, 4]]]),
    ((5, 6), [[]]),
    ((5, 0), [[0, 1]]),
]


def tensors(indices: list[Any]) -> list[torch.Tensor | None]:
    return [None if i is None else torch.tensor(i, dtype=torch.int64) for i in indices]


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("shape,indices", INDICES)
def test_index(host: Host, dtype: torch.dtype, shape: Any, indices: list[Any]) -> None:
    x = randn(*shape, dtype=dtype)
    check(host, "aten::index.Tensor", x, tensors(indices))
    padded = randn(*(2 * n for n in shape), dtype=dtype)[tuple(slice(None, None, 2) for _ in shape)]
    check(host, "aten::index.Tensor", padded, tensors(indices))


@pytest.mark.parametrize("dtype", [*REALS, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("shape,indices", INDICES)
def test_index_put(host: Host, dtype: torch.dtype, accumulate: bool, shape: Any, indices: list[Any]) -> None:
    x = randn(*shape, dtype=dtype)
    picked = call_cpu("aten::index.Tensor", [x, tensors(indices)])[0]
    for values in (randn(*picked.shape, dtype=dtype), randn(dtype=dtype)):
        want, got = x.clone(), x.clone()
        arguments = [tensors(indices), values, accumulate, False]
        call_cpu("aten::_index_put_impl_", [want, *arguments])
        if accumulate and (dtype == torch.bool or dtype.is_complex):
            with pytest.raises(Unsupported):
                host.run("aten::_index_put_impl_", [got, *arguments], [got])
            continue
        host.run("aten::_index_put_impl_", [got, *arguments], [got])
        close(got, want, "index_put")


@pytest.mark.parametrize("bad", [5, -6])
def test_bad_indices_are_reported(host: Host, bad: int) -> None:
    x, index = torch.zeros(5, 2), torch.tensor([1, bad])
    message = f"index {bad} is out of bounds for dimension 0 with size 5"
    cases: list[tuple[str, list[Any], torch.Tensor]] = [
        ("aten::index.Tensor", [x, [index]], torch.empty(2, 2)),
        ("aten::_index_put_impl_", [x, [index], torch.ones(2, 2), False, False], x),
        ("aten::gather", [x, 0, index.view(2, 1), False], torch.empty(2, 1)),
        ("aten::scatter.src", [x, 0, index.view(2, 1), torch.ones(2, 1)], torch.empty(5, 2)),
        ("aten::scatter_add", [x, 0, index.view(2, 1), torch.ones(2, 1)], torch.empty(5, 2)),
        ("aten::index_fill.int_Scalar", [x, 0, index, 1.0], torch.empty(5, 2)),
    ]
    for op, args, out in cases:
        with pytest.raises(KernelFailed, match=message):
            host.run(op, args, [out])
    with pytest.raises(KernelFailed, match="index out of range in self"):
        host.run("aten::embedding", [x, index, -1, False, False], [torch.empty(2, 2)])
    assert torch.equal(x, torch.zeros(5, 2))


@pytest.mark.parametrize("dtype", [*REALS, torch.int64, torch.uint8])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather_and_scatter(host: Host, dtype: torch.dtype, dim: int) -> None:
    x, source = randn(4, 5, 6, dtype=dtype), randn(3, 4, 5, dtype=dtype)
    index = torch.randint(0, 4, (3, 4, 5))
    transposed = randn(6, 5, 4, dtype=dtype).transpose(0, 2)
    for self in (x, transposed):
        check(host, "aten::gather", self, dim, index, False)
        check(host, "aten::scatter_add", self, dim, index, source, scale=4)
        check(host, "aten::scatter.value", self, dim, index, 3)
        for reduce in ("sum", "prod", "amax", "amin", "mean"):
            for include in (True, False):
                check(host, "aten::scatter_reduce.two", self, dim, index, source, reduce, include, scale=8)
        for reduce in ("add", "multiply"):
            check(host, "aten::scatter.reduce", self, dim, index, source, reduce, scale=8)
            check(host, "aten::scatter.value_reduce", self, dim, index, 2, reduce, scale=8)
    unique = torch.arange(3).view(3, 1, 1).expand(3, 4, 5)
    check(host, "aten::scatter.src", x, 0, unique, source)


@pytest.mark.parametrize("dtype", [*REALS, torch.int64, torch.uint8])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_slices(host: Host, dtype: torch.dtype, dim: int) -> None:
    x = randn(5, 5, 5, dtype=dtype)
    shape = [5, 5, 5]
    shape[dim] = 3
    index, source = torch.tensor([4, 0, 2]), randn(*shape, dtype=dtype)
    for self in (x, x.transpose(0, 2)):
        check(host, "aten::index_add", self, dim, index, source, 1, scale=2)
        check(host, "aten::index_add", self, dim, torch.tensor([1, 1, 1]), source, 2, scale=8)
        check(host, "aten::index_copy", self, dim, index, source)
        check(host, "aten::index_fill.int_Scalar", self, dim, torch.tensor([0, -1]), 7)


def test_scalars_and_empty(host: Host) -> None:
    one, zero = torch.tensor(1.5), torch.tensor(0)
    check(host, "aten::gather", one, 0, zero, False)
    check(host, "aten::gather", one, 0, torch.tensor([0, 0]), False)
    check(host, "aten::scatter.src", one, 0, zero, torch.tensor(2.5))
    check(host, "aten::scatter_add", torch.ones(3), 0, torch.tensor([1]), torch.tensor([4.0]))
    check(host, "aten::index_add", one, 0, zero, torch.tensor(2.0), 1)
    check(host, "aten::index_fill.int_Scalar", one, 0, zero, 9.0)
    check(host, "aten::gather", torch.ones(3, 4), 1, torch.empty(3, 0, dtype=torch.int64), False)
    check(host, "aten::scatter_add", torch.ones(3, 4), 1, torch.empty(0, dtype=torch.int64), torch.ones(3, 4))
    check(host, "aten::scatter.value", torch.tensor([True, False]), 0, torch.tensor([1]), True)


@pytest.mark.parametrize("dtype", [*MOVED, torch.bfloat16])
def test_cat(host: Host, dtype: torch.dtype) -> None:
    a, b = randn(2, 3, dtype=dtype), randn(2, 4, dtype=dtype)
    legacy = torch.empty(0, dtype=dtype)
    for dim in (1, -1):
        check(host, "aten::cat", [a, b], dim)
        check(host, "aten::cat", [a, legacy, b, randn(2, 0, dtype=dtype)], dim)
    check(host, "aten::cat", [randn(3, 2, dtype=dtype).t(), randn(1, 3, dtype=dtype)], 0)
    check(host, "aten::cat", [legacy, legacy], 0)


def test_cat_casts(host: Host) -> None:
    mixed = [torch.tensor([1, -2]), torch.tensor([1.5]), torch.tensor([True]), torch.tensor([0.5]).half()]
    check(host, "aten::cat", mixed, 0)
    check(host, "aten::cat", [torch.tensor([-1], dtype=torch.int8), torch.tensor([0.5]).bfloat16()], 0)
    with pytest.raises(Unsupported):
        check(host, "aten::cat", [torch.tensor([1j]), torch.tensor([1.0])], 0)


@pytest.mark.parametrize("dtype", [*REALS, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("shape,dim", [((20,), 0), ((5, 30), 1), ((30, 5), 0), ((), 0), ((0, 3), 1)])
def test_sort(host: Host, dtype: torch.dtype, descending: bool, shape: Any, dim: int) -> None:
    x = randn(*shape, dtype=dtype)
    if dtype.is_floating_point and x.numel() > 2:
        x.view(-1)[2] = float("nan")
    check(host, "aten::sort.stable", x, True, dim, descending)


@pytest.mark.parametrize("dtype", [*REALS, torch.int64])
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("shape,dim,k", [((20,), 0, 5), ((5, 300), 1, 3), ((5, 30), 1, 30), ((30, 5), 0, 4), ((), 0, 1), ((9,), 0, 0)])
def test_topk(host: Host, dtype: torch.dtype, largest: bool, shape: Any, dim: int, k: int) -> None:
    x = randn(*shape, dtype=dtype)
    check(host, "aten::topk", x, k, dim, largest, True)


# ---- Optimizers -----------------------------------------------------------------------------------------------------

OPTIMIZERS: list[tuple[str, int, list[Any]]] = [
    # operator, lists of states beside parameters and gradients, options
    ("_fused_adam_", 3, [1e-2, 0.9, 0.99, 0.1, 1e-8, True, False]),
    ("_fused_adam_", 3, [1e-2, 0.4, 0.99, 0.0, 1e-8, False, True]),
    ("_fused_adamw_", 3, [1e-2, 0.9, 0.99, 0.1, 1e-8, True, False]),
    ("_fused_sgd_", 1, [0.1, 0.9, 1e-2, 0.1, True, False, False]),
    ("_fused_sgd_", 1, [0.0, 0.9, 1e-2, 0.0, False, True, True]),
    ("_fused_sgd_", 1, [0.1, 0.0, 1e-2, 0.0, False, False, False]),
    ("_fused_adagrad_", 1, [1e-2, 0.1, 0.1, 1e-8, False]),
]


def optimizer_lists(states: int, dtype: torch.dtype) -> list[list[torch.Tensor]]:
    shapes: list[tuple[int, ...]] = [(5, 3), (70,), (0,), (2, 3, 4, 5)]
    lists = [[randn(*shape, dtype=dtype) for shape in shapes] for _ in range(2 + states)]
    for state in lists[3:] or lists[2:]:
        for tensor in state:
            tensor.abs_()
    return lists


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("scale", [None, 2.0])
@pytest.mark.parametrize("op,states,options", OPTIMIZERS)
def test_fused_optimizers(host: Host, op: str, states: int, options: list[Any], scale: float | None, dtype: torch.dtype) -> None:
    ours = optimizer_lists(states, dtype)
    if ("adam" in op and not options[5]) or ("sgd" in op and not options[1]):
        ours[-1] = []  # no largest average, or no momentum
    theirs = [[t.double() for t in tensors] for tensors in ours]  # the CPU's SGD is inexact in the 16-bit types
    steps = [] if "sgd" in op else [[torch.tensor(3.0) for _ in ours[0]]]
    unscale = [None, None] if scale is None else [torch.tensor(scale), torch.tensor(0.0)]
    call_cpu(f"aten::{op}", [*theirs, *steps, *options, *unscale])
    host.run(f"aten::{op}", [*ours, *steps, *options, *unscale], [t for tensors in ours for t in tensors])
    for got, want in zip(ours, theirs):
        for g, w in zip(got, want):
            close(g, w.to(dtype), op)


def test_fused_optimizers_skip_an_overflow(host: Host) -> None:
    lists = optimizer_lists(1, torch.float32)
    before = [t.clone() for t in lists[0]]
    options = [0.1, 0.9, 1e-2, 0.1, True, False, False, torch.tensor(2.0), torch.tensor(1.0)]
    host.run("aten::_fused_sgd_", [*lists, *options], [t for tensors in lists for t in tensors])
    assert all(torch.equal(a, b) for a, b in zip(lists[0], before))
