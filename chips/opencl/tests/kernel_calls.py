# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: B023 (functions are called before the loop goes on)
"""Calls of few numbers that together run every portable kernel (test_checked_kernels.py asks whether they do)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

aten = torch.ops.aten
HALF, BFLOAT, DOUBLE = torch.float16, torch.bfloat16, torch.float64
LONG, INT, BOOL = torch.int64, torch.int32, torch.bool
COMPLEX, COMPLEX_DOUBLE = torch.complex64, torch.complex128


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Numbers between 0.1 and 0.9."""
    some = torch.rand(shape, generator=torch.Generator().manual_seed(1)) * 0.8 + 0.1
    return some.to(dtype).to("fl")


def integers(*values: int, dtype: torch.dtype = LONG) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype).to("fl")


def spread(*shape: int) -> torch.Tensor:
    """The same with gaps between the elements."""
    return x(*shape[:-1], 2 * shape[-1])[..., ::2]


def channels_last(*shape: int) -> torch.Tensor:
    return x(*shape).contiguous(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)


def backward(function: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """The call and its gradient for every input."""
    leaves = [t.detach().requires_grad_() for t in inputs]
    output = function(*leaves)
    output = output if isinstance(output, torch.Tensor) else output[0]
    torch.autograd.grad(output, leaves, torch.ones_like(output), allow_unused=True)


def each(names: str, *arguments: Any, module: Any = torch) -> None:
    for name in names.split():
        getattr(module, name)(*arguments)


def pointwise() -> None:
    each(
        "abs acos acosh angle asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor"
        " frac frexp i0 isnan isneginf isposinf lgamma log log10 log1p log2 logit nan_to_num neg rad2deg reciprocal"
        " relu round rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt tan tanh trunc conj_physical logical_not",
        x(11),
    )
    each(
        "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 entr erfcx i0e i1 i1e log_ndtr modified_bessel_i0"
        " modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 ndtri scaled_modified_bessel_k0"
        " scaled_modified_bessel_k1 spherical_bessel_j0",
        x(11),
        module=torch.special,
    )
    each(
        "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w"
        " hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p"
        " shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v"
        " shifted_chebyshev_polynomial_w xlog1py zeta",
        x(11),
        x(11) * 4,
        module=torch.special,
    )
    each(
        "add atan2 clamp clamp_min clamp_max copysign div eq floor_divide fmax fmin fmod ge gt heaviside hypot igamma"
        " igammac le logaddexp logaddexp2 logical_and logical_or logical_xor lt maximum minimum mul ne nextafter pow"
        " remainder rsub sub xlogy",
        x(11),
        spread(11),
    )
    each("eq ge gt le lt ne clamp_min clamp_max pow", x(11), 0.5)
    each(
        "bitwise_and bitwise_or bitwise_xor gcd lcm floor_divide fmod remainder pow",
        integers(5, 6, 8),
        integers(3, 2, 1),
    )
    each("bitwise_left_shift bitwise_right_shift", integers(5, 6, 8), integers(3, 2, 1))
    for some in (integers(3, 2, 1), 1):
        each("__lshift__ __rshift__", integers(5, 6, 8), some, module=aten)
    torch.bitwise_not(integers(5, 6, 8))
    torch.clamp(x(11), 0.2, 0.8)
    torch.clamp(x(11), x(11), x(11))
    torch.pow(2, x(11))
    torch.round(x(11), decimals=3)
    torch.div(x(11), x(11), rounding_mode="trunc")
    torch.div(x(11), x(11), rounding_mode="floor")
    torch.addcmul(x(11), x(11), x(11))
    torch.addcdiv(x(11), x(11), x(11))
    torch.lerp(x(11), x(11), 0.5)
    torch.lerp(x(11), x(11), x(11))
    torch.where(x(11) > 0.5, x(11), x(11))
    x(11).masked_fill(x(11) > 0.5, 1)
    x(11).masked_fill(x(11) > 0.5, x(1)[0])
    torch.complex(x(11), x(11))
    torch.polar(x(11), x(11))
    x(11).fill_(2).zero_()
    for n in (0, 1, 2, 3):
        torch.polygamma(n, x(11) - 0.5)
    torch.ops.aten.special_xlog1py(x(11), x(11))


def activations() -> None:
    for f in (F.gelu, F.silu, F.mish, F.elu, F.hardswish, F.hardsigmoid, F.hardtanh, F.softplus, F.hardshrink):
        backward(f, x(11))
    for f in (F.softshrink, F.leaky_relu, F.logsigmoid, torch.tanh, torch.sigmoid, F.relu, F.glu, torch.logit):
        backward(f, x(12))
    backward(lambda t: F.gelu(t, approximate="tanh"), x(11))
    backward(lambda t: F.threshold(t, 0.5, 0.1), x(11))
    backward(lambda t: torch.logit(t, 0.2), x(11))
    backward(F.prelu, x(2, 3), x(3))
    aten.silu_backward.grad_input(x(11), x(11), grad_input=x(11))


def complex_numbers() -> None:
    z = torch.complex(x(11), x(11))
    each(
        "abs acos acosh angle asin asinh atan atanh conj_physical cos cosh exp expm1 log log1p log2 log10 neg reciprocal"
        " rsqrt sgn sigmoid sin sinh sqrt tan tanh square isnan sum mean prod logical_not",
        z,
    )
    each("add sub mul div pow eq ne vdot dot logical_and", z, z)
    torch.addcmul(z, z, z, value=2j)
    torch.where(x(11) > 0.5, z, z)
    z.view(1, 11) @ z.view(11, 1)
    torch.addmm(z.view(1, 11), z.view(11, 1), z.view(1, 11), beta=1j)
    z.to(COMPLEX_DOUBLE).exp().sum()


def conversions() -> None:
    types = [torch.float32, HALF, BFLOAT, DOUBLE, LONG, INT, torch.int16, torch.int8, torch.uint8, BOOL, COMPLEX]
    for a, b in itertools.product(types, types):
        if a != b and not (a.is_complex and not b.is_complex):
            x(5, dtype=a).to(b)
    for dtype in (HALF, BFLOAT, DOUBLE):
        x(11, dtype=dtype).add(x(11, dtype=dtype)).exp()
    x(3, 5).t().contiguous()
    x(3, 70).t().contiguous()
    spread(2, 3).clone()
    x(2, 3, 4, 5).permute(3, 1, 0, 2).contiguous()


def reductions() -> None:
    for t in (x(11), x(3, 70), x(3, 70, dtype=DOUBLE), x(3, 70, dtype=HALF), spread(3, 70)):
        each("sum mean prod amax amin all any std_mean var_mean logsumexp nansum count_nonzero argmax", t, 0)
        torch.linalg.vector_norm(t)
    t = x(3, 70)
    each(
        "sum mean max min amax amin prod all any std var argmax argmin aminmax median nanmedian nansum count_nonzero", t
    )
    each("sum mean max min std var argmin median nanmedian mode", t[:, :9].contiguous(), 1)
    for order in (0, 1, 2, 3, float("inf"), -float("inf")):
        torch.linalg.vector_norm(t, order, 1)
        aten.norm.ScalarOpt_dim(t, order, [1])
        torch.linalg.vector_norm(t, order, 1, dtype=DOUBLE)
    each("sum prod amax all any", integers(5, 6, 8, 9))
    x(2, 3, 5).sum((0, 2))
    x(2, 3, 5).all((0, 2))
    x(2, 3, 5).any((0, 2))
    x(3, 3).trace()
    torch.histc(t, 5, 0, 1)
    for t in (x(3, 5), x(3, 5, dtype=HALF), integers(1, 2, 3), x(3, 5) > 0.5):
        torch.hash_tensor(t)
        torch.hash_tensor(t, 0)


def products() -> None:
    for dtype in (torch.float32, DOUBLE, HALF):
        left, right = x(13, 40, dtype=dtype), x(40, 70, dtype=dtype)
        left @ right  # tiles of packed and of own panels
        left @ x(70, 40, dtype=dtype).t()
        left[:2] @ right  # stretches
        left[:2] @ x(19, 40, dtype=dtype).t()  # dots
        left @ x(40, dtype=dtype)
        x(3, 7, dtype=dtype) @ x(7, 5, dtype=dtype)
    torch.addmm(x(13, 70), x(13, 40), x(40, 70))
    torch.addmm(x(70), x(2, 40), x(40, 70), beta=0.5)
    torch.addmm(x(5), x(2, 40), x(5, 40).t())
    torch.addmm(x(5), x(2, 7), x(5, 7).t())
    torch.addmv(x(3), x(3, 7), x(7))
    torch.baddbmm(x(2, 3, 5), x(2, 3, 7), x(2, 7, 5))
    torch.bmm(x(2, 13, 40), x(2, 40, 70))
    torch.mv(x(3, 7), x(7))
    torch.dot(x(40), x(40))
    torch.vdot(x(7), x(7))
    integers(*range(12)).view(3, 4) @ integers(*range(8)).view(4, 2)
    integers(*range(40)).view(20, 2).t() @ integers(*range(400)).view(20, 20)
    torch.addr(x(3, 5), x(3), x(5))


def convolutions() -> None:
    for dtype in (torch.float32, HALF):
        backward(F.conv2d, x(2, 4, 7, 6, dtype=dtype), x(3, 4, 3, 3, dtype=dtype), x(3, dtype=dtype))
    backward(lambda a, w: F.conv2d(a, w, stride=2, padding=1, dilation=2, groups=2), x(1, 4, 7, 6), x(2, 2, 3, 2))
    backward(F.conv2d, x(1, 4, 9, 9), x(13, 4, 1, 1), x(13))  # one tap, planes of its own
    backward(F.conv2d, channels_last(1, 4, 5, 5), channels_last(3, 4, 3, 3))
    backward(F.conv1d, x(2, 4, 40), x(3, 4, 3))
    backward(F.conv3d, x(1, 2, 4, 5, 4), x(3, 2, 2, 2, 2))
    backward(lambda a, w, b: F.conv_transpose2d(a, w, b, stride=2), x(1, 4, 3, 3), x(4, 3, 3, 3), x(3))
    backward(lambda a, w: F.conv_transpose1d(a, w, padding=1), x(1, 4, 5, dtype=DOUBLE), x(4, 3, 3, dtype=DOUBLE))
    F.conv2d(integers(*range(16)).view(1, 1, 4, 4), integers(1, 2, 3, 4).view(1, 1, 2, 2))


def softmaxes() -> None:
    for f, dtype in itertools.product((torch.softmax, torch.log_softmax), (torch.float32, BFLOAT, DOUBLE)):
        for shape, dim in (((3, 5), 1), ((2, 53), 1), ((3, 5), 0), ((2, 3, 19), 1)):
            backward(lambda t, f=f, d=dim: f(t, d), x(*shape, dtype=dtype))


def pooling() -> None:
    images = (x(2, 3, 7, 6), channels_last(2, 3, 7, 6), x(2, 3, 7, 6, dtype=HALF), spread(2, 3, 7, 6))
    for image in images:
        backward(lambda t: F.max_pool2d(t, 3, 2, 1), image)
        backward(lambda t: F.avg_pool2d(t, 3, 2, 1), image)
        backward(lambda t: F.avg_pool2d(t, 2, 1, 1, count_include_pad=False), image)
        backward(lambda t: F.adaptive_max_pool2d(t, (3, 2)), image)
        backward(lambda t: F.adaptive_avg_pool2d(t, (3, 2)), image)
        backward(lambda t: F.adaptive_avg_pool2d(t, 1), image)
        backward(lambda t: F.fractional_max_pool2d(t, 2, (3, 3)), image)
    volume = x(1, 2, 4, 5, 4)
    backward(lambda t: F.max_pool3d(t, 2, 1), volume)
    backward(lambda t: F.avg_pool3d(t, 2), volume)
    backward(lambda t: F.adaptive_max_pool3d(t, 2), volume)
    backward(lambda t: F.adaptive_avg_pool3d(t, 2), volume)
    backward(lambda t: F.fractional_max_pool3d(t, 2, 2), volume.to(BFLOAT))
    F.max_pool2d(integers(*range(16)).view(1, 1, 4, 4), 2)
    pooled, where = F.max_pool2d(x(1, 2, 4, 4), 2, return_indices=True)
    backward(lambda t: F.max_unpool2d(t, where, 2), pooled)
    pooled, where = F.max_pool3d(x(1, 2, 4, 4, 4), 2, return_indices=True)
    backward(lambda t: F.max_unpool3d(t, where, 2), pooled)


def resampling() -> None:
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        for image in (x(1, 3, 4, 5), channels_last(1, 3, 4, 5), x(1, 3, 4, 5, dtype=HALF)):
            backward(lambda t, m=mode: F.interpolate(t, (7, 3), mode=m), image)
            F.interpolate(image[..., ::2], (7, 3), mode=mode)
    for mode in ("bilinear", "bicubic"):
        backward(lambda t, m=mode: F.interpolate(t, (3, 2), mode=m, antialias=True), x(1, 3, 4, 5))
        backward(lambda t, m=mode: F.interpolate(t, (3, 7), mode=m, align_corners=True), x(1, 3, 4, 5, dtype=DOUBLE))
    backward(lambda t: aten._upsample_lanczos2d_aa(t, [3, 2], False, None, None), x(1, 3, 4, 5))
    backward(lambda t: aten._upsample_bilinear2d_aa(t, [3, 2], False, None, None), channels_last(1, 3, 4, 5))
    for mode in ("nearest", "nearest-exact", "linear"):
        backward(lambda t, m=mode: F.interpolate(t, 7, mode=m), x(1, 3, 4))
    for mode in ("nearest", "nearest-exact", "trilinear"):
        backward(lambda t, m=mode: F.interpolate(t, (3, 2, 5), mode=m), x(1, 2, 2, 3, 4))
    F.interpolate(integers(*range(12), dtype=torch.uint8).view(1, 1, 3, 4), (2, 7), mode="nearest")
    for mode, padding, corners in itertools.product(
        ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True)
    ):
        backward(lambda t, g: F.grid_sample(t, g, mode, padding, corners), x(1, 2, 4, 5), x(1, 3, 2, 2) * 4 - 2)
    backward(
        lambda t, g: F.grid_sample(t, g, align_corners=False), x(1, 2, 4, 5, dtype=HALF), x(1, 3, 2, 2, dtype=HALF)
    )
    for mode in ("bilinear", "nearest"):
        backward(lambda t, g: F.grid_sample(t, g, mode, align_corners=False), x(1, 2, 3, 4, 5), x(1, 3, 2, 2, 3))


