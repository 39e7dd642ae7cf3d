// SPDX-License-Identifier: Apache-2.0
// Elementary functions for inner loops. The float ones have no branches or calls, so the compiler vectorises a loop
// over them; their error is about one unit in the last place. Coefficients: weighted minimax fits made for this file.
#pragma once

#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace fl_sim::FL_SIM_ISA {

// Adding and subtracting 1.5 * 2^23 rounds to an integer, which then sits in the low bits.
constexpr float kRounder = 12582912.0f;

struct ReducedExp {
  float rest;  // e^x = 2^n e^rest
  int32_t n;
};
inline ReducedExp reduce_exp(float x) {
  const float shifted = x * 1.44269504f + kRounder;
  const float whole = shifted - kRounder;
  const float rest = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
  return {rest, std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRounder)};
}
inline float power_of_two(int32_t n) { return std::bit_cast<float>((n + 127) << 23); }
// e^r - 1 for |r| <= ln(2)/2
inline float expm1_reduced(float r) {
  float q = 1.99079533e-04f;
  q = q * r + 1.39339023e-03f;
  q = q * r + 8.33328548e-03f;
  q = q * r + 4.16664626e-02f;
  q = q * r + 1.66666668e-01f;
  q = q * r + 0.5f;
  return r + r * r * q;
}

inline float exp_(float x) {
  float bounded = x > 89.0f ? 89.0f : x;
  bounded = bounded < -104.0f ? -104.0f : bounded;
  const ReducedExp e = reduce_exp(bounded);
  const int32_t half = e.n >> 1;  // 2^n in two steps: n may be 128, or that of a subnormal
  return (1.0f + expm1_reduced(e.rest)) * power_of_two(half) * power_of_two(e.n - half);
}
inline float expm1_(float x) {
  float bounded = x > 88.0f ? 88.0f : x;
  bounded = bounded < -20.0f ? -20.0f : bounded;
  const ReducedExp e = reduce_exp(bounded);
  const float half = power_of_two(e.n - 1);
  const float value = 2.0f * (half * expm1_reduced(e.rest) + (half - 0.5f));
  return x > 88.0f ? exp_(x) : (std::fabs(x) < 1e-7f ? x : value);
}
inline float log_(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 0x1p23f : x;
  const int32_t bits = std::bit_cast<int32_t>(scaled);
  const int32_t n = (bits - 0x3F3504F3) >> 23;  // so that the mantissa lies in [sqrt(1/2), sqrt(2))
  const float f = std::bit_cast<float>(bits - (n << 23)) - 1.0f;
  const float e = static_cast<float>(n) - (tiny ? 23.0f : 0.0f);
  float q = 6.91910e-02f;
  q = q * f - 1.17814760e-01f;
  q = q * f + 1.18665e-01f;
  q = q * f - 1.23855440e-01f;
  q = q * f + 1.42198300e-01f;
  q = q * f - 1.66692080e-01f;
  q = q * f + 2.00021560e-01f;
  q = q * f - 2.49999870e-01f;
  q = q * f + 3.33333120e-01f;
  const float square = f * f;
  float value = f * square * q + e * -2.12194440e-4f;
  value = (f + (value - 0.5f * square)) + e * 0.693359375f;
  constexpr float inf = std::numeric_limits<float>::infinity();
  value = x == inf ? inf : value;
  value = x == 0.0f ? -inf : value;
  return x >= 0.0f ? value : std::numeric_limits<float>::quiet_NaN();
}
inline float log1p_(float x) {
  const float u = 1.0f + x;
  const float corrected = log_(u) - ((u - 1.0f) - x) / u;
  const float value = u == 1.0f ? x : corrected;
  return u == 0.0f || u > 3e38f || u != u ? log_(u) : value;
}
inline float tanh_(float x) {
  const float magnitude = std::fabs(x);
  const float bounded = magnitude > 10.0f ? 10.0f : magnitude;
  const float e = expm1_(-2.0f * bounded);
  const float value = std::copysign(-e / (e + 2.0f), x);
  return x != x ? x : value;
}
inline float erf_(float x) {
  const float square = x * x;
  float small = 7.88911955e-05f;
  small = small * square - 8.02084128e-04f;
  small = small * square + 5.18953534e-03f;
  small = small * square - 2.68544446e-02f;
  small = small * square + 1.12836002e-01f;
  small = small * square - 3.76126271e-01f;
  small = small * square + 1.12837917e+00f;
  float a = std::fabs(x);
  a = a > 4.0f ? 4.0f : a;
  float log_erfc = 9.10539435e-08f;
  log_erfc = log_erfc * a - 2.29955843e-05f;
  log_erfc = log_erfc * a + 4.49398410e-04f;
  log_erfc = log_erfc * a - 4.23237016e-03f;
  log_erfc = log_erfc * a + 2.52670198e-02f;
  log_erfc = log_erfc * a - 1.08496509e-01f;
  log_erfc = log_erfc * a - 6.33156520e-01f;
  log_erfc = log_erfc * a - 1.12960733e+00f;
  log_erfc = log_erfc * a + 1.93706269e-04f;
  const float large = std::copysign(1.0f - exp_(log_erfc), x);
  const float value = std::fabs(x) < 1.0f ? x * small : large;
  return x != x ? x : value;
}

