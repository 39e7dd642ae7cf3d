# SPDX-License-Identifier: Apache-2.0
"""Edges that kernels of every kind must meet: the chip's own, the portable ones, and the host's."""

from __future__ import annotations

import pytest

from tests.framework.helpers import run_child

PROGRAM = """
import math, torch

def raises(text, call):
    try:
        call()
    except RuntimeError as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)

# A norm of another type is that of the elements in it.
for x, order in ((torch.full((3,), 3e38), 2), (torch.full((1000,), 1e-23), 2), (torch.full((9,), 3e38), 3)):
    expected = torch.linalg.vector_norm(x, order, dtype=torch.float64)
    torch.testing.assert_close(torch.linalg.vector_norm(x.to("fl"), order, dtype=torch.float64).cpu(), expected)
z = torch.complex(torch.full((3,), 3e38), torch.full((3,), -3e38))
for order in (0.5, 1, 2, 3, math.inf, -math.inf):
    expected = torch.linalg.vector_norm(z, order, dtype=torch.complex128)
    torch.testing.assert_close(torch.linalg.vector_norm(z.to("fl"), order, dtype=torch.complex128).cpu(), expected)
assert torch.linalg.vector_norm(torch.ones(3, device="fl"), math.nan).isnan()

# Uniform numbers never are the upper bound, however few bits there are.
for dtype in (torch.float16, torch.bfloat16, torch.float32):
    torch.manual_seed(0)
    x = torch.rand(1 << 18, dtype=dtype, device="fl")
    assert 0 <= x.min() and x.max() < 1, dtype
    x.uniform_(1, 2)
    assert 1 <= x.min() and x.max() < 2, dtype
    assert x.uniform_(3, 3).eq(3).all()
    torch.manual_seed(0)
    print(dtype, torch.rand(1 << 18, dtype=dtype, device="fl").double().sum().item())

# In evaluation the gradient of a batch norm has nothing to do with its input.
for size in ((2, 3, 4), (4, 3)):
    x = torch.randn(size)
    x[0, 1], x[1, 2] = math.inf, math.nan
    x = x.to("fl").requires_grad_()
    mean, variance = torch.zeros(3, device="fl"), torch.full((3,), 4.0, device="fl")
    y = torch.nn.functional.batch_norm(x, mean, variance, training=False, eps=0.0)
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert gradient.eq(0.5).all(), gradient

# No elements have no statistics.
aten = torch.ops.aten
for size in ((0, 3, 4), (4, 0, 3)):
    x = torch.empty(size, device="fl")
    raises("at least one element", lambda: aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5))
    raises("at least one element", lambda: aten.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5))

# A transposed convolution that leaves nothing.
x, w = torch.randn(1, 2, 3, 5, 5, device="fl"), torch.randn(2, 6, 1, 4, 4, device="fl")
raises("Output size is too small", lambda: torch.nn.functional.conv_transpose3d(
    x, w, stride=(1, 1, 2), padding=(2, 3, 4), dilation=(2, 2, 1), output_padding=(1, 1, 0)))
"""


@pytest.fixture(scope="module")
def sums() -> dict[str, str]:
    return {hidden: run_child(PROGRAM, SIMCHIP_HIDE_KERNELS=hidden, TORCH_FL_LOG="error").stdout for hidden in "012"}


def test_every_kind_of_kernel_meets_them(sums: dict[str, str]) -> None:
    assert len(sums) == 3


def test_the_same_numbers_are_drawn_in_few_bits(sums: dict[str, str]) -> None:
    assert len(set(sums.values())) == 1, sums
