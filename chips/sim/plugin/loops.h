// SPDX-License-Identifier: Apache-2.0
// Helpers to write inner loops. Included only by files compiled per instruction set.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "isa.h"
#include "kinds.h"
#include "launch.h"

namespace fl_sim::FL_SIM_ISA {

using C64 = std::complex<float>;
using C128 = std::complex<double>;

template <class T>
constexpr bool kComplex = false;
template <class T>
constexpr bool kComplex<std::complex<T>> = true;
template <class T>
constexpr bool kFloating = std::is_floating_point_v<T>;
template <class T>
constexpr bool kInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// F::f(values..., params) for every element. The parameters are copied so that they can stay in registers.
template <class T, class F>
void map1(int64_t n, void* const* outs, const void* const* ins, const Params& params) {
  const Params p = params;
  using R = decltype(F::f(T(), p));
  auto* out = static_cast<R*>(outs[0]);
  auto* a = static_cast<const T*>(ins[0]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = F::f(a[i], p);
}

template <class T, class F>
void map2(int64_t n, void* const* outs, const void* const* ins, const Params& params) {
  const Params p = params;
  using R = decltype(F::f(T(), T(), p));
  auto* out = static_cast<R*>(outs[0]);
  auto* a = static_cast<const T*>(ins[0]);
  auto* b = static_cast<const T*>(ins[1]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = F::f(a[i], b[i], p);
}

template <class T, class F>
void map3(int64_t n, void* const* outs, const void* const* ins, const Params& params) {
  const Params p = params;
  using R = decltype(F::f(T(), T(), T(), p));
  auto* out = static_cast<R*>(outs[0]);
  auto* a = static_cast<const T*>(ins[0]);
  auto* b = static_cast<const T*>(ins[1]);
  auto* c = static_cast<const T*>(ins[2]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = F::f(a[i], b[i], c[i], p);
}

/// Scalar parameter as the number computed with.
template <class T>
inline T number(const Params& p, int i) {
  if constexpr (kComplex<T>)
    return T(static_cast<typename T::value_type>(p.c.real()), static_cast<typename T::value_type>(p.c.imag()));
  else if constexpr (kFloating<T>)
    return static_cast<T>(p.d[i]);
  else
    return static_cast<T>(p.i[i]);
}

// Wrap-around arithmetic of integers, ordinary arithmetic otherwise.
template <class T>
inline T plus(T a, T b) {
  if constexpr (std::is_same_v<T, int64_t>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else if constexpr (std::is_same_v<T, bool>)
    return a || b;
  else
    return a + b;
}
template <class T>
inline T minus(T a, T b) {
  if constexpr (std::is_same_v<T, int64_t>)
    return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
  else if constexpr (std::is_same_v<T, bool>)
    return a != b;
  else
    return a - b;
}
template <class T>
inline T times(T a, T b) {
  if constexpr (std::is_same_v<T, int64_t>)
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else if constexpr (std::is_same_v<T, bool>)
    return a && b;
  else if constexpr (kComplex<T>)  // without the library's recovery of infinities, as PyTorch
    return T(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
  else
    return a * b;
}

// Complex quotient by Smith's method.
template <class T>
inline std::complex<T> complex_quotient(std::complex<T> x, std::complex<T> y) {
  const T a = x.real(), b = x.imag(), c = y.real(), d = y.imag();
  if (std::fabs(c) >= std::fabs(d)) {
    if (c == 0 && d == 0) return {a / std::fabs(c), b / std::fabs(d)};
    const T ratio = d / c, scale = 1 / (c + d * ratio);
    return {(a + b * ratio) * scale, (b - a * ratio) * scale};
  }
  const T ratio = c / d, scale = 1 / (c * ratio + d);
  return {(a * ratio + b) * scale, (b * ratio - a) * scale};
}

template <class T>
inline T over(T a, T b) {
  if constexpr (kComplex<T>)
    return complex_quotient(a, b);
  else
    return a / b;
}

[[noreturn]] inline void zero_division() { throw InvalidArgument("ZeroDivisionError"); }

}  // namespace fl_sim::FL_SIM_ISA

// struct name with one static function template f over the arguments; the body, in braces, ends in a return.
#define FL_SIM_FN1(name, ...)                                        \
  struct name {                                                      \
    template <class T>                                               \
    static auto f(T a, [[maybe_unused]] const Params& p) __VA_ARGS__ \
  }
#define FL_SIM_FN2(name, ...)                                                              \
  struct name {                                                                            \
    template <class T>                                                                     \
    static auto f([[maybe_unused]] T a, T b, [[maybe_unused]] const Params& p) __VA_ARGS__ \
  }
#define FL_SIM_FN3(name, ...)                                                       \
  struct name {                                                                     \
    template <class T>                                                              \
    static auto f([[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T c, \
                  [[maybe_unused]] const Params& p) __VA_ARGS__                     \
  }

// Loops of a row, in the order of Kind: f32 f64 i64 u64 bool c64 c128.
#define FL_SIM_FLOATS(map, F) {map<float, F>, map<double, F>}
#define FL_SIM_REALS(map, F) {map<float, F>, map<double, F>, map<int64_t, F>}
#define FL_SIM_REALS_BOOL(map, F) {map<float, F>, map<double, F>, map<int64_t, F>, nullptr, map<bool, F>}
#define FL_SIM_INTS_BOOL(map, F) {nullptr, nullptr, map<int64_t, F>, nullptr, map<bool, F>}
#define FL_SIM_INTS(map, F) {nullptr, nullptr, map<int64_t, F>}
#define FL_SIM_FLOATS_COMPLEX(map, F) \
  {map<float, F>, map<double, F>, nullptr, nullptr, nullptr, map<C64, F>, map<C128, F>}
#define FL_SIM_COMPLEX(map, F) {nullptr, nullptr, nullptr, nullptr, nullptr, map<C64, F>, map<C128, F>}
#define FL_SIM_NUMBERS(map, F) \
  {map<float, F>, map<double, F>, map<int64_t, F>, nullptr, nullptr, map<C64, F>, map<C128, F>}
#define FL_SIM_ALL(map, F) \
  {map<float, F>, map<double, F>, map<int64_t, F>, map<uint64_t, F>, map<bool, F>, map<C64, F>, map<C128, F>}
#define FL_SIM_ALL_REAL(map, F) {map<float, F>, map<double, F>, map<int64_t, F>, map<uint64_t, F>, map<bool, F>}
