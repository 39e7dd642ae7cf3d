# SPDX-License-Identifier: Apache-2.0
"""Element by element: unary, binary, comparisons, activations and their derivatives, copies, casts, fills."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from typing import Any

import torch

from torch_fl.conformance.operators.table import (
    ALL,
    BOOL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    REAL,
    WIDE,
    Call,
    Generator,
    add,
)
from torch_fl.conformance.sampler import Sampler

SHAPES = ((5, 7), (33,), (), (2, 3, 4, 5), (0, 3), (1030,))
EDGES = (0.0, -0.0, 1.0, -1.0, inf, -inf, nan, 0.5, -0.5, 30.0, -30.0)


def unary(low: float = -3.0, high: float = 3.0, *rest: Any, edges: bool = True, **named: Any) -> Generator:
    """One tensor with values between low and high, then the arguments of ``rest`` and ``named``."""

    def generate(s: Sampler) -> Iterator[Call]:
        more = tuple(s.number(value) if isinstance(value, float) else value for value in rest)
        for i, shape in enumerate(SHAPES):
            yield (s.tensor(*shape, low=low, high=high), *more, dict(named))
            if i == 1 and edges and s.dtype.is_floating_point:
                yield (torch.tensor(EDGES, dtype=s.dtype), *more, dict(named))

    return generate


def big_unary(low: float = -3.0, high: float = 3.0, *rest: Any) -> Generator:
    """A million elements."""

    def generate(s: Sampler) -> Iterator[Call]:
        yield (s.tensor(1024, 1024, low=low, high=high), *(s.number(v) if isinstance(v, float) else v for v in rest))

    return generate


def add_unary(names: str, low: float = -3.0, high: float = 3.0, *rest: Any, **rules: Any) -> None:
    """Add unary operators whose values lie between low and high."""
    dtypes = rules.pop("dtypes", FLOATS)
    generate = unary(low, high, *rest, edges=rules.pop("edges", True), **rules.pop("named", {}))
    add(names, generate, dtypes, big_unary(low, high, *rest), **rules)


add_unary("abs", dtypes=REAL + COMPLEX, roundings=4)
add_unary("neg sgn conj_physical", dtypes=REAL + COMPLEX)
add_unary("sign signbit", dtypes=ALL, exact=True)
add_unary("floor ceil trunc round isinf isposinf isneginf relu", dtypes=REAL, exact=True)
add_unary("isnan", dtypes=ALL, exact=True)
add_unary("bitwise_not", dtypes=INTEGERS + BOOL, exact=True)
add_unary("logical_not", dtypes=ALL, exact=True)
add_unary("frac", exact=True)
add_unary("exp exp2 expm1 sin cos tanh sinh cosh erf erfc atan asinh sigmoid", dtypes=ALL, roundings=8)
add_unary("tan", -1.4, 1.4, dtypes=ALL, roundings=8)
add_unary("log log2 log10 sqrt rsqrt", 0.1, 5.0, dtypes=ALL, roundings=8)
add_unary("log1p", -0.5, 5.0, dtypes=ALL, roundings=8)
add_unary("reciprocal", 0.5, 3.0, dtypes=ALL)
add_unary("asin acos atanh erfinv", -0.9, 0.9, roundings=16)
add_unary("acosh", 1.1, 5.0, roundings=16)
add_unary("lgamma digamma", 0.6, 5.0, edges=False, roundings=64)
add_unary("i0 special_i0e special_i1 special_i1e", roundings=32)
# At infinity the CPU has NaN where the limit is 0.
add_unary(
    "special_bessel_j0 special_bessel_j1 special_airy_ai special_spherical_bessel_j0",
    0.1,
    2.0,
    dtypes=WIDE,
    edges=False,
)
add_unary("special_bessel_y0 special_bessel_y1", 0.5, 5.0, dtypes=WIDE, edges=False, roundings=64)
add_unary(
    "special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 "
    "special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1",
    0.3,
    4.0,
    dtypes=WIDE,
    edges=False,
    roundings=64,
)
add_unary("special_entr special_erfcx special_log_ndtr", -2.0, 2.0, dtypes=WIDE, edges=False, roundings=64)
add_unary("special_ndtri", 0.05, 0.95, dtypes=WIDE, edges=False, roundings=64)
add_unary("sinc deg2rad rad2deg angle", roundings=16)
add_unary("round.decimals", named={"decimals": 2}, edges=False)
add_unary("nan_to_num", exact=True, dtypes=REAL)
add_unary("frexp.Tensor", edges=False, exact=True)
add_unary("silu hardswish hardsigmoid mish softplus elu", roundings=8)
add_unary("gelu", roundings=8)
add_unary("leaky_relu", -3.0, 3.0, 0.1)
add_unary("threshold", -3.0, 3.0, 0.5, 2.0, dtypes=REAL, exact=True)
add_unary("hardtanh clamp", -3.0, 3.0, -1.0, 2.0, dtypes=FLOATS + INTEGERS[:4], exact=True)
add_unary("clamp_min clamp_max", -3.0, 3.0, 1.0, dtypes=REAL, exact=True)
add_unary("hardshrink softshrink", -3.0, 3.0, 0.5, edges=False)
add_unary("logit", 0.05, 0.95, 1e-6, edges=False, roundings=16)
add_unary("log_sigmoid_forward", roundings=8, ignore=[1])
add_unary("pow.Tensor_Scalar", 0.5, 2.0, 3.0, dtypes=REAL + COMPLEX, roundings=16)
add_unary("eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar", -2.0, 2.0, 1.0, dtypes=REAL, exact=True)
add_unary("fill_.Scalar", -1.0, 1.0, 2.0, dtypes=ALL, exact=True)
add_unary("zero_", dtypes=ALL, exact=True)
add_unary("__lshift__.Scalar __rshift__.Scalar", 0.0, 20.0, 2, dtypes=INTEGERS, exact=True)


def _pow_scalar(s: Sampler) -> Iterator[Call]:
    for shape in SHAPES:
        yield s.number(2.0), s.tensor(*shape, low=0, high=4)


def _polygamma(s: Sampler) -> Iterator[Call]:
    for n in (1, 2, 3):
        yield n, s.tensor(5, 7, low=1.0, high=5.0)


add("pow.Scalar", _pow_scalar, REAL, roundings=16)
add("polygamma", _polygamma, WIDE, roundings=64)


# ---- two tensors ------------------------------------------------------------------------------------------------


def binary(
    low: float = -3.0,
    high: float = 3.0,
    nonzero: bool = False,
    mixed: bool = True,
    low2: float | None = None,
    **named: Any,
) -> Generator:
    """Two tensors: equal shapes, broadcast in either direction, a scalar, an expanded one, and mixed types."""

    def generate(s: Sampler) -> Iterator[Call]:
        def second(*shape: int) -> torch.Tensor:
            least = low if low2 is None else low2
            return s.nonzero(*shape) if nonzero else s.tensor(*shape, low=least, high=high)

        def first(*shape: int) -> torch.Tensor:
            return s.tensor(*shape, low=low, high=high)

        yield first(5, 7), second(5, 7), dict(named)
        yield first(4, 1, 5), second(3, 1), dict(named)
        yield first(6), second(2, 3, 6), dict(named)
        yield first(5, 7), second(), dict(named)
        yield first(0, 3), second(3), dict(named)
        yield first(1030), second(1030), dict(named)
        yield first(1, 7).expand(5, 7), second(5, 1).expand(5, 7), dict(named)
        if mixed and s.dtype.is_floating_point:
            yield first(5, 7), s.tensor(5, 7, low=1, high=3, dtype=torch.int64), dict(named)

    return generate


def _big_binary(s: Sampler) -> Iterator[Call]:
    yield s.tensor(1024, 1024, low=1, high=3), s.tensor(1024, 1024, low=1, high=3)


def _add_binary(names: str, dtypes: tuple[torch.dtype, ...] = FLOATS, **options: Any) -> None:
    rules = {key: options.pop(key) for key in ("exact", "roundings", "ignore") if key in options}
    add(names, binary(**options), dtypes, _big_binary if not options.get("named") else None, **rules)


_add_binary("add.Tensor mul.Tensor", ALL)
_add_binary("sub.Tensor rsub.Tensor", REAL + COMPLEX)
_add_binary("div.Tensor", ALL, nonzero=True)
_add_binary("floor_divide remainder.Tensor fmod.Tensor", REAL, nonzero=True, mixed=False)
_add_binary("maximum minimum", REAL + BOOL, exact=True)
_add_binary("fmax fmin", REAL, exact=True)
_add_binary("atan2", roundings=16)
_add_binary("hypot logaddexp logaddexp2", roundings=16, mixed=False)
_add_binary("copysign.Tensor", REAL, exact=True)
_add_binary("nextafter", WIDE, exact=True, mixed=False)
_add_binary("heaviside", REAL, exact=True, mixed=False)
_add_binary("xlogy.Tensor special_xlog1py", low=0.2, roundings=16)
_add_binary("gcd lcm", INTEGERS, low=1, high=30, exact=True)
_add_binary("bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor", INTEGERS + BOOL, high=60, exact=True)
_add_binary(
    "bitwise_left_shift.Tensor bitwise_right_shift.Tensor __lshift__.Tensor __rshift__.Tensor",
    INTEGERS,
    low=0,
    high=5,
    exact=True,
)
_add_binary("eq.Tensor ne.Tensor", ALL, exact=True)
_add_binary("lt.Tensor le.Tensor gt.Tensor ge.Tensor", REAL + BOOL, exact=True)
_add_binary("logical_and logical_or logical_xor", ALL, exact=True)
_add_binary("pow.Tensor_Tensor", REAL, low=1, high=3, mixed=False, roundings=16)
_add_binary("clamp_min.Tensor clamp_max.Tensor", REAL, exact=True, mixed=False)
_add_binary("igamma igammac", WIDE, low=0.5, high=4, mixed=False, roundings=256)
_add_binary("special_zeta", WIDE, low=1.5, high=5, mixed=False, roundings=64)
_add_binary("_prelu_kernel", mixed=False)


def _polynomial(s: Sampler) -> Iterator[Call]:
    for shape in ((5, 7), (33,)):
        yield s.tensor(*shape, low=0.1, high=0.9), s.index(5, *shape).to(s.dtype)


add(
    [
        f"special_{name}"
        for name in (
            "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w "
            "shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
            "shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l "
            "legendre_polynomial_p"
        ).split()
    ],
    _polynomial,
    WIDE,
    roundings=128,
)


def _rounding_division(s: Sampler) -> Iterator[Call]:
    for mode in ("floor", "trunc"):
        for call in binary(nonzero=True, mixed=False)(s):
            yield (*call[:-1], {"rounding_mode": mode})


def _alpha(s: Sampler) -> Iterator[Call]:
    yield from binary()(s)
    yield s.tensor(5, 7), s.tensor(5, 7), {"alpha": 2}


add("div.Tensor_mode", _rounding_division, REAL)
add("add.Tensor", _alpha, ALL, _big_binary)
add("sub.Tensor rsub.Tensor", _alpha, REAL + COMPLEX, _big_binary)


# ---- three tensors, and tensors with scalars --------------------------------------------------------------------


def _three(low: float, high: float, **named: Any) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for shapes in (((5, 7),) * 3, ((4, 1, 5), (3, 1), (5,)), ((33,),) * 3, ((5, 7), (), (5, 1))):
            yield (*(s.tensor(*shape, low=low, high=high) for shape in shapes), dict(named))

    return generate


def _big_three(s: Sampler) -> Iterator[Call]:
    yield tuple(s.tensor(1024, 1024, low=1, high=2) for _ in range(3))


add("addcmul", _three(-2, 2, value=2), REAL + COMPLEX, _big_three)
add("addcdiv", _three(1, 3, value=2), FLOATS + COMPLEX, _big_three)
add("lerp.Tensor", _three(0, 1), FLOATS + COMPLEX, _big_three)
add("clamp.Tensor", _three(-3, 3), REAL, _big_three, exact=True)


def _lerp_scalar(s: Sampler) -> Iterator[Call]:
    for call in binary(mixed=False)(s):
        yield (*call[:2], 0.3)


def _where(s: Sampler) -> Iterator[Call]:
    for shapes in (((5, 7),) * 3, ((4, 1, 1), (3, 1), (5,)), ((33,), (), (33,))):
        condition, *rest = shapes
        yield (s.tensor(*condition, dtype=torch.bool), *(s.tensor(*shape) for shape in rest))


def _masked_fill(value: float | None) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        filler = s.number(value) if value is not None else s.tensor()
        for shape, mask in (((5, 7), (5, 7)), ((2, 3, 7), (7,)), ((33,), (33,))):
            yield s.tensor(*shape), s.tensor(*mask, dtype=torch.bool), filler

    return generate


add("lerp.Scalar", _lerp_scalar, FLOATS + COMPLEX)
add("where.self", _where, ALL, exact=True)
add("masked_fill.Scalar", _masked_fill(2.5), ALL, exact=True)
add("masked_fill.Tensor", _masked_fill(None), ALL, exact=True)


def _copy(s: Sampler) -> Iterator[Call]:
    yield s.tensor(5, 7), s.tensor(5, 7)
    yield s.tensor(5, 7), s.tensor(7)
    yield s.tensor(5, 7), s.tensor(7, 5).mT
    for dtype in (torch.float32, torch.float16, torch.int64, torch.bool):
        if not s.dtype.is_complex:
            yield s.tensor(5, 7, low=0), s.tensor(5, 7, low=0, dtype=dtype)


def _pair_of_floats(low: float, high: float) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for shape in ((5, 7), (33,), (2, 3, 4)):
            yield s.tensor(*shape, low=low, high=high), s.tensor(*shape, low=low, high=high)

    return generate


add("copy", _copy, ALL, lambda s: iter([(s.tensor(1024, 1024), s.tensor(1024, 1024))]), exact=True)
add("complex", _pair_of_floats(-3, 3), (torch.float32, torch.float64, torch.float16), exact=True)
add("polar", _pair_of_floats(0.2, 3), WIDE, roundings=16)


# ---- derivatives ------------------------------------------------------------------------------------------------


def derivative(*rest: Any, low: float = -3.0, high: float = 3.0, swapped: bool = False, **named: Any) -> Generator:
    """A gradient and a tensor of one shape, then ``rest``; ``swapped``: the tensor comes after the scalars."""

    def generate(s: Sampler) -> Iterator[Call]:
        for shape in ((5, 7), (33,), (2, 3, 4)):
            grad, value = s.tensor(*shape), s.tensor(*shape, low=low, high=high)
            yield (grad, *rest, value, dict(named)) if swapped else (grad, value, *rest, dict(named))

    return generate


def _add_derivative(names: str, *rest: Any, **options: Any) -> None:
    add(names, derivative(*rest, **options), FLOATS, roundings=16)


_add_derivative("sigmoid_backward", low=0.1, high=0.9)
_add_derivative("tanh_backward", low=-0.9, high=0.9)
_add_derivative("silu_backward hardswish_backward mish_backward gelu_backward")
_add_derivative("threshold_backward hardshrink_backward softshrink_backward", 0.5)
_add_derivative("leaky_relu_backward", 0.1, False)
_add_derivative("elu_backward", 1.0, 1.0, 1.0, False, swapped=True)
_add_derivative("hardtanh_backward", -1.0, 2.0)
_add_derivative("softplus_backward", 1.0, 20.0)
_add_derivative("logit_backward", 1e-6, low=0.05, high=0.95)


def _hardsigmoid_derivative(grad: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The CPU's has a sixth in float32, whatever the type."""
    return grad * (value.abs() < 3) / 6


