// SPDX-License-Identifier: Apache-2.0
// The logarithm and the circle functions of fl_plugin.h, section "Random numbers", for the host and for plugins in
// C++20. T is float or double. Compile with -ffp-contract=off: nothing may fuse.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>
#include <utility>

namespace torch_fl::random {

/// Horner's rule from the highest power: each number gives the coefficient 1 / n.
template <auto... kDivisors, class T>
T horner(T z) {
  T sum = 0;
  ((sum = sum * z + T(1) / T(kDivisors)), ...);
  return sum;
}
/// ln x for x in (0, 1].
template <class T>
T log_of_unit(T x) {
  constexpr bool kWide = sizeof(T) == 8;
  using Bits = std::conditional_t<kWide, uint64_t, uint32_t>;
  constexpr Bits kRootOfHalf = std::bit_cast<Bits>(static_cast<T>(std::numbers::sqrt2 / 2));
  constexpr int kMantissa = std::numeric_limits<T>::digits - 1;
  const Bits at = std::bit_cast<Bits>(x) - kRootOfHalf;
  const T power = static_cast<T>(static_cast<std::make_signed_t<Bits>>(at) >> kMantissa);
  const T m = std::bit_cast<T>((at & ((Bits{1} << kMantissa) - 1)) + kRootOfHalf);
  const T s = (m - 1) / (m + 1), z = s * s;
  T sum;
  if constexpr (kWide)
    sum = horner<21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1>(z);
  else
    sum = horner<9, 7, 5, 3, 1>(z);
  return power * std::numbers::ln2_v<T> + 2 * s * sum;
}
/// cos and sin of 2 pi u for u in [0, 1).
template <class T>
std::pair<T, T> cos_and_sin_of_turn(T u) {
  const int quarter = static_cast<int>(4 * u + T(0.5));
  const T a = 2 * std::numbers::pi_v<T> * (u - T(quarter) * T(0.25)), z = a * a;
  T cosine, sine;
  if constexpr (sizeof(T) == 8) {
    cosine = horner<20922789888000, -87178291200, 479001600, -3628800, 40320, -720, 24, -2, 1>(z);
    sine = a * horner<355687428096000, -1307674368000, 6227020800, -39916800, 362880, -5040, 120, -6, 1>(z);
  } else {
    cosine = horner<-3628800, 40320, -720, 24, -2, 1>(z);
    sine = a * horner<362880, -5040, 120, -6, 1>(z);
  }
  if (quarter & 1) std::swap(cosine, sine);
  return {(quarter + 1) & 2 ? -cosine : cosine, quarter & 2 ? -sine : sine};
}

}  // namespace torch_fl::random