def normalisations() -> None:
    for dtype in (torch.float32, BFLOAT):
        weight, bias = x(19, dtype=dtype), x(19, dtype=dtype)
        backward(lambda t, w, b: F.layer_norm(t, (19,), w, b), x(5, 19, dtype=dtype), weight, bias)
        backward(lambda t, w: F.rms_norm(t, (19,), w), x(5, 19, dtype=dtype), weight)
        backward(lambda t, w, b: F.group_norm(t, 2, w, b), x(2, 4, 3, 3, dtype=dtype), weight[:4], bias[:4])
        for shape in ((2, 4, 3, 3), (5, 4)):
            mean, var = x(4), x(4)
            args = x(*shape, dtype=dtype), weight[:4], bias[:4]
            backward(lambda t, w, b: F.batch_norm(t, mean, var, w, b, True), *args)
            backward(lambda t, w, b: F.batch_norm(t, mean, var, w, b, False), *args)
            backward(lambda t: F.batch_norm(t, None, None, None, None, True), args[0])
    backward(lambda t: F.layer_norm(t, (19,)), x(5, 19))
    backward(lambda t: F.rms_norm(t, (19,)), x(5, 19, dtype=DOUBLE))
    backward(lambda t: F.group_norm(t, 2), x(2, 4, 3))
    backward(lambda w, b: F.layer_norm(x(5, 19), (19,), w, b), x(19), x(19))
    backward(lambda w, b: F.group_norm(x(2, 4, 3), 2, w, b), x(4), x(4))
    for shape in ((2, 4, 3), (5, 4)):
        backward(lambda w, b: F.batch_norm(x(*shape), None, None, w, b, True), x(4), x(4))
    aten._native_batch_norm_legit.no_stats(x(2, 4, 3), None, None, True, 0.1, 1e-5)


