# SPDX-License-Identifier: Apache-2.0
"""Pooling, resampling and grid samplers beyond what the operator suite tries: sizes that take several tiles or work
items, layouts, infinities, indices from outside, and that the same call gives the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.behaviour.agree import HIDDEN_KERNELS, agree
from tests.harness.device import DEVICE

LAYOUTS = {"dense": torch.contiguous_format, "channels last": torch.channels_last}


def _image(*sizes: int, layout: torch.memory_format = torch.contiguous_format, dtype: Any = torch.float32) -> Any:
    values = torch.randn(sizes, generator=torch.Generator().manual_seed(0)).to(dtype)
    return values.contiguous(memory_format=layout)


def _with_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function's result, and the gradients of its tensor arguments for uneven weights."""

    def run(*args: torch.Tensor) -> tuple[Any, ...]:
        leaves = [a.detach().requires_grad_() for a in args]
        result = function(*leaves)
        weights = torch.linspace(-1, 1, result.numel()).to(result).view(result.shape)
        return (result, *torch.autograd.grad(result, leaves, weights))

    return run


IMAGES: dict[str, Callable[..., Any]] = {
    "max pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max pool, dilated": lambda x: F.max_pool2d(x, (2, 3), (3, 1), 1, dilation=2, ceil_mode=True),
    "avg pool": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "avg pool, ceil": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    "avg pool, divisor": lambda x: F.avg_pool2d(x, (5, 2), divisor_override=7),
    "adaptive avg to one": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive avg": lambda x: F.adaptive_avg_pool2d(x, (7, 50)),
    "adaptive max": lambda x: F.adaptive_max_pool2d(x, (5, 9)),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest-exact": lambda x: F.interpolate(x, size=(17, 90), mode="nearest-exact"),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bilinear, smaller": lambda x: F.interpolate(x, size=(9, 11), mode="bilinear", align_corners=True),
    "bicubic": lambda x: F.interpolate(x, size=(50, 100), mode="bicubic"),
    "bilinear, antialias": lambda x: F.interpolate(x, size=(9, 11), mode="bilinear", antialias=True),
    "bicubic, antialias": lambda x: F.interpolate(x, size=(60, 20), mode="bicubic", antialias=True),
}


SCALES = {  # whose sizes stay, double, and neither: some of PyTorch's kernels then look at sizes alone
    1: [(1.1,), (2.1,), (1.3,), (0.95,), (2.7,)],
    2: [(1.1, 2.1), (1.05, 1.1), (2.05, 2.1), (2.3, 1.1), (0.7, 1.05)],
    3: [(1.1, 2.1, 1.6), (1.05, 1.1, 1.15), (2.05, 0.7, 1.1)],
}


INTERPOLATIONS = {
    1: ("nearest", "nearest-exact", "linear"),
    2: ("nearest", "nearest-exact", "bilinear", "bicubic"),
    3: ("nearest", "nearest-exact", "trilinear"),
}


@pytest.mark.parametrize(
    ("mode", "scale"),
    [(mode, scale) for dims in SCALES for mode in INTERPOLATIONS[dims] for scale in SCALES[dims]],
    ids=str,
)
def test_scale_factors_that_do_not_divide_sizes(mode: str, scale: tuple[float, ...]) -> None:
    image = _image(2, 3, *(5, 4, 3)[: len(scale)])
    agree(_with_gradients(lambda x: F.interpolate(x, scale_factor=scale, mode=mode)), image, tolerance=(1e-5, 1e-5))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", IMAGES)
def test_images_of_several_tiles(name: str, layout: str) -> None:
    image = _image(2, 37, 41, 71, layout=LAYOUTS[layout])
    agree(_with_gradients(IMAGES[name]), image, tolerance=(1e-4, 1e-4))


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_samplers_of_several_tiles(mode: str, padding: str) -> None:
    def sample(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, grid, mode, padding, align_corners=False)

    agree(_with_gradients(sample), _image(2, 5, 31, 29), _image(2, 21, 19, 2), tolerance=(1e-4, 1e-4))


def test_infinities_and_nans() -> None:
    image = _image(1, 2, 9, 70)
    image[0, 0, 3, 4] = float("inf")
    image[0, 1] = float("-inf")
    image[0, 0, 7, 60] = float("nan")
    agree(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), image)
    agree(lambda x: F.adaptive_max_pool2d(x, 4, return_indices=True), image)
    agree(lambda x: F.avg_pool2d(x, 3, 2, 1), image)
    agree(lambda x: F.interpolate(x, size=(4, 31), mode="bilinear"), image)


def test_a_grid_of_anything_stays_inside() -> None:
    grid = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e30, -1e30, 3.0]).repeat(8).view(1, 4, 6, 2)
    for padding in ("zeros", "border", "reflection"):
        for mode in ("bilinear", "nearest", "bicubic"):
            sampled = F.grid_sample(_image(1, 1, 3, 3).to(DEVICE), grid.to(DEVICE), mode, padding, align_corners=True)
            assert sampled.cpu().shape == (1, 1, 4, 6)


@pytest.mark.skipif(HIDDEN_KERNELS, reason="the CPU follows them, and may crash")
def test_indices_from_outside_are_not_followed() -> None:
    indices = torch.tensor([[[[0, -1], [2**40, 3]]]])
    try:
        gradient = torch.ops.aten.max_pool2d_with_indices_backward(
            torch.ones(1, 1, 2, 2, device=DEVICE),
            torch.ones(1, 1, 4, 4, device=DEVICE),
            [2, 2],
            [2, 2],
            [0, 0],
            [1, 1],
            False,
            indices.to(DEVICE),
        ).cpu()
    except RuntimeError:
        return  # a chip that reports it
    assert gradient.flatten().nonzero().flatten().tolist() == [0, 3]


def test_the_same_call_gives_the_same_bits() -> None:
    image = _image(2, 8, 40, 40, dtype=torch.bfloat16).to(DEVICE)
    for name in ("max pool", "bicubic", "adaptive avg"):
        first, second = (_with_gradients(IMAGES[name])(image) for _ in range(2))
        assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(first, second, strict=True))
