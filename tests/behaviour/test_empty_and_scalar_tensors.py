# SPDX-License-Identifier: Apache-2.0
"""Tensors without elements, without dimensions, and with one element, through every kind of operator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from tests.behaviour.agree import DEVICE, agree, agree_gradients, short, values

SHAPES = [(), (0,), (1,), (0, 3), (3, 0), (2, 0, 3), (1, 1)]
UNARY = [
    "abs", "neg", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "relu", "floor", "ceil", "round",
    "trunc", "sign", "isnan", "isinf", "isfinite", "logical_not", "square", "reciprocal", "erf", "gelu", "silu",
    "softplus", "clone", "contiguous", "flatten", "cumsum", "cumprod", "sort", "argsort", "sum", "mean", "prod",
    "std", "var", "amax", "amin", "max", "min", "argmax", "argmin", "any", "all", "norm", "logsumexp", "softmax",
    "log_softmax", "median", "nonzero", "unique", "count_nonzero", "aminmax", "topk", "flip", "roll", "tril",
    "triu", "t", "diag", "trace",
]  # fmt: skip
WITH_DIM = frozenset(["cumsum", "cumprod", "sort", "argsort", "logsumexp", "softmax", "log_softmax"])


def _call(name: str, x: torch.Tensor) -> object:
    if name == "topk":
        return x.topk(1)
    if name == "flip":
        return x.flip(0)
    if name == "roll":
        return x.roll(1)
    function = getattr(torch, name, None) or getattr(F, name)
    return function(x, -1) if name in WITH_DIM else function(x)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_unary_and_reductions(name: str, shape: tuple[int, ...]) -> None:
    agree(lambda x: _call(name, x), values(shape, torch.float32), tolerance=(1e-5, 1e-5))


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "name", ["sum", "mean", "prod", "amax", "amin", "max", "argmax", "any", "all", "std", "nansum"]
)
def test_reductions_along_each_dimension(name: str, shape: tuple[int, ...], keepdim: bool) -> None:
    for dim in range(-max(1, len(shape)), max(1, len(shape))):
        agree(
            lambda x, d=dim: getattr(torch, name)(x, dim=d, keepdim=keepdim),
            values(shape, torch.float32),
            tolerance=(1e-5, 1e-5),
        )


BINARY = [
    "add", "sub", "mul", "div", "pow", "maximum", "minimum", "eq", "lt", "remainder", "fmod", "atan2",
    "logical_and", "bitwise_and", "where", "lerp", "copysign", "hypot", "nextafter", "floor_divide",
]  # fmt: skip


@pytest.mark.parametrize("left", SHAPES, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, left: tuple[int, ...]) -> None:
    dtype = torch.int32 if name == "bitwise_and" else torch.float32
    for right in SHAPES:
        x, y = values(left, dtype), values(right, dtype, 1)
        if name == "where":
            agree(lambda a, b: torch.where(a > 0, a, b), x, y)
        elif name == "lerp":
            agree(lambda a, b: torch.lerp(a, b, 0.5), x, y, tolerance=(1e-5, 1e-5))
        else:
            agree(getattr(torch, name), x, y, tolerance=(1e-5, 1e-5))
            if hasattr(torch.Tensor, name + "_"):
                agree(getattr(torch.Tensor, name + "_"), x, y, tolerance=(1e-5, 1e-5))


@pytest.mark.parametrize(("m", "k", "n"), [(0, 2, 3), (2, 0, 3), (2, 3, 0), (0, 0, 0), (1, 1, 1)])
def test_matrix_products(m: int, k: int, n: int) -> None:
    x, y = values((m, k), torch.float32), values((k, n), torch.float32, 1)
    bias = values((n,), torch.float32, 2)
    agree(torch.mm, x, y)
    agree(torch.matmul, x[None].repeat(2, 1, 1), y)
    agree(lambda a, b: torch.bmm(a[None], b[None]), x, y)
    agree(lambda a, b: a @ b[:, 0] if b.shape[1] else a @ b, x, y)
    agree(lambda a, b, c: torch.addmm(c, a, b), x, y, bias)
    agree(lambda a, b, c: F.linear(a, b.t(), c), x, y, bias)
    agree(lambda a, b: torch.einsum("ij,jk->ik", a, b), x, y)
    agree_gradients(lambda a, b: a @ b, x, y)


def test_products_of_zero_dim_and_vectors() -> None:
    x, y = values((3,), torch.float32), values((3,), torch.float32, 1)
    agree(torch.dot, x, y, tolerance=(1e-5, 1e-5))
    agree(torch.dot, x[:0], y[:0])
    agree(torch.outer, x, y[:0])
    agree(torch.matmul, x, torch.ones(()))
    agree(torch.mv, torch.ones(2, 3), x, tolerance=(1e-5, 1e-5))


LAYERS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
    "conv2d": (lambda x: F.conv2d(x, torch.ones(2, 3, 3, 3, device=x.device)), (0, 3, 5, 5)),
    "conv1d": (lambda x: F.conv1d(x, torch.ones(2, 3, 3, device=x.device)), (0, 3, 5)),
    "conv_transpose2d": (lambda x: F.conv_transpose2d(x, torch.ones(3, 2, 3, 3, device=x.device)), (0, 3, 5, 5)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (0, 3, 4, 4)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), (0, 3, 4, 4)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 1), (0, 3, 4, 4)),
    "layer_norm": (lambda x: F.layer_norm(x, (4,)), (0, 4)),
    "layer_norm of nothing": (lambda x: F.layer_norm(x, (0,)), (2, 0)),
    "group_norm": (lambda x: F.group_norm(x, 2), (0, 4, 3)),
    "batch_norm in training": (lambda x: F.batch_norm(x, None, None, training=True), (0, 4)),
    "embedding": (lambda x: F.embedding(x.long(), torch.ones(3, 2, device=x.device)), (0,)),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.zeros(0, dtype=torch.long, device=x.device)), (0, 3)),
    "mse_loss": (lambda x: F.mse_loss(x, x + 1), (0, 3)),
    "pad": (lambda x: F.pad(x, (1, 2)), (2, 0)),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2), (0, 3, 2, 2)),
    "dropout": (lambda x: F.dropout(x, 0.5), (0, 3)),
    "sdpa": (lambda x: F.scaled_dot_product_attention(x, x, x), (0, 2, 3, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_on_empty_batches(name: str) -> None:
    function, shape = LAYERS[name]
    agree(function, values(shape, torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=short)
def test_joins_and_splits(dtype: torch.dtype) -> None:
    x = values((2, 3), dtype)
    agree(lambda a: torch.cat([a, a[:0]]), x)
    agree(lambda a: torch.cat([a[:0], a[:0]]), x)
    agree(lambda a: torch.cat([torch.empty(0, dtype=a.dtype, device=a.device), a]), x)
    agree(lambda a: torch.stack([a[0, 0], a[1, 1]]), x)
    agree(lambda a: torch.cat([]), x)
    agree(lambda a: a[:0].split(1), x)
    agree(lambda a: torch.atleast_2d(a[0, 0]), x)
    agree(lambda a: a.new_zeros(0).reshape(0, 4), x)


def test_the_host_route_gives_full_shapes() -> None:
    """Functional operators on the host once came back with shape [0]."""
    x = torch.tensor([-1.0, float("nan"), 2.0])
    for function in (
        torch.abs,
        torch.isnan,
        torch.neg,
        torch.sign,
        torch.special.bessel_j0,
        torch.erfinv,
        torch.digamma,
    ):
        found = agree(function, x, tolerance=(1e-5, 1e-5), may_raise=False)
        assert found.shape == (3,)


def test_gradients_of_empty_and_zero_dim() -> None:
    for shape in SHAPES:
        agree_gradients(lambda x: x.exp() * 2, values(shape, torch.float64))
        agree_gradients(lambda x: x.sum() + x.prod(), values(shape, torch.float64))
        agree_gradients(lambda x, y: x * y, values(shape, torch.float64), values((), torch.float64, 1))


def _batch(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return values((n, 3), torch.float32), torch.zeros(n, dtype=torch.long)


NOTHING: dict[str, Callable[[], object]] = {
    "histc": lambda: agree(lambda x: torch.histc(x, 3, -1, 1), torch.empty(0)),
    "multi_margin_loss of each": lambda: agree(lambda x, y: F.multi_margin_loss(x, y, reduction="none"), *_batch(0)),
    "multi_margin_loss backward": lambda: agree(
        lambda x, y, g: torch.ops.aten.multi_margin_loss_backward(g, x, y, 1, 1.0), *_batch(0), torch.ones(())
    ),
    "unfold backward": lambda: agree(
        lambda g: torch.ops.aten.unfold_backward(g, [0, 4], 1, 2, 2), torch.empty(0, 2, 2)
    ),
    "unfold backward, too many windows": lambda: agree(
        lambda g: torch.ops.aten.unfold_backward(g, [5], 0, 2, 2), torch.ones(9, 2)
    ),
}


@pytest.mark.parametrize("name", NOTHING)
def test_losses_and_counts_of_nothing(name: str) -> None:
    """What a kernel shares out among its work items is nothing, too."""
    NOTHING[name]()


def test_mean_margins_of_nothing() -> None:
    """Numbers that nobody wrote on the CPU; what matters is that there is a result, and that the device lives on."""
    x, y = (t.to(DEVICE) for t in _batch(0))
    assert F.multi_margin_loss(x, y).cpu().shape == ()
    assert F.multilabel_margin_loss(x, x.long()).cpu().shape == ()
    agree(lambda a: a + 1, torch.ones(2))
