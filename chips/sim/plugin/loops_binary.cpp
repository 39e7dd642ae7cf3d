// SPDX-License-Identifier: Apache-2.0
// Arithmetic of two and three tensors.
#include <cstring>

#include "loops.h"

namespace fl_sim::FL_SIM_ISA {
namespace {

// ---- add, sub, mul, div
FL_SIM_FN2(Add, { return plus(a, b); });
FL_SIM_FN2(AddScaled, { return plus(a, times(number<T>(p, 0), b)); });
FL_SIM_FN2(Sub, { return minus(a, b); });
FL_SIM_FN2(SubScaled, { return minus(a, times(number<T>(p, 0), b)); });
FL_SIM_FN2(Mul, { return times(a, b); });
FL_SIM_FN2(Div, { return over(a, b); });

// i[1] says that the factor is one.
template <class T, class Plain, class Scaled>
void with_alpha(int64_t n, void* const* outs, const void* const* ins, const Params& p) {
  (p.i[1] ? map2<T, Plain> : map2<T, Scaled>)(n, outs, ins, p);
}
template <class T, class>
void add(int64_t n, void* const* outs, const void* const* ins, const Params& p) {
  with_alpha<T, Add, AddScaled>(n, outs, ins, p);
}
template <class T, class>
void sub(int64_t n, void* const* outs, const void* const* ins, const Params& p) {
  with_alpha<T, Sub, SubScaled>(n, outs, ins, p);
}

void read_scalar(const fl_value& v, Params& p, int at) {
  p.d[at] = Call::to_real(v);
  p.i[at] = Call::to_integer(v);
  p.c = v.kind == FL_COMPLEX ? C128(v.u.c[0], v.u.c[1]) : C128(p.d[at], 0);
}

void prepare_alpha(const Call& call, Params& p) {
  if (call.none(2)) {
    p.i[1] = 1;
    return;
  }
  const fl_value& v = call.value(2);
  p.i[1] = v.kind == FL_REAL ? v.u.d == 1 : v.kind == FL_COMPLEX ? v.u.c[0] == 1 && v.u.c[1] == 0 : v.u.i == 1;
  // PyTorch multiplies by alpha also when it is one: (inf + 0i) * (1 + 0i) has a NaN in it.
  const fl_dtype type = call.raw.compute_dtype;
  if (type == FL_COMPLEX32 || type == FL_COMPLEX64 || type == FL_COMPLEX128) p.i[1] = 0;
  if (p.i[1]) return;
  read_scalar(v, p, 0);
}

// ---- rounding divisions, remainders
inline int64_t truncated(int64_t a, int64_t b) {
  if (b == 0) zero_division();
  return b == -1 ? minus<int64_t>(0, a) : a / b;
}
inline int64_t rest(int64_t a, int64_t b) {
  if (b == 0) zero_division();
  return b == -1 ? 0 : a % b;
}
template <class T>
inline T floored(T a, T b) {
  if constexpr (kInteger<T>) {
    const T quotient = truncated(a, b);
    return quotient - (((a < 0) != (b < 0)) && rest(a, b) != 0);
  } else {
    if (b == 0) return a / b;
    const T modulus = std::fmod(a, b);
    T quotient = (a - modulus) / b;
    if (modulus != 0 && (b < 0) != (modulus < 0)) quotient -= 1;
    if (quotient == 0) return std::copysign(T(0), a / b);
    const T whole = std::floor(quotient);
    return quotient - whole > T(0.5) ? whole + 1 : whole;
  }
}

FL_SIM_FN2(Trunc, {
  if constexpr (kInteger<T>)
    return truncated(a, b);
  else
    return std::trunc(a / b);
});
FL_SIM_FN2(Floor, { return floored(a, b); });
FL_SIM_FN2(Fmod, {
  if constexpr (kInteger<T>)
    return rest(a, b);
  else
    return std::fmod(a, b);
});
FL_SIM_FN2(Remainder, {
  if constexpr (kInteger<T>) {
    const T r = rest(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  } else {
    const T r = std::fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
});

template <class T, class>
void div_mode(int64_t n, void* const* outs, const void* const* ins, const Params& p) {
  if (p.i[0] == 0) {
    if constexpr (!kInteger<T>) map2<T, Div>(n, outs, ins, p);
  } else if constexpr (!kComplex<T>) {
    (p.i[0] == 1 ? map2<T, Trunc> : map2<T, Floor>)(n, outs, ins, p);
  }
}
void prepare_mode(const Call& call, Params& p) {
  const std::string_view mode = call.string(2);
  p.i[0] = mode == "trunc" ? 1 : mode == "floor" ? 2 : 0;
}
fl_status supports_mode(const fl_call* call) {
  if (call->args[2].kind == FL_NONE && !is_real_float(call->compute_dtype) && !is_complex(call->compute_dtype))
    return unsupported("true division of integers needs a floating-point compute type");
  if (call->args[2].kind == FL_STRING && is_complex(call->compute_dtype))
    return unsupported("complex numbers have no rounding division");
  return FL_OK;
}

// ---- powers
inline int64_t integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, square = static_cast<uint64_t>(base);
  for (; exponent; exponent >>= 1, square *= square)
    if (exponent & 1) result *= square;
  return static_cast<int64_t>(result);
}
FL_SIM_FN2(Pow, {
  if constexpr (kInteger<T>)
    return integer_power(a, b);
  else
    return std::pow(a, b);
});
FL_SIM_FN1(Square, { return times(a, a); });
FL_SIM_FN1(Cube, { return times(times(a, a), a); });
FL_SIM_FN1(Root, { return std::sqrt(a); });
FL_SIM_FN1(InverseRoot, { return over(T(1), T(std::sqrt(a))); });
FL_SIM_FN1(Inverse, { return over(T(1), a); });
FL_SIM_FN1(InverseSquare, { return over(T(1), times(a, a)); });

// The same short cuts for a scalar exponent as PyTorch, since they differ at infinities.
template <class T, class>
void power(int64_t n, void* const* outs, const void* const* ins, const Params& p) {
  if constexpr (!kInteger<T>) {
    LoopFn loop = nullptr;
    if (p.i[1]) {
      const double e = p.d[0];
      loop = e == 2      ? map1<T, Square>
             : e == 3    ? map1<T, Cube>
             : e == 0.5  ? map1<T, Root>
             : e == -0.5 ? map1<T, InverseRoot>
             : e == -1   ? map1<T, Inverse>
             : e == -2   ? map1<T, InverseSquare>
                         : nullptr;
    }
    if (loop) return loop(n, outs, ins, p);
  }
  map2<T, Pow>(n, outs, ins, p);
}
void prepare_exponent(const Call& call, Params& p) {
  const fl_value& v = call.value(1);
  p.i[1] = v.kind == FL_REAL || v.kind == FL_INTEGER || v.kind == FL_BOOLEAN;
  if (p.i[1]) p.d[0] = Call::to_real(v);
}

// ---- extremes and the like
FL_SIM_FN2(Maximum, {
  if constexpr (kFloating<T>)
    return a != a || a > b ? a : b;
  else
    return T(a > b ? a : b);
});
FL_SIM_FN2(Minimum, {
  if constexpr (kFloating<T>)
    return a != a || a < b ? a : b;
  else
    return T(a < b ? a : b);
});
FL_SIM_FN2(Fmax, { return T(b != b || a > b ? a : b); });
FL_SIM_FN2(Fmin, { return T(b != b || a < b ? a : b); });
FL_SIM_FN2(Atan2, { return std::atan2(a, b); });
FL_SIM_FN2(Hypot, { return std::hypot(a, b); });
FL_SIM_FN2(Copysign, { return std::copysign(a, b); });
FL_SIM_FN2(Xlogy, { return b != b ? b : a == 0 ? T(0) : a * std::log(b); });
FL_SIM_FN2(Logaddexp, {
  if (std::isinf(a) && a == b) return a;
  const T high = a != a || a > b ? a : b;
  return high + std::log1p(std::exp(-std::fabs(a - b)));
});
FL_SIM_FN2(Logaddexp2, {
  if (std::isinf(a) && a == b) return a;
  const T high = a != a || a > b ? a : b;
  return high + std::log1p(std::exp2(-std::fabs(a - b))) / std::log(T(2));
});
FL_SIM_FN2(Heaviside, { return T(a == 0 ? b : T(a > 0)); });
FL_SIM_FN2(Gcd, {
  uint64_t x = a < 0 ? -static_cast<uint64_t>(a) : static_cast<uint64_t>(a);
  uint64_t y = b < 0 ? -static_cast<uint64_t>(b) : static_cast<uint64_t>(b);
  while (y) {
    const uint64_t r = x % y;
    x = y;
    y = r;
  }
  return static_cast<T>(x);
});

FL_SIM_FN2(Lcm, {
  const T divisor = Gcd::f(a, b, p);
  const T multiple = divisor == 0 ? T(0) : times(T(a / divisor), b);
  return multiple < 0 ? minus<T>(0, multiple) : multiple;
});

// ---- bits
FL_SIM_FN2(And, { return T(a & b); });
FL_SIM_FN2(Or, { return T(a | b); });
FL_SIM_FN2(Xor, { return T(a ^ b); });
inline int64_t width(const Params& p) { return dtype_size(p.dtype) * 8; }
FL_SIM_FN2(LeftShift, { return b < 0 || b >= width(p) ? T(0) : static_cast<T>(static_cast<uint64_t>(a) << b); });
FL_SIM_FN2(RightShift, {
  const int64_t most = width(p) - (p.dtype != FL_UINT8);
  return a >> (b < 0 || b >= most ? (most > 63 ? 63 : most) : b);
});

// ---- three tensors
FL_SIM_FN3(Lerp, {
  if constexpr (kComplex<T>)
    return std::abs(c) < 0.5 ? a + times(c, b - a) : b - times(b - a, T(1) - c);
  else
    return std::fabs(c) < T(0.5) ? a + c * (b - a) : b - (b - a) * (1 - c);
});
FL_SIM_FN3(Addcmul, { return plus(a, times(times(number<T>(p, 0), b), c)); });
FL_SIM_FN3(Addcdiv, { return a + over(times(number<T>(p, 0), b), c); });
void prepare_value(const Call& call, Params& p) {
  if (!call.none(3)) return read_scalar(call.value(3), p, 0);
  p.d[0] = 1, p.i[0] = 1, p.c = 1;
}

constexpr Kind N = kNoKind;
#define ROW2(op, loops, prepare) \
  {"aten::" op, 2, 1, {0, 1}, {N, N, N, N}, Out::kSame, false, false, prepare, loops, nullptr}
#define ROW3(op, loops, prepare) \
  {"aten::" op, 3, 1, {0, 1, 2}, {N, N, N, N}, Out::kSame, false, false, prepare, loops, nullptr}

const Pointwise kRows[] = {
    ROW2("add.Tensor", FL_SIM_ALL(add, void), prepare_alpha),
    ROW2("sub.Tensor", FL_SIM_NUMBERS(sub, void), prepare_alpha),
    ROW2("mul.Tensor", FL_SIM_ALL(map2, Mul), nullptr),
    ROW2("div.Tensor", FL_SIM_FLOATS_COMPLEX(map2, Div), nullptr),
    {"aten::div.Tensor_mode",
     2,
     1,
     {0, 1},
     {N, N, N, N},
     Out::kSame,
     false,
     false,
     prepare_mode,
     FL_SIM_NUMBERS(div_mode, void),
     supports_mode},
    ROW2("floor_divide", FL_SIM_REALS(map2, Floor), nullptr),
    ROW2("remainder.Tensor", FL_SIM_REALS(map2, Remainder), nullptr),
    ROW2("fmod.Tensor", FL_SIM_REALS(map2, Fmod), nullptr),
    ROW2("pow.Tensor_Tensor", FL_SIM_NUMBERS(map2, Pow), nullptr),
    ROW2("pow.Tensor_Scalar", FL_SIM_NUMBERS(power, void), prepare_exponent),
    ROW2("pow.Scalar", FL_SIM_NUMBERS(map2, Pow), nullptr),
    ROW2("maximum", FL_SIM_REALS_BOOL(map2, Maximum), nullptr),
    ROW2("minimum", FL_SIM_REALS_BOOL(map2, Minimum), nullptr),
    ROW2("fmax", FL_SIM_REALS_BOOL(map2, Fmax), nullptr),
    ROW2("fmin", FL_SIM_REALS_BOOL(map2, Fmin), nullptr),
    ROW2("atan2", FL_SIM_FLOATS(map2, Atan2), nullptr),
    ROW2("hypot", FL_SIM_FLOATS(map2, Hypot), nullptr),
    ROW2("copysign.Tensor", FL_SIM_FLOATS(map2, Copysign), nullptr),
    ROW2("xlogy.Tensor", FL_SIM_FLOATS(map2, Xlogy), nullptr),
    ROW2("logaddexp", FL_SIM_FLOATS(map2, Logaddexp), nullptr),
    ROW2("logaddexp2", FL_SIM_FLOATS(map2, Logaddexp2), nullptr),
    ROW2("heaviside", FL_SIM_REALS_BOOL(map2, Heaviside), nullptr),
    ROW2("gcd", FL_SIM_INTS(map2, Gcd), nullptr),
    ROW2("lcm", FL_SIM_INTS(map2, Lcm), nullptr),
    ROW2("bitwise_and.Tensor", FL_SIM_INTS_BOOL(map2, And), nullptr),
    ROW2("bitwise_or.Tensor", FL_SIM_INTS_BOOL(map2, Or), nullptr),
    ROW2("bitwise_xor.Tensor", FL_SIM_INTS_BOOL(map2, Xor), nullptr),
    ROW2("bitwise_left_shift.Tensor", FL_SIM_INTS(map2, LeftShift), nullptr),
    ROW2("__lshift__.Tensor", FL_SIM_INTS(map2, LeftShift), nullptr),
    ROW2("bitwise_right_shift.Tensor", FL_SIM_INTS(map2, RightShift), nullptr),
    ROW2("__rshift__.Tensor", FL_SIM_INTS(map2, RightShift), nullptr),
    ROW3("lerp.Tensor", FL_SIM_FLOATS_COMPLEX(map3, Lerp), nullptr),
    ROW3("lerp.Scalar", FL_SIM_FLOATS_COMPLEX(map3, Lerp), nullptr),
    ROW3("addcmul", FL_SIM_NUMBERS(map3, Addcmul), prepare_value),
    ROW3("addcdiv", FL_SIM_FLOATS_COMPLEX(map3, Addcdiv), prepare_value),
};

}  // namespace

PointwiseTable binary_table() { return {kRows, std::size(kRows)}; }

}  // namespace fl_sim::FL_SIM_ISA