def losses() -> None:
    for reduction in ("none", "mean", "sum"):
        for f in (F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy):
            backward(lambda a, f=f: f(a, x(11), reduction=reduction), x(11))
        backward(lambda a: F.binary_cross_entropy(a, x(11), x(11), reduction=reduction), x(11))
        for weight in (None, x(5)):
            for scores, target in ((x(3, 5), integers(1, 4, 0)), (x(1, 5, 3), integers(1, 4, 0).view(1, 3))):
                backward(lambda a: F.nll_loss(a, target, weight, reduction=reduction), scores)
            backward(lambda a: F.multi_margin_loss(a, integers(1, 4, 0), 1, 1, weight, reduction=reduction), x(3, 5))
        backward(
            lambda a: F.multilabel_margin_loss(a, integers(1, 4, -1, 2, 0).view(1, 5), reduction=reduction), x(1, 5)
        )
        backward(
            lambda a: F.ctc_loss(
                a, integers(1, 2, 2, 3).view(2, 2), integers(4, 3), integers(2, 1), reduction=reduction
            ),
            torch.log_softmax(x(4, 2, 5), 2),
        )
    backward(lambda a: F.multi_margin_loss(a, integers(1, 4, 0), 2), x(3, 5))
    backward(lambda a: F.nll_loss(a, integers(1)[0]), x(5))


