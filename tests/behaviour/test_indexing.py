# SPDX-License-Identifier: Apache-2.0
"""Indexing: masks, None, negative and out-of-range indices, reading and writing, with gradients."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.behaviour.agree import COMMON, DEVICE, HIDDEN_KERNELS, agree, agree_gradients, short, values
from tests.harness import device

# Each makes an index out of nothing but the device it should live on.
INDICES: dict[str, Callable[[torch.device], Any]] = {
    "integer": lambda d: 1,
    "negative": lambda d: -2,
    "slice": lambda d: slice(1, 3),
    "step": lambda d: (slice(None), slice(0, 5, 2)),
    "none": lambda d: None,
    "none between": lambda d: (0, None, slice(1, 4)),
    "ellipsis": lambda d: (..., -1),
    "list": lambda d: [0, 2, -1],
    "tensor": lambda d: torch.tensor([0, 2, 1, 0], device=d),
    "negative tensor": lambda d: torch.tensor([-1, -3], device=d),
    "int32 tensor": lambda d: torch.tensor([1, 0], device=d, dtype=torch.int32),
    "two tensors": lambda d: (torch.tensor([0, 1], device=d), torch.tensor([3, -1], device=d)),
    "broadcast": lambda d: (torch.tensor([[0], [2]], device=d), torch.tensor([1, 4], device=d)),
    "tensor behind slice": lambda d: (slice(None), torch.tensor([4, 0], device=d)),
    "none and tensor": lambda d: (None, torch.tensor([1, 2], device=d)),
    "mask": lambda d: torch.tensor([True, False, True], device=d),
    "full mask": lambda d: torch.arange(15, device=d).view(3, 5) % 2 == 0,
    "mask behind slice": lambda d: (slice(None), torch.tensor([True, False, True, True, False], device=d)),
    "mask of nothing": lambda d: torch.zeros(3, 5, dtype=torch.bool, device=d),
    "uint8 mask": lambda d: torch.tensor([1, 0, 1], device=d, dtype=torch.uint8),
    "zero-dim tensor": lambda d: torch.tensor(1, device=d),
    "zero-dim mask": lambda d: torch.tensor(True, device=d),
    "python bool": lambda d: True,
    "no index": lambda d: torch.tensor([], dtype=torch.int64, device=d),
    "repeated": lambda d: torch.tensor([1, 1, 1], device=d),
    "too large": lambda d: 3,
    "too small": lambda d: -4,
    "tensor too large": lambda d: torch.tensor([0, 3], device=d),
    "tensor too small": lambda d: torch.tensor([-4], device=d),
    "too many": lambda d: (0, 0, 0),
    "mask of wrong size": lambda d: torch.tensor([True, False], device=d),
    "float tensor": lambda d: torch.tensor([0.5], device=d),
    "shapes that do not broadcast": lambda d: (torch.tensor([0, 1], device=d), torch.tensor([0, 1, 2], device=d)),
}


@pytest.mark.parametrize("name", INDICES)
def test_reading(name: str) -> None:
    agree(lambda x: x[INDICES[name](x.device)], values((3, 5), torch.float32))
    agree(lambda x: x.t()[:, :3].t()[INDICES[name](x.device)], values((5, 3), torch.float32))


@pytest.mark.parametrize("name", INDICES)
def test_writing(name: str) -> None:
    def scalar(x: torch.Tensor) -> torch.Tensor:
        x[INDICES[name](x.device)] = 7
        return x

    def tensor(x: torch.Tensor) -> torch.Tensor:
        index = INDICES[name](x.device)
        x[index] = x[index].clone() * 2 + 1
        return x

    def host_scalar(x: torch.Tensor) -> torch.Tensor:
        x[INDICES[name](x.device)] = torch.tensor(5.0)  # 0-dim of the CPU
        return x

    def added(x: torch.Tensor) -> torch.Tensor:
        x[INDICES[name](x.device)] += 1
        return x

    for function in (scalar, tensor, host_scalar, added):
        agree(function, values((3, 5), torch.float32))


@pytest.mark.parametrize("name", [name for name in INDICES if "too" not in name and "wrong" not in name])
def test_gradients(name: str) -> None:
    if name in ("float tensor", "shapes that do not broadcast"):
        pytest.skip("raises on the CPU")
    agree_gradients(lambda x: x[INDICES[name](x.device)] * 2, values((3, 5), torch.float64))


@pytest.mark.parametrize("dtype", COMMON, ids=short)
def test_types(dtype: torch.dtype) -> None:
    x = values((3, 5), dtype)
    agree(lambda a: a[a == a[0, 0]], x)
    agree(lambda a: a[[2, 0]], x)
    agree(lambda a: a.masked_fill(a == a[0, 0], 1), x)
    agree(lambda a: a.masked_select(a != a[0, 0]), x)
    agree(lambda a: a.index_put((torch.tensor([0, 0], device=a.device),), a[1:3], accumulate=True), x)


def test_host_indices_are_accepted() -> None:
    """Stock PyTorch lets CPU index tensors index a tensor of another device."""
    x = values((3, 5), torch.float32)
    index = torch.tensor([2, 0])
    mask = torch.tensor([True, False, True])
    assert torch.equal(x.to(DEVICE)[index].cpu(), x[index])
    assert torch.equal(x.to(DEVICE)[mask].cpu(), x[mask])
    moved = x.to(DEVICE)
    moved[index] = 0
    expected = x.clone()
    expected[index] = 0
    assert torch.equal(moved.cpu(), expected)


def test_out_of_range_is_an_index_error_and_the_device_lives_on() -> None:
    x = torch.arange(4.0, device=DEVICE)
    with pytest.raises(IndexError):
        x[torch.tensor([4], device=DEVICE)].cpu()
    with pytest.raises(IndexError):
        x[4]
    with pytest.raises(IndexError):
        x.select(1, 0)
    assert x.sum().item() == 6


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(accumulate: bool) -> None:
    x, index, value = values((4, 3), torch.float32), torch.tensor([0, -1, 2]), values((3, 3), torch.float32, 1)
    agree(lambda a, i, v: a.index_put_((i,), v, accumulate), x, index, value)
    agree(lambda a, i, v: a.index_put((i, i.clamp(max=1)), v[0], accumulate), x, index, value)
    agree(lambda a, i, v: a.index_put_((torch.tensor([9], device=a.device),), v[:1], accumulate), x, index, value)
    agree(lambda a, i, v: a.index_put_((i,), v.double(), accumulate), x, index, value)


def test_index_put_accumulates_repeated_indices() -> None:
    agree(
        lambda a, i, v: a.index_put_((i,), v, accumulate=True),
        torch.zeros(3),
        torch.tensor([1, 1, 1, 0]),
        torch.tensor([1.0, 2.0, 3.0, 4.0]),
    )


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather_scatter_and_relatives(dim: int) -> None:
    x, source = values((3, 5), torch.float32), values((3, 5), torch.float32, 1)
    index = torch.tensor([[0, 1, 2, 0, 1], [2, 2, 0, 1, 0], [1, 0, 1, 2, 2]])
    line = torch.tensor([2, 0])
    agree(lambda a, i: a.gather(dim, i), x, index)
    agree(lambda a, i: a.take_along_dim(i, dim), x, index)
    agree(lambda a, i, s: a.scatter(dim, i, s), torch.zeros(3, 5), index[:1], source)
    agree(lambda a, i: a.scatter(dim, i, 2.5), x, index)
    agree(lambda a, i, s: a.scatter_add_(dim, i, s), x, index, source)
    agree(lambda a, i, s: a.scatter_reduce(dim, i, s, "amax"), x, index, source)
    agree(lambda a, i: a.index_select(dim, i), x, line)
    agree(lambda a, i: a.index_fill(dim, i, 9), x, line)
    agree(lambda a, i: a.index_add_(dim, i, a.index_select(dim, i), alpha=2), x, line)
    agree(lambda a, i: a.index_copy_(dim, i, a.index_select(dim, i.flip(0))), x, line)
    agree(lambda a, i: a.gather(dim, i + 10), x, index)
    agree(lambda a, i: a.index_select(dim, i - 5), x, line)
    agree_gradients(lambda a: a.gather(dim, index.to(a.device)) * 2, x.double())


def test_take_put_and_nonzero() -> None:
    x = values((3, 4), torch.float32)
    agree(lambda a: a.take(torch.tensor([0, -1, 5], device=a.device)), x)
    agree(lambda a: a.put_(torch.tensor([1, 2], device=a.device), a[0, :2].clone()), x)
    agree(lambda a: (a > 0).nonzero(), x, strides=True)
    agree(lambda a: (a > 0).nonzero(as_tuple=True), x)
    agree(lambda a: (a > 100).nonzero(), x)
    agree(lambda a: torch.argwhere(a > 0), x)
    agree(lambda a: a.unique(return_inverse=True, return_counts=True), x.round())
    agree(lambda a: a[a > 0].sum(), x)
    agree(lambda a: torch.bincount(a.long().abs().flatten()), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.complex64, torch.bool], ids=str)
def test_masks_as_indices(dtype: torch.dtype) -> None:
    x = values((3, 4, 2), dtype)
    rows, plane = torch.tensor([True, False, True]), values((3, 4), torch.bool, 3)
    for index in (rows, plane, (slice(None), plane[0]), (rows, 1), (rows, slice(0, 2)), (rows, torch.tensor([3, 0]))):
        for host in (False, True):  # a mask of the CPU selects from a tensor of the device
            agree(lambda a, i, host=host: a[_on(i, "cpu" if host else a.device)], x, index)
            agree(lambda a, i, host=host: a.index_put_(_on(i, "cpu" if host else a.device), a.new_ones(())), x, rows)
    none = torch.zeros(3, dtype=torch.bool)
    agree(lambda a, i: a[i], x, none)
    agree(lambda a, i: a.__setitem__(i, 1), x, none)
    agree(lambda a, i: a.__setitem__(i, a[:2] + a[:2]), x, rows)
    agree(lambda a, i: a.__setitem__(i, a.clone()), x, rows)  # three rows for two places
    agree(lambda a, i: a.__setitem__(i, a), x, rows)  # what is written is read
    agree(lambda a, i: a.__setitem__([2, 0], a[:2]), x, rows)
    agree(lambda a, i: a[i], x, torch.ones(4, dtype=torch.bool))  # of another size
    agree(lambda a, i: a[:, :, :, i], x, rows)  # of too many dimensions
    agree(lambda a, i: a.index_put((i,), a.new_ones(()), accumulate=True), x, rows)
    agree(lambda a, i: torch.ops.aten.index.Tensor_out(a, [i], out=a.new_empty(0)), x, plane)
    agree(lambda a, i: torch.nonzero(a, out=i.new_empty(0, dtype=torch.int64)), x, plane)
    agree(lambda a, i: torch.masked_select(a, i, out=a.new_empty(5)), x, plane[..., None])
    agree(lambda a, i: torch.masked_select(a, i.to(torch.uint8)), x, plane[..., None])
    agree(lambda a, i: torch.masked_select(a[0], i), x, plane[..., None])  # both broadcast
    agree(lambda a, i: torch.masked_select(a, i), x, torch.tensor(True))


def test_indices_that_select_nothing_are_not_looked_at() -> None:
    far = torch.tensor([9])
    agree(lambda a, i: a[i], torch.zeros(3, 0), far)
    agree(lambda a, i: a[i, 0:0], torch.zeros(3, 4), far)
    agree(lambda a, i: a.index_put_((i,), a.new_zeros(())), torch.zeros(3, 0), far)
    agree(lambda a, i: a[i], torch.zeros(0, 3), far)
    agree(lambda a, i: a[i, i[:0]], torch.zeros(3, 4), far)


def test_strides_of_positions() -> None:
    for shape in ((3,), (1,), (0,), (3, 2), (1, 1), (0, 2)):
        for fill in (0, 1):
            here = torch.full(shape, fill).nonzero()
            assert torch.full(shape, fill, device=DEVICE).nonzero().stride() == here.stride()


def test_errors_of_earlier_work_come_through_counting() -> None:
    """Counting waits for the device; what fails there is not taken for a refusal."""
    x = torch.randn(4, 5, device=DEVICE)
    far = torch.tensor([99], device=DEVICE)
    for count in (lambda: (x > 0).nonzero(), lambda: x.masked_select(x > 0), lambda: x[x > 0]):

        def later(count: Callable[[], Any] = count) -> None:
            x[far]
            count()

        with pytest.raises(IndexError):
            later()


MASK_CHANGES = """
import torch
n = 64
x, full = torch.arange(float(n)).to("fl"), torch.ones(n, dtype=torch.bool).to("fl")
few = (torch.arange(n) < 3).to("fl")
mask, side = full.clone(), torch.fl.Stream(device="fl:0")
delay = torch.zeros(1, device="fl")
torch.fl.synchronize()
with torch.fl.stream(side):
    delay.add_(1)
    mask.copy_(few)
