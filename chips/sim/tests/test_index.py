# SPDX-License-Identifier: Apache-2.0
"""Indexing, gather and scatter, cat and sort against PyTorch's CPU kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from nn_host import REALS, Host, KernelFailed, Unsupported, call_cpu, check, close, randn

# ---- Indexing --------------------------------------------------------------------------------------------------------

MOVED = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
]


@pytest.mark.parametrize("dtype", MOVED)
def test_embedding_and_index_select(host: Host, dtype: torch.dtype) -> None:
    weight = randn(7, 5, dtype=dtype)
    for index in (
        torch.randint(0, 7, (3, 4)),
        torch.randint(0, 7, (2,), dtype=torch.int32),
        torch.tensor(3),
        torch.empty(0, dtype=torch.int64),
    ):
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
@pytest.mark.parametrize(
    "shape,dim,k", [((20,), 0, 5), ((5, 300), 1, 3), ((5, 30), 1, 30), ((30, 5), 0, 4), ((), 0, 1), ((9,), 0, 0)]
)
def test_topk(host: Host, dtype: torch.dtype, largest: bool, shape: Any, dim: int, k: int) -> None:
    x = randn(*shape, dtype=dtype)
    check(host, "aten::topk", x, k, dim, largest, True)


# ---- Counted outputs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", MOVED)
def test_nonzero_and_masked_select(host: Host, dtype: torch.dtype) -> None:
    x = randn(4, 5, 3, dtype=dtype) * (torch.rand(4, 5, 3) < 0.5).to(dtype)
    for self in (x, x.transpose(0, 2), x[:, 1:2].expand(4, 6, 3), x[0, 0, 0], x[:0]):
        check(host, "aten::nonzero", self)
    for mask in (
        torch.rand(4, 5, 3) < 0.5,
        torch.rand(5, 1) < 0.5,
        torch.zeros(3, dtype=torch.bool),
        torch.tensor(True),
    ):
        check(host, "aten::masked_select", x, mask)
        check(host, "aten::masked_select", x[:, :1], mask)
    with pytest.raises(Unsupported, match="not bool"):
        host.run("aten::masked_select", [x, torch.ones(3, dtype=torch.uint8)], [torch.empty(60, dtype=dtype)])