def optimizers() -> None:
    def lists(dtype: torch.dtype = torch.float32) -> list[list[torch.Tensor]]:
        return [[x(11, dtype=dtype), x(3, dtype=dtype)] for _ in range(5)]

    def steps() -> list[torch.Tensor]:
        return [x(1)[0], x(1)[0]]

    rate, scale, found = x(1)[0], x(1)[0], torch.zeros((), device="fl")

    def chosen(step: Any, lr: Any) -> Any:
        return step.tensor_lr if lr is rate else step.default

    for name, (lr, amsgrad) in itertools.product(("_fused_adam_", "_fused_adamw_"), ((0.1, False), (rate, True))):
        step = chosen(getattr(aten, name), lr)
        numbers = {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8, "maximize": False}
        step(*lists(), steps(), lr=lr, amsgrad=amsgrad, **numbers)
        step(*lists(HALF), steps(), lr=lr, amsgrad=amsgrad, grad_scale=scale, found_inf=found, **numbers)
    for lr, momentum in ((0.1, 0.0), (rate, 0.9)):
        numbers = {"weight_decay": 0.1, "dampening": 0.1, "maximize": False, "is_first_step": False}
        step = chosen(aten._fused_sgd_, lr)
        step(*lists()[:3], lr=lr, momentum=momentum, nesterov=momentum > 0, **numbers)
        step(*lists()[:3], lr=lr, momentum=momentum, nesterov=False, grad_scale=scale, found_inf=found, **numbers)
    for lr in (0.1, rate):
        step = chosen(aten._fused_adagrad_, lr)
        step(*lists()[:3], steps(), lr=lr, lr_decay=0.1, weight_decay=0.1, eps=1e-8, maximize=False)
    aten._amp_foreach_non_finite_check_and_unscale_([x(11), x(3), x(5, dtype=HALF)], found, x(1))
    aten._amp_update_scale_(x(1), integers(0, dtype=INT), found, 2.0, 0.5, 10)