x[mask]
torch.fl.synchronize()
assert x[torch.arange(n).to("fl")].tolist() == x.tolist()
"""


@pytest.mark.skipif(device.is_stock() or HIDDEN_KERNELS, reason="about kernels that count")
def test_a_mask_that_changes_meanwhile_spoils_no_later_call() -> None:
    """A race of the caller's, who gets some answer; the plan that was made in it must not serve another call."""
    environment = {**os.environ, "SIMCHIP_SLOW_STREAM_US": "20000"}
    subprocess.run([sys.executable, "-c", MASK_CHANGES], env=environment, check=True, timeout=120)


def test_values_that_do_not_fit_the_indices() -> None:
    x = values((3, 4, 2), torch.float32)
    for shape in ((3, 4, 2), (2, 4, 3), (2, 5, 2), (5, 2, 4, 2), (1, 1, 2, 4, 2), (2, 4, 1), (4, 1), ()):
        agree(lambda a, v: a.__setitem__([2, 0], v), x, torch.ones(shape))
        agree(lambda a, v: torch.index_put(a, (torch.tensor([2, 0], device=a.device),), v), x, torch.ones(shape))
        agree(lambda a, v: a.__setitem__((slice(None), [[0], [3]], [0, 1]), v), x, torch.ones(shape))
        agree(lambda a, v: a.__setitem__(([0, 1], slice(None), [0, 1]), v), x, torch.ones(shape))


