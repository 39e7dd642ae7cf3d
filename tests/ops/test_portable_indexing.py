# SPDX-License-Identifier: Apache-2.0
"""Indexing by portable kernels where the operator suite's samples are too small or too well behaved."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.behaviour.agree import agree, agree_gradients, values
from tests.harness import device
from tests.harness.device import DEVICE

PORTABLE = os.environ.get("SIMCHIP_HIDE_KERNELS") == "2"
portable = pytest.mark.skipif(not PORTABLE, reason="run by the first test, with only the portable kernels")
REPEATED = torch.randint(0, 40, (6000,), generator=torch.Generator().manual_seed(1))


@pytest.mark.skipif(device.is_stock() or PORTABLE, reason="about a chip with a compiler")
def test_with_the_portable_kernels_alone(kernel_cache: str) -> None:
    environment = {"SIMCHIP_HIDE_KERNELS": "2", "TORCH_FL_FALLBACK": "deny", "TORCH_FL_CACHE_DIR": kernel_cache}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__))],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


@portable
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("shape", [(), (3,), (300,)], ids=str)  # one line, narrow rows, rows cut into pieces
def test_repeated_indices_among_several_work_items(shape: tuple[int, ...]) -> None:
    x, source = values((40, *shape), torch.int64), values((6000, *shape), torch.int64, 1)
    agree(lambda a, i, s: a.index_add(0, i, s), x, REPEATED, source)
    agree(lambda a, i, s: a.index_put((i,), s, accumulate=True), x, REPEATED, source)
    agree(lambda a, i, s: a.index_reduce(0, i, s, "amax", include_self=False), x, REPEATED, source)
    index = REPEATED.view(-1, *[1] * len(shape)).expand_as(source)
    agree(lambda a, i, s: a.scatter_add(0, i, s), x, index, source)
    agree(lambda a, i, s: a.scatter_reduce(0, i, s, "mean"), x, index, source)


@portable
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float64, torch.complex128], ids=str)
def test_the_last_of_several_writes_stays(dtype: torch.dtype) -> None:
    source = torch.arange(6000).remainder(101).to(dtype)
    expected = torch.zeros(40, dtype=dtype)
    for place, value in zip(REPEATED.tolist(), source, strict=True):
        expected[place] = value
    index, there = REPEATED.to(DEVICE), source.to(DEVICE)
    writes: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda a: a.index_put_((index,), there),
        lambda a: a.index_copy_(0, index, there),
        lambda a: a.scatter_(0, index, there),
        lambda a: a.put_(index, there),
    ]
    for write in writes:
        assert torch.equal(write(torch.zeros(40, dtype=dtype).to(DEVICE)).cpu(), expected)


@portable
def test_what_lies_outside_is_neither_read_nor_written() -> None:
    whole = torch.arange(30.0).view(10, 3)
    x = whole.to(DEVICE)
    inner, index = x[4:6], torch.tensor([0, 2, -1, 10**12, 1]).to(DEVICE)
    expected = torch.full((5, 3), torch.nan)
    expected[0], expected[4] = whole[4], whole[5]
    same = partial(torch.testing.assert_close, rtol=0, atol=0, equal_nan=True)
    same(inner.index_select(0, index).cpu(), expected)
    same(inner.gather(0, index[:, None].expand(5, 3)).cpu(), expected)
    expected[2] = whole[5]  # counts from the end
    same(inner[index].cpu(), expected)
    ones = torch.ones(5, 3).to(DEVICE)
    inner.index_add_(0, index, ones)
    inner.scatter_add_(0, index[:, None].expand(5, 3), ones)
    inner.index_put_((index,), ones, accumulate=True)
    whole[4] += 3
    whole[5] += 4
    assert torch.equal(x.cpu(), whole)


@portable
@pytest.mark.parametrize("shape", [(0, 3), (70000,), (300, 7, 31)], ids=str)
def test_what_is_chosen_keeps_its_order(shape: tuple[int, ...]) -> None:
    x = values(shape, torch.float32)
    mask = values(shape, torch.bool, 2)
    for where in (mask, torch.zeros_like(mask), torch.ones_like(mask)):
        agree(lambda m: m.nonzero(), where, strides=True)
        agree(lambda a, m: a.masked_select(m), x, where)
        agree(lambda a, m, s: a.masked_scatter(m, s), x, where, x.flip(0))
        agree(lambda m: torch.nonzero_static(m, size=100, fill_value=-7), where)


@portable
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sums_of_embeddings_are_formed_in_float32(dtype: torch.dtype) -> None:
    weight, index = values((40, 24), dtype), REPEATED.view(60, 100)
    exact = torch.zeros(40, 24, dtype=torch.float64)
    gradient = values((60, 100, 24), dtype, 3)
    exact.index_add_(0, REPEATED, gradient.double().view(-1, 24))
    leaf = weight.to(DEVICE).requires_grad_()
    output = torch.nn.functional.embedding(index.to(DEVICE), leaf)
    (found,) = torch.autograd.grad(output, leaf, gradient.to(DEVICE))
    rtol = 5e-3 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(found.cpu().double(), exact, rtol=rtol, atol=1e-3)
    offsets = torch.arange(0, 6000, 75)
    for mode in ("sum", "mean", "max"):
        agree_gradients(
            lambda w, mode=mode: torch.nn.functional.embedding_bag(
                REPEATED.to(w.device), w, offsets.to(w.device), mode=mode, padding_idx=3
            ),
            weight.float(),
            tolerance=(1e-4, 1e-3),
        )


@portable
def test_searches_in_long_lines() -> None:
    line = torch.linspace(-3, 3, 5001)
    line[-1] = float("nan")
    x = values((37, 19), torch.float32)
    x[3, 3] = float("nan")
    for right in (False, True):
        agree(lambda s, v, right=right: torch.searchsorted(s, v, right=right), line, x)
        agree(lambda s, v, right=right: torch.bucketize(v, s, right=right, out_int32=True), line, x)
    lines = values((37, 50), torch.float32, 4)
    agree(lambda s, o, v: torch.searchsorted(s, v, sorter=o), lines, lines.argsort(-1), x)
    agree(torch.isin, torch.arange(5000), torch.arange(0, 9000, 3))