def attention() -> None:
    for queries, dtype in ((9, torch.float32), (3, torch.float32), (9, HALF), (5, DOUBLE)):
        q, k, v = (x(1, 2, n, 18, dtype=dtype) for n in (queries, 7, 7))
        backward(F.scaled_dot_product_attention, q, k, v)
        backward(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)
        mask = x(queries, 7, dtype=dtype)
        backward(lambda q, k, v, m=mask: F.scaled_dot_product_attention(q, k, v, m), q, k, v)
    backward(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), *(x(1, n, 9, 8) for n in (4, 2, 2))
    )
    backward(F.scaled_dot_product_attention, x(1, 1, 2, 8), x(1, 1, 70, 8), x(1, 1, 70, 8))


def linear_algebra() -> None:
    for n, dtype in ((1, torch.float32), (5, torch.float32), (4, DOUBLE)):
        a, b = x(2, n, n, dtype=dtype), x(2, n, 3, dtype=dtype)
        symmetric = a @ a.mT + n * torch.eye(n, device="fl", dtype=dtype)
        for upper in (False, True):
            factor = torch.linalg.cholesky_ex(symmetric, upper=upper)[0]
            torch.cholesky_solve(b, factor, upper)
            torch.cholesky_inverse(factor, upper)
            torch.linalg.solve_triangular(factor, b, upper=upper)
            torch.linalg.solve_triangular(factor, b.mT.contiguous(), upper=upper, left=False, unitriangular=True)
            torch.triangular_solve(b, factor, upper=upper, transpose=True)
        torch.linalg.eigvalsh(symmetric)
        torch.linalg.eigh(symmetric, UPLO="U")
        for values in (a, a - a.mT):  # real ones, and pairs
            torch.linalg.eig(values)
            torch.linalg.eigvals(values)
        torch.linalg.svdvals(a)
        torch.linalg.svd(b)
        torch.linalg.svd(b.mT, full_matrices=False)
        torch.linalg.det(a)
        torch.linalg.slogdet(a)
        torch.linalg.inv_ex(a)
        torch.linalg.solve_ex(a, b)
        torch.linalg.solve_ex(a, b.mT.contiguous(), left=False)
        factors, pivots = torch.linalg.lu_factor_ex(a)[:2]
        for left, adjoint in itertools.product((True, False), (True, False)):
            torch.linalg.lu_solve(factors, pivots, b if left else b.mT.contiguous(), left=left, adjoint=adjoint)
        torch.lu_unpack(factors, pivots)
        torch.linalg.lu(b)
        factors, pivots = torch.linalg.ldl_factor_ex(symmetric - n)[:2]
        torch.linalg.ldl_solve(factors, pivots, b)
        for mode in ("reduced", "complete", "r"):
            torch.linalg.qr(b, mode=mode)
        reflectors, tau = torch.geqrf(b)
        for left, transpose in itertools.product((True, False), (True, False)):
            torch.ormqr(reflectors, tau, b if left else b.mT.contiguous(), left, transpose)
        torch.linalg.householder_product(x(2, 5, 3, dtype=dtype), x(2, 3, dtype=dtype))
        torch.linalg.matrix_exp(a)
        torch.linalg.lstsq(x(2, 5, 3, dtype=dtype), x(2, 5, 2, dtype=dtype), driver="gels")
        torch.linalg.cross(x(2, 3, dtype=dtype), x(2, 3, dtype=dtype))
    torch.linalg.ldl_factor_ex(integers(0, 1, 1, 0).view(2, 2).float())  # a block of two
    torch.linalg.lstsq(x(3, 5), x(3, 2), driver="gelsd")
    torch.linalg.matrix_exp(x(3, 3) * 20)