def _on(index: Any, where: Any) -> tuple[Any, ...]:
    parts = index if isinstance(index, tuple) else (index,)
    return tuple(part.to(where) if isinstance(part, torch.Tensor) else part for part in parts)


def test_nonzero_of_negative_zero_and_nan() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        agree(torch.nonzero, torch.tensor([0.0, -0.0, float("nan"), 1e-7, float("-inf")], dtype=dtype))
    agree(torch.nonzero, torch.tensor([0, complex(0, -0.0), complex(-0.0, 2), 1j], dtype=torch.complex64))
    agree(torch.nonzero, torch.tensor([-128, 0, 127], dtype=torch.int8))
    for shape in ((), (0,), (2, 0), (1, 1, 1)):
        agree(torch.nonzero, torch.ones(shape), strides=True)


def test_embedding_padding_and_range() -> None:
    weight, index = values((5, 3), torch.float32), torch.tensor([[0, 4], [2, 2]])
    agree(lambda w, i: torch.nn.functional.embedding(i, w), weight, index)
    agree(lambda w, i: torch.nn.functional.embedding(i, w, padding_idx=2), weight, index)
    agree(lambda w, i: torch.nn.functional.embedding(i + 3, w), weight, index)
    agree_gradients(lambda w: torch.nn.functional.embedding(index.to(w.device), w, padding_idx=2) * 3, weight.double())
