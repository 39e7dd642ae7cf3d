// SPDX-License-Identifier: Apache-2.0
// Activations, clamps, element-wise losses, and the backward formulas that belong to them.
#include <iterator>

#include "loops.h"
#include "vmath.h"

namespace fl_sim::FL_SIM_ISA {
namespace {

template <class T>
inline T normal_density(T x) {
  return exp_(T(-0.5) * x * x) * T(M_2_SQRTPI * M_SQRT1_2 * 0.5);
}
template <class T>
inline T normal_cdf(T x) {
  return T(0.5) * (1 + erf_(x * T(M_SQRT1_2)));
}

// ---- Forward
FL_SIM_FN1(Relu, {
  if constexpr (kFloating<T>)
    return a > 0 || a != a ? a : T(0);
  else
    return a > 0 ? a : T(0);
});
FL_SIM_FN1(Sigmoid, { return sigmoid_(a); });
FL_SIM_FN1(Silu, {
  if constexpr (kComplex<T>)
    return a / (T(1) + std::exp(-a));
  else
    return a / (1 + exp_(-a));
});
FL_SIM_FN1(Gelu, { return a * normal_cdf(a); });
FL_SIM_FN1(GeluTanh, {
  const T inner = T(M_SQRT2 * M_2_SQRTPI * 0.5) * (a + T(0.044715) * a * a * a);
  return T(0.5) * a * (1 + tanh_(inner));
});
template <class T, class>
void gelu(int64_t n, void* const* outs, const void* const* ins, const Params& p) {
  (p.i[0] ? map1<T, GeluTanh> : map1<T, Gelu>)(n, outs, ins, p);
}
void prepare_gelu(const Call& call, Params& p) { p.i[0] = call.string(1, "none") == "tanh"; }

template <uint32_t kArg>
fl_status supports_approximate(const fl_call* call) {
  const std::string_view how = call->args[kArg].kind == FL_STRING ? call->args[kArg].u.s : "none";
  return how == "none" || how == "tanh" ? FL_OK : unsupported("no such approximation of gelu");
}

FL_SIM_FN1(LeakyRelu, { return a > 0 ? a : a * T(p.d[0]); });
void prepare_slope(const Call& call, Params& p) { p.d[0] = call.real(1, 0.01); }
// d = alpha * scale, scale, input_scale
FL_SIM_FN1(Elu, { return a < 0 ? expm1_(a * T(p.d[2])) * T(p.d[0]) : a * T(p.d[1]); });
void prepare_elu(const Call& call, Params& p) {
  p.d[1] = call.real(2, 1);
  p.d[0] = call.real(1, 1) * p.d[1];
  p.d[2] = call.real(3, 1);
}
FL_SIM_FN1(Softplus, { return a * T(p.d[0]) > T(p.d[1]) ? a : log1p_(exp_(a * T(p.d[0]))) / T(p.d[0]); });
void prepare_softplus(const Call& call, Params& p) {
  p.d[0] = call.real(1, 1);
  p.d[1] = call.real(2, 20);
}
template <class T>
inline T between(T x, T low, T high) {  // NaN stays
  return x < low ? low : x > high ? high : x;
}
FL_SIM_FN1(Hardswish, { return a * between(a + 3, T(0), T(6)) / 6; });
FL_SIM_FN1(Hardsigmoid, { return between(a + 3, T(0), T(6)) / 6; });
FL_SIM_FN1(Mish, { return a * tanh_(log1p_(exp_(a))); });
FL_SIM_FN1(Threshold, { return a <= number<T>(p, 0) ? number<T>(p, 1) : a; });
void prepare_two(const Call& call, Params& p) {
  for (uint32_t k = 0; k < 2; ++k) p.d[k] = call.real(k + 1), p.i[k] = call.integer(k + 1);
}
FL_SIM_FN1(Logit, {
  T x = a;
  if (p.d[0] >= 0) x = between(x, T(p.d[0]), T(1 - p.d[0]));
  return x == 1 ? std::numeric_limits<T>::infinity() : log_(x / (1 - x));
});
void prepare_logit(const Call& call, Params& p) { p.d[0] = call.real(1, -1); }

// ---- Clamps. A NaN anywhere is the result.
FL_SIM_FN2(ClampMin, { return b != b ? b : a < b ? b : a; });
FL_SIM_FN2(ClampMax, { return b != b ? b : a > b ? b : a; });
FL_SIM_FN3(Clamp, {
  if constexpr (kFloating<T>) {
    const T low = a < b ? b : a;
    const T both = low > c ? c : low;
    return a != a ? a : b != b ? b : c != c ? c : both;
  } else {
    const T low = a < b ? b : a;
    return T(low > c ? c : low);
  }
});
// A missing bound arrives as the scalar 0: i says which there are.
template <class T, class>
void clamp(int64_t n, void* const* outs, const void* const* ins, const Params& p) {
  const void* const upper[2] = {ins[0], ins[2]};
  if (p.i[0] && p.i[1])
    map3<T, Clamp>(n, outs, ins, p);
  else if (p.i[0])
    map2<T, ClampMin>(n, outs, ins, p);
  else
    map2<T, ClampMax>(n, outs, upper, p);
}
void prepare_clamp(const Call& call, Params& p) {
  p.i[0] = !call.none(1);
  p.i[1] = !call.none(2);
}

// ---- Backward: a = gradient, b = input (or result)
FL_SIM_FN2(SigmoidBackward, {
  if constexpr (kComplex<T>)
    return times(a, std::conj(times(T(1) - b, b)));
  else
    return a * (1 - b) * b;
});
FL_SIM_FN2(TanhBackward, {
  if constexpr (kComplex<T>)
    return times(a, std::conj(T(1) - times(b, b)));
  else
    return a * (1 - b * b);
});
FL_SIM_FN2(ThresholdBackward, { return b <= number<T>(p, 0) ? T(0) : a; });
void prepare_threshold(const Call& call, Params& p) { p.d[0] = call.real(2), p.i[0] = call.integer(2); }
FL_SIM_FN2(GeluBackward, { return a * (normal_cdf(b) + b * normal_density(b)); });
FL_SIM_FN2(GeluTanhBackward, {
  constexpr T beta = T(M_SQRT2 * M_2_SQRTPI * 0.5);
  constexpr T kappa = T(0.044715);
  const T t = tanh_(beta * (b + kappa * b * b * b));
  const T slope = beta * (1 + 3 * kappa * b * b);
  return a * (T(0.5) * (1 + t) + T(0.5) * b * (1 - t * t) * slope);
});
template <class T, class>
void gelu_backward(int64_t n, void* const* outs, const void* const* ins, const Params& p) {
  (p.i[0] ? map2<T, GeluTanhBackward> : map2<T, GeluBackward>)(n, outs, ins, p);
}
void prepare_gelu_backward(const Call& call, Params& p) { p.i[0] = call.string(2, "none") == "tanh"; }
FL_SIM_FN2(SiluBackward, {
  const T s = sigmoid_(b);
  return a * s * (1 + b * (1 - s));
});
FL_SIM_FN2(LeakyReluBackward, { return b > 0 ? a : a * T(p.d[0]); });
void prepare_slope_backward(const Call& call, Params& p) { p.d[0] = call.real(2); }
FL_SIM_FN2(EluBackward, {
  const T negative = p.i[0] ? a * T(p.d[2]) * (b + T(p.d[0])) : a * T(p.d[2]) * T(p.d[0]) * exp_(b * T(p.d[2]));
  return b <= 0 ? negative : a * T(p.d[1]);
});
void prepare_elu_backward(const Call& call, Params& p) {
  p.d[1] = call.real(2);
  p.d[0] = call.real(1) * p.d[1];
  p.d[2] = call.real(3);
  p.i[0] = call.boolean(4);
}
FL_SIM_FN2(HardtanhBackward, { return b <= T(p.d[0]) || b >= T(p.d[1]) ? T(0) : a; });
void prepare_two_backward(const Call& call, Params& p) { p.d[0] = call.real(2), p.d[1] = call.real(3); }
FL_SIM_FN2(SoftplusBackward, {
  const T z = exp_(b * T(p.d[0]));
  return b * T(p.d[0]) > T(p.d[1]) ? a : a * z / (z + 1);
});
FL_SIM_FN2(HardswishBackward, { return b <= -3 ? T(0) : b < 3 ? a * (b / 3 + T(0.5)) : a; });
FL_SIM_FN2(HardsigmoidBackward, { return b > -3 && b < 3 ? a / 6 : T(0); });
FL_SIM_FN2(MishBackward, {
  const T s = sigmoid_(b);
  const T t = tanh_(log1p_(exp_(b)));
  return a * (t + b * s * (1 - t * t));
});
FL_SIM_FN3(LogSigmoidBackward, {
  const T slope = b < 0 ? T(1) : T(0);
  const T sign = b < 0 ? T(1) : T(-1);
  const T z = exp_(-std::fabs(b));
  return (slope - sign * (z / (1 + z))) * a;
});
FL_SIM_FN2(LogitBackward, {
  const bool outside = p.d[0] >= 0 ? b < T(p.d[0]) || b > T(1 - p.d[0]) : b < 0 || b > 1;
  return outside ? (p.d[0] >= 0 ? T(0) : std::numeric_limits<T>::quiet_NaN()) : a / (b * (1 - b));
});
void prepare_logit_backward(const Call& call, Params& p) { p.d[0] = call.real(2, -1); }

// log_sigmoid_forward(self) -> (output, buffer); the CPU keeps exp(-|x|) in the buffer.
template <class T, class>
void log_sigmoid(int64_t n, void* const* outs, const void* const* ins, const Params&) {
  auto* out = static_cast<T*>(outs[0]);
  auto* buffer = static_cast<T*>(outs[1]);
  auto* a = static_cast<const T*>(ins[0]);
  for (int64_t i = 0; i < n; ++i) {
    const T x = a[i], z = exp_(-std::fabs(x));
    buffer[i] = z;
    out[i] = (x < 0 ? x : x != x ? x : T(0)) - log1p_(z);
  }
}

// native_dropout_backward(grad, mask, scale); ins = mask, grad
template <class T, class>
void dropout_backward(int64_t n, void* const* outs, const void* const* ins, const Params& p) {
  auto* out = static_cast<T*>(outs[0]);
  auto* mask = static_cast<const bool*>(ins[0]);
  auto* grad = static_cast<const T*>(ins[1]);
  const T scale = static_cast<T>(p.d[0]);
  for (int64_t i = 0; i < n; ++i) out[i] = grad[i] * (static_cast<T>(mask[i]) * scale);
}
void prepare_scale(const Call& call, Params& p) { p.d[0] = call.real(2); }

constexpr Kind N = kNoKind;
#define ONE(op, prepare, loops) \
  {"aten::" op, 1, 1, {0}, {N, N, N, N}, Out::kSame, false, false, prepare, loops, nullptr}
#define TWO(op, prepare, loops) \
  {"aten::" op, 2, 1, {0, 1}, {N, N, N, N}, Out::kSame, false, false, prepare, loops, nullptr}
#define BOUND(op, count, prepare, loops) \
  {"aten::" op, count, 1, {0, 1, 2}, {N, N, N, N}, Out::kSame, false, false, prepare, loops, nullptr}

const Pointwise kRows[] = {
    ONE("relu", nullptr, FL_SIM_REALS(map1, Relu)),
    ONE("sigmoid", nullptr, FL_SIM_FLOATS_COMPLEX(map1, Sigmoid)),
    ONE("silu", nullptr, FL_SIM_FLOATS_COMPLEX(map1, Silu)),
    {"aten::gelu",
     1,
     1,
     {0},
     {N, N, N, N},
     Out::kSame,
     false,
     false,
     prepare_gelu,
     FL_SIM_FLOATS(gelu, void),
     supports_approximate<1>},
    ONE("leaky_relu", prepare_slope, FL_SIM_FLOATS(map1, LeakyRelu)),
    ONE("elu", prepare_elu, FL_SIM_FLOATS(map1, Elu)),
    ONE("softplus", prepare_softplus, FL_SIM_FLOATS(map1, Softplus)),
    ONE("hardswish", nullptr, FL_SIM_FLOATS(map1, Hardswish)),
    ONE("hardsigmoid", nullptr, FL_SIM_FLOATS(map1, Hardsigmoid)),
    ONE("mish", nullptr, FL_SIM_FLOATS(map1, Mish)),
    ONE("threshold", prepare_two, FL_SIM_REALS(map1, Threshold)),
    ONE("logit", prepare_logit, FL_SIM_FLOATS(map1, Logit)),
    BOUND("hardtanh", 3, prepare_clamp, FL_SIM_REALS(clamp, void)),
    BOUND("clamp", 3, prepare_clamp, FL_SIM_REALS(clamp, void)),
    BOUND("clamp.Tensor", 3, prepare_clamp, FL_SIM_REALS(clamp, void)),
    BOUND("clamp_min", 2, nullptr, FL_SIM_REALS(map2, ClampMin)),
    BOUND("clamp_min.Tensor", 2, nullptr, FL_SIM_REALS(map2, ClampMin)),
    BOUND("clamp_max", 2, nullptr, FL_SIM_REALS(map2, ClampMax)),
    BOUND("clamp_max.Tensor", 2, nullptr, FL_SIM_REALS(map2, ClampMax)),
    {"aten::log_sigmoid_forward",
     1,
     2,
     {0},
     {N, N, N, N},
     Out::kSame,
     false,
     false,
     nullptr,
     FL_SIM_FLOATS(log_sigmoid, void),
     nullptr},
    TWO("sigmoid_backward", nullptr, FL_SIM_FLOATS_COMPLEX(map2, SigmoidBackward)),
    TWO("tanh_backward", nullptr, FL_SIM_FLOATS_COMPLEX(map2, TanhBackward)),
    TWO("threshold_backward", prepare_threshold, FL_SIM_REALS(map2, ThresholdBackward)),
    {"aten::gelu_backward",
     2,
     1,
     {0, 1},
     {N, N, N, N},
     Out::kSame,
     false,
     false,
     prepare_gelu_backward,
     FL_SIM_FLOATS(gelu_backward, void),
     supports_approximate<2>},
    TWO("silu_backward", nullptr, FL_SIM_FLOATS(map2, SiluBackward)),
    TWO("leaky_relu_backward", prepare_slope_backward, FL_SIM_FLOATS(map2, LeakyReluBackward)),
    {"aten::elu_backward",
     2,
     1,
     {0, 5},
     {N, N, N, N},
     Out::kSame,
     false,
     false,
     prepare_elu_backward,
     FL_SIM_FLOATS(map2, EluBackward),
     nullptr},
    TWO("hardtanh_backward", prepare_two_backward, FL_SIM_FLOATS(map2, HardtanhBackward)),
    TWO("softplus_backward", prepare_two_backward, FL_SIM_FLOATS(map2, SoftplusBackward)),
    TWO("hardswish_backward", nullptr, FL_SIM_FLOATS(map2, HardswishBackward)),
    TWO("hardsigmoid_backward", nullptr, FL_SIM_FLOATS(map2, HardsigmoidBackward)),
    TWO("mish_backward", nullptr, FL_SIM_FLOATS(map2, MishBackward)),
    TWO("logit_backward", prepare_logit_backward, FL_SIM_FLOATS(map2, LogitBackward)),
    {"aten::log_sigmoid_backward",
     3,
     1,
     {0, 1, 1},
     {N, N, N, N},
     Out::kSame,
     false,
     false,
     nullptr,
     FL_SIM_FLOATS(map3, LogSigmoidBackward),
     nullptr},
    {"aten::native_dropout_backward",
     2,
     1,
     {1, 0},
     {kBool, N, N, N},
     Out::kSame,
     false,
     false,
     prepare_scale,
     FL_SIM_FLOATS_COMPLEX(dropout_backward, void),
     nullptr},
};

}  // namespace

PointwiseTable activation_table() { return {kRows, std::size(kRows)}; }

}  // namespace fl_sim::FL_SIM_ISA