inline double exp_(double x) { return std::exp(x); }
inline double expm1_(double x) { return std::expm1(x); }
inline double log_(double x) { return std::log(x); }
inline double log1p_(double x) { return std::log1p(x); }
inline double tanh_(double x) { return std::tanh(x); }
inline double erf_(double x) { return std::erf(x); }
template <class T>
inline std::complex<T> exp_(std::complex<T> x) {
  return std::exp(x);
}
template <class T>
inline std::complex<T> log_(std::complex<T> x) {
  return std::log(x);
}
template <class T>
inline std::complex<T> tanh_(std::complex<T> x) {
  return std::tanh(x);
}

// Accurate where e^x is near 1: by Kahan's identity on the parts.
template <class T>
inline std::complex<T> expm1_(std::complex<T> z) {
  const T s = std::sin(z.imag() / 2), grown = std::expm1(z.real());
  return {grown * std::cos(z.imag()) - 2 * s * s, std::exp(z.real()) * std::sin(z.imag())};
}
template <class T>
inline std::complex<T> log1p_(std::complex<T> z) {
  const T x = z.real(), y = z.imag(), theta = std::atan2(y, x + 1);
  const T r2 = x * (x + 2) + y * y;
  if (std::fabs(z) < T(0.5)) return {std::log1p(r2) / 2, theta};
  return {std::log(std::hypot(x + 1, y)), theta};
}

/// 1 / (1 + e^-x)
inline float sigmoid_(float x) { return 1.0f / (1.0f + exp_(-x)); }
inline double sigmoid_(double x) { return 1.0 / (1.0 + std::exp(-x)); }
template <class T>
inline std::complex<T> sigmoid_(std::complex<T> x) {
  return T(1) / (T(1) + std::exp(-x));
}

/// Logarithmic derivative of gamma: reflection, recurrence, asymptotic series; in double whatever is asked.
inline double digamma_(double x) {
  if (x == 0) return std::copysign(std::numeric_limits<double>::infinity(), -x);
  if (x < 0) {
    if (x == std::trunc(x)) return std::numeric_limits<double>::quiet_NaN();
    const double fraction = std::modf(x, &x);
    const double whole = x + fraction;
    return digamma_(1 - whole) - M_PI / std::tan(M_PI * fraction);
  }
  double sum = 0;
  for (; x < 12; x += 1) sum -= 1 / x;
  const double y = 1 / (x * x);
  const double series =
      y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y * (1.0 / 132 - y * (691.0 / 32760))))));
  return sum + std::log(x) - 0.5 / x - (std::isinf(x) ? 0 : series);
}

/// Inverse of erf: Winitzki's estimate, then Halley's iteration on whichever of erf and erfc keeps the digits.
inline double erfinv_(double y) {
  const double a = std::fabs(y);
  if (!(a < 1))
    return a == 1 ? std::copysign(std::numeric_limits<double>::infinity(), y)
                  : std::numeric_limits<double>::quiet_NaN();
  if (a == 0) return y;
  const double l = std::log1p(-a * a), t = 2 / (M_PI * 0.147) + l / 2;
  double x = std::sqrt(std::sqrt(t * t - l / 0.147) - t);
  for (int i = 0; i < 3; ++i) {
    const double error = a < 0.5 ? std::erf(x) - a : (1 - a) - std::erfc(x);
    const double step = error / (M_2_SQRTPI * std::exp(-x * x));
    x -= step / (1 + x * step);
  }
  return std::copysign(x, y);
}

}  // namespace fl_sim::FL_SIM_ISA