def random_numbers() -> None:
    for dtype in (torch.float32, DOUBLE, HALF):
        for name in ("uniform_", "normal_", "exponential_", "cauchy_", "log_normal_"):
            getattr(x(11, dtype=dtype), name)()
        x(11, dtype=dtype).geometric_(0.5)
        F.dropout(x(11, dtype=dtype), 0.5)
    x(11).bernoulli_(0.5)
    x(11, dtype=INT).random_(0, 9)
    x(11, dtype=LONG).random_()
    x(11, dtype=LONG).geometric_(0.5)
    backward(lambda t: torch.native_dropout(t, 0.5, True), x(11))


def indexing() -> None:
    t, rows = x(5, 7), integers(3, 0, 3)
    t[rows]
    t[rows, integers(1, 2, 6)]
    t[:, rows]
    x(5, 300)[rows]
    x(5, 300, dtype=HALF)[rows]
    x(5, 300, dtype=torch.uint8)[rows]
    t.index_select(0, rows)
    t.index_select(1, rows)
    t.gather(1, rows.view(3, 1))
    t.take(rows)
    x(5, 7).put_(rows, x(3), accumulate=True)
    x(5, 7).index_put_((rows,), x(3, 7))
    x(5, 7).index_put_((rows, integers(1, 2, 6)), x(3), accumulate=True)
    x(5, 7, dtype=HALF).index_put_((rows,), x(3, 7, dtype=HALF), accumulate=True)
    x(5, 7).index_add_(0, rows, x(3, 7), alpha=2)
    x(5, 7).index_copy_(1, rows, x(5, 3))
    x(5, 7).index_fill_(0, rows, 1)
    x(5, 7).index_fill_(0, rows, x(1)[0])
    for reduce in ("prod", "mean", "amax", "amin"):
        x(5, 7).index_reduce_(0, rows, x(3, 7), reduce)
        x(5, 7).scatter_reduce_(0, rows.view(3, 1), x(3, 1), reduce, include_self=False)
    x(5, 7).scatter_reduce_(1, rows.view(1, 3), x(1, 3), "sum")
    x(5, 7).scatter_(0, rows.view(3, 1), x(3, 1))
    x(5, 7).scatter_(0, rows.view(3, 1), 2)
    x(5, 7).scatter_(0, rows.view(3, 1), x(3, 1), reduce="add")
    x(5, 7).scatter_(0, rows.view(3, 1), 2, reduce="multiply")
    x(5, 7).scatter_add_(0, rows.view(3, 1), x(3, 1))
    torch.nonzero(t > 0.5)
    torch.nonzero(spread(2, 3, 4) > 0.5)
    for dtype in (DOUBLE, HALF, COMPLEX, LONG):
        torch.nonzero(x(11, dtype=dtype))
    torch.nonzero_static(t, size=40)
    torch.masked_select(t, t > 0.5)
    x(5, 7).masked_scatter_(t > 0.5, x(35))
    torch.repeat_interleave(rows)
    line = x(70).sort().values
    torch.searchsorted(line, x(5))
    torch.searchsorted(line, x(5), right=True, sorter=torch.arange(70, device="fl"))
    torch.searchsorted(line, 0.5)
    torch.bucketize(x(5), line)
    torch.bucketize(0.5, line)
    torch.isin(x(5), x(70))
    torch.isin(0.5, x(70))
    F.embedding(rows, t)
    backward(lambda w: F.embedding(rows, w, padding_idx=0), t)
    backward(lambda w: F.embedding(rows, w, scale_grad_by_freq=True), t.half())
    for order in (1.0, 2.0, 3.0, float("inf")):
        aten.embedding_renorm_(x(5, 7), rows, 0.5, order)
    for mode, weights in (("sum", None), ("sum", x(3)), ("mean", None), ("max", None)):
        backward(lambda w: F.embedding_bag(rows, w, integers(0, 2), mode=mode, per_sample_weights=weights), t)
    backward(lambda w: F.embedding_bag(rows, w, integers(0, 2), mode="sum", scale_grad_by_freq=True), t.half())
    backward(lambda p: F.embedding_bag(rows, x(5, 7), integers(0, 2), mode="sum", per_sample_weights=p), x(3))
    F.embedding_bag(rows, x(5, 7), integers(0, 2), mode="mean", include_last_offset=True)
    bags = aten._embedding_bag(t, rows, integers(0, 2))[1:]
    aten._embedding_bag_dense_backward(x(2, 7), rows, *bags, 5, False, 0, None)
    for reduce in ("sum", "mean", "max", "min", "prod"):
        backward(lambda d: torch.segment_reduce(d, reduce, lengths=integers(2, 3), unsafe=True), x(5, 7))
        backward(lambda d: torch.segment_reduce(d, reduce, offsets=integers(0, 2, 5), initial=1, unsafe=True), x(5, 7))


