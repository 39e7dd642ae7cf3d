// SPDX-License-Identifier: Apache-2.0
// Functions of one tensor.
#include <iterator>

#include "loops.h"
#include "vmath.h"

namespace fl_sim::FL_SIM_ISA {
namespace {

FL_SIM_FN1(Abs, {
  if constexpr (kComplex<T> || kFloating<T>)
    return std::abs(a);
  else
    return a < 0 ? minus<T>(0, a) : a;
});
FL_SIM_FN1(Neg, {
  if constexpr (kInteger<T>)
    return minus<T>(0, a);
  else
    return -a;
});
FL_SIM_FN1(Exp, { return exp_(a); });
FL_SIM_FN1(Exp2, {
  if constexpr (kComplex<T>)
    return std::exp(a * static_cast<typename T::value_type>(M_LN2));
  else
    return std::exp2(a);
});
FL_SIM_FN1(Expm1, { return expm1_(a); });
FL_SIM_FN1(Log, { return log_(a); });
FL_SIM_FN1(Log2, {
  if constexpr (kComplex<T>)
    return std::log(a) / static_cast<typename T::value_type>(M_LN2);
  else
    return std::log2(a);
});
FL_SIM_FN1(Log10, { return std::log10(a); });
FL_SIM_FN1(Log1p, { return log1p_(a); });
FL_SIM_FN1(Sqrt, { return std::sqrt(a); });
FL_SIM_FN1(Rsqrt, { return over(T(1), T(std::sqrt(a))); });
FL_SIM_FN1(Reciprocal, { return over(T(1), a); });
FL_SIM_FN1(Sin, { return std::sin(a); });
FL_SIM_FN1(Cos, { return std::cos(a); });
FL_SIM_FN1(Tan, { return std::tan(a); });
FL_SIM_FN1(Asin, { return std::asin(a); });
FL_SIM_FN1(Acos, { return std::acos(a); });
FL_SIM_FN1(Atan, { return std::atan(a); });
FL_SIM_FN1(Sinh, { return std::sinh(a); });
FL_SIM_FN1(Cosh, { return std::cosh(a); });
FL_SIM_FN1(Tanh, { return tanh_(a); });
FL_SIM_FN1(Asinh, { return std::asinh(a); });
FL_SIM_FN1(Acosh, { return std::acosh(a); });
FL_SIM_FN1(Atanh, { return std::atanh(a); });
FL_SIM_FN1(Erf, { return erf_(a); });
FL_SIM_FN1(Erfc, { return std::erfc(a); });
FL_SIM_FN1(Erfinv, { return static_cast<T>(erfinv_(a)); });
FL_SIM_FN1(Lgamma, {
  int sign = 0;  // the plain function writes a global
  if constexpr (std::is_same_v<T, float>)
    return lgammaf_r(a, &sign);
  else
    return lgamma_r(a, &sign);
});
FL_SIM_FN1(Digamma, { return static_cast<T>(digamma_(a)); });

// Roundings leave integers as they are.
#define ROUNDING(name, function) \
  FL_SIM_FN1(name, {             \
    if constexpr (kFloating<T>)  \
      return function(a);        \
    else                         \
      return a;                  \
  })
ROUNDING(Floor, std::floor);
ROUNDING(Ceil, std::ceil);
ROUNDING(Trunc, std::trunc);
ROUNDING(Round, std::nearbyint);
FL_SIM_FN1(Frac, { return a - std::trunc(a); });
FL_SIM_FN1(Sign, {
  if constexpr (kFloating<T>)
    return static_cast<T>((a > 0) - (a < 0));
  else if constexpr (std::is_same_v<T, bool>)
    return a;
  else
    return static_cast<T>((a > 0) - (a < 0));
});
FL_SIM_FN1(Sgn, {
  if constexpr (kComplex<T>)
    return a == T(0) ? T(0) : a / std::abs(a);
  else
    return Sign::f(a, p);
});
FL_SIM_FN1(Not, {
  if constexpr (std::is_same_v<T, bool>)
    return !a;
  else
    return ~a;
});
FL_SIM_FN1(Conj, { return std::conj(a); });

// round.decimals
FL_SIM_FN1(RoundUp, { return std::nearbyint(a * T(p.d[0])) / T(p.d[0]); });
FL_SIM_FN1(RoundDown, { return std::nearbyint(a / T(p.d[0])) * T(p.d[0]); });
template <class T, class>
void round_decimals(int64_t n, void* const* outs, const void* const* ins, const Params& p) {
  (p.i[0] < 0 ? map1<T, RoundDown> : map1<T, RoundUp>)(n, outs, ins, p);
}
void prepare_decimals(const Call& call, Params& p) {
  p.i[0] = call.integer(1);
  p.d[0] = std::pow(10.0, std::fabs(static_cast<double>(p.i[0])));
}

// nan_to_num: d[0..2] = nan, posinf, neginf
FL_SIM_FN1(NanToNum, {
  if constexpr (kFloating<T>) {
    constexpr T inf = std::numeric_limits<T>::infinity();
    return a != a ? T(p.d[0]) : a == inf ? T(p.d[1]) : a == -inf ? T(p.d[2]) : a;
  } else {
    return a;
  }
});
double largest(fl_dtype dtype) {
  return dtype == FL_FLOAT16    ? 65504.0
         : dtype == FL_BFLOAT16 ? 0x1.FEp127
         : dtype == FL_FLOAT32  ? static_cast<double>(std::numeric_limits<float>::max())
                                : std::numeric_limits<double>::max();
}
void prepare_nan_to_num(const Call& call, Params& p) {
  p.d[0] = call.real(1, 0);
  p.d[1] = call.real(2, largest(p.dtype));
  p.d[2] = call.real(3, -largest(p.dtype));
}

constexpr Kind N = kNoKind;
#define UNARY(op, loops) {"aten::" op, 1, 1, {0}, {N, N, N, N}, Out::kSame, false, false, nullptr, loops, nullptr}

const Pointwise kRows[] = {
    {"aten::abs", 1, 1, {0}, {N, N, N, N}, Out::kReal, false, false, nullptr, FL_SIM_NUMBERS(map1, Abs), nullptr},
    UNARY("neg", FL_SIM_NUMBERS(map1, Neg)),
    UNARY("exp", FL_SIM_FLOATS_COMPLEX(map1, Exp)),
    UNARY("exp2", FL_SIM_FLOATS_COMPLEX(map1, Exp2)),
    UNARY("expm1", FL_SIM_FLOATS_COMPLEX(map1, Expm1)),
    UNARY("log", FL_SIM_FLOATS_COMPLEX(map1, Log)),
    UNARY("log2", FL_SIM_FLOATS_COMPLEX(map1, Log2)),
    UNARY("log10", FL_SIM_FLOATS_COMPLEX(map1, Log10)),
    UNARY("log1p", FL_SIM_FLOATS_COMPLEX(map1, Log1p)),
    UNARY("sqrt", FL_SIM_FLOATS_COMPLEX(map1, Sqrt)),
    UNARY("rsqrt", FL_SIM_FLOATS_COMPLEX(map1, Rsqrt)),
    UNARY("reciprocal", FL_SIM_FLOATS_COMPLEX(map1, Reciprocal)),
    UNARY("sin", FL_SIM_FLOATS_COMPLEX(map1, Sin)),
    UNARY("cos", FL_SIM_FLOATS_COMPLEX(map1, Cos)),
    UNARY("tan", FL_SIM_FLOATS_COMPLEX(map1, Tan)),
    UNARY("asin", FL_SIM_FLOATS_COMPLEX(map1, Asin)),
    UNARY("acos", FL_SIM_FLOATS_COMPLEX(map1, Acos)),
    UNARY("atan", FL_SIM_FLOATS_COMPLEX(map1, Atan)),
    UNARY("sinh", FL_SIM_FLOATS_COMPLEX(map1, Sinh)),
    UNARY("cosh", FL_SIM_FLOATS_COMPLEX(map1, Cosh)),
    UNARY("tanh", FL_SIM_FLOATS_COMPLEX(map1, Tanh)),
    UNARY("asinh", FL_SIM_FLOATS_COMPLEX(map1, Asinh)),
    UNARY("acosh", FL_SIM_FLOATS_COMPLEX(map1, Acosh)),
    UNARY("atanh", FL_SIM_FLOATS_COMPLEX(map1, Atanh)),
    UNARY("erf", FL_SIM_FLOATS(map1, Erf)),
    UNARY("erfc", FL_SIM_FLOATS(map1, Erfc)),
    UNARY("erfinv", FL_SIM_FLOATS(map1, Erfinv)),
    UNARY("lgamma", FL_SIM_FLOATS(map1, Lgamma)),
    UNARY("digamma", FL_SIM_FLOATS(map1, Digamma)),
    UNARY("floor", FL_SIM_REALS(map1, Floor)),
    UNARY("ceil", FL_SIM_REALS(map1, Ceil)),
    UNARY("trunc", FL_SIM_REALS(map1, Trunc)),
    UNARY("round", FL_SIM_REALS(map1, Round)),
    UNARY("frac", FL_SIM_FLOATS(map1, Frac)),
    UNARY("sign", FL_SIM_REALS_BOOL(map1, Sign)),
    UNARY("sgn", FL_SIM_ALL(map1, Sgn)),
    UNARY("bitwise_not", FL_SIM_INTS_BOOL(map1, Not)),
    UNARY("conj_physical", FL_SIM_COMPLEX(map1, Conj)),
    {"aten::round.decimals",
     1,
     1,
     {0},
     {N, N, N, N},
     Out::kSame,
     false,
     false,
     prepare_decimals,
     FL_SIM_FLOATS(round_decimals, void),
     nullptr},
    {"aten::nan_to_num",
     1,
     1,
     {0},
     {N, N, N, N},
     Out::kSame,
     false,
     false,
     prepare_nan_to_num,
     FL_SIM_REALS_BOOL(map1, NanToNum),
     nullptr},
};

}  // namespace

PointwiseTable unary_table() { return {kRows, std::size(kRows)}; }

}  // namespace fl_sim::FL_SIM_ISA