add("hardsigmoid_backward", derivative(), FLOATS, roundings=16, oracle=_hardsigmoid_derivative)


def _log_sigmoid_backward(s: Sampler) -> Iterator[Call]:
    for shape in ((5, 7), (33,)):
        value = s.tensor(*shape)
        yield s.tensor(*shape), value, torch.ops.aten.log_sigmoid_forward(value)[1]


def _dropout_backward(s: Sampler) -> Iterator[Call]:
    for shape in ((5, 7), (33,)):
        yield s.tensor(*shape), s.tensor(*shape, dtype=torch.bool), 2.0


def _prelu_backward(s: Sampler) -> Iterator[Call]:
    for shape in ((5, 7), (33,)):
        yield s.tensor(*shape), s.tensor(*shape), s.tensor(*shape, low=0, high=1)


def _glu(s: Sampler) -> Iterator[Call]:
    yield s.tensor(5, 8), -1
    yield s.tensor(4, 3, 5), 0


def _glu_backward(s: Sampler) -> Iterator[Call]:
    yield s.tensor(5, 4), s.tensor(5, 8), -1
    yield s.tensor(2, 3, 5), s.tensor(4, 3, 5), 0


add("log_sigmoid_backward", _log_sigmoid_backward, roundings=16)
add("native_dropout_backward", _dropout_backward)
add("_prelu_kernel_backward", _prelu_backward)
add("glu", _glu, roundings=16)
add("glu_backward", _glu_backward, roundings=16)