def shapes() -> None:
    torch.cat([x(2, 3), x(2, 5), x(2, 1)], 1)
    torch.cat([x(2, 3), spread(4, 3)])
    torch.cat([x(2, 3, dtype=HALF)] * 12, 1)
    for t in (x(4, 5), x(2, 4, 5, dtype=COMPLEX), x(4, 5, dtype=BOOL)):
        t.tril(-1)
        t.triu(1)
    x(3, 4).flip(0, 1)
    x(3, 4).roll((1, 2), (0, 1))
    x(3, 4).repeat(2, 1, 2)
    x(3, 4).narrow_copy(1, 1, 2)
    torch.arange(0, 11, device="fl")
    torch.linspace(0, 1, 11, device="fl")
    torch.logspace(0, 1, 11, device="fl")
    torch.eye(5, device="fl")
    torch.eye(5, 3, device="fl")
    F.channel_shuffle(x(1, 4, 2, 2), 2)
    F.pixel_shuffle(x(1, 4, 2, 2), 2)
    F.pixel_unshuffle(x(1, 1, 4, 4), 2)
    F.unfold(x(1, 2, 4, 5), 2, dilation=2, padding=1)
    F.fold(x(1, 8, 12), (4, 5), 2)
    backward(lambda t: t.unfold(1, 3, 2), x(2, 8, 3))
    for mode in ("reflect", "replicate"):
        for image in (x(1, 2, 5), x(1, 2, 4, 5), x(1, 2, 3, 4, 5)):
            backward(lambda t, m=mode: F.pad(t, (2, 1) * (t.ndim - 2), m), image)
    backward(lambda t: F.pad(t, (-1, 1), "replicate"), x(1, 2, 5))


def scans_and_sorts() -> None:
    t = x(5, 70)
    for scan in (torch.cumsum, torch.cumprod, torch.cummax, torch.cummin, torch.logcumsumexp):
        scan(t, 0)
        scan(t, 1)
        scan(x(70), 0)  # in parts
        scan(x(70, 2), 0)
    torch.cumsum(integers(1, 2, 3), 0)
    for dtype in (torch.float32, DOUBLE, HALF, LONG, torch.uint8, torch.int8):
        some = (x(5, 70) * 9).to(dtype)
        some.sort(0)
        some.sort(dim=1, descending=True, stable=True)
        some.topk(3)
        some.topk(40, dim=1, largest=False)
        some.kthvalue(4)
        some.median()
        some.median(0)
        some[:, :9].contiguous().mode(1)
    t.nanmedian()
    t.nanmedian(1)
    x(40, dtype=torch.uint8).sort()  # in parts
    x(40).topk(3)


def distances() -> None:
    for order in (0.0, 1.0, 2.0, 3.0, float("inf")):
        backward(lambda a, b: torch.cdist(a, b, order, "donot_use_mm_for_euclid_dist"), x(3, 4), x(5, 4))
        backward(lambda a: F.pdist(a, order), x(4, 3))
        if order > 0:
            torch.renorm(x(3, 4), order, 0, 0.5)


def transforms() -> None:
    for n in (8, 12, 11, 30):  # radixes 2 and 4, 3 and 5, and what is none
        for dtype in (torch.float32, DOUBLE):
            half = torch.fft.rfft(x(2, n, dtype=dtype))
            torch.fft.irfft(half, n)
            torch.fft.fft(half, n)
            torch.fft.ifft(half, n)
    torch.fft.fft2(x(3, 4, 6))


FAMILIES: Sequence[Callable[[], None]] = (
    pointwise,
    activations,
    complex_numbers,
    conversions,
    reductions,
    products,
    convolutions,
    softmaxes,
    pooling,
    resampling,
    normalisations,
    losses,
    optimizers,
    attention,
    linear_algebra,
    random_numbers,
    indexing,
    shapes,
    scans_and_sorts,
    distances,
    transforms,
)
